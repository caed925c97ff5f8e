// Ctrl-C that lets a program finish what it is doing.
#pragma once

#include "softtape/base/export.hpp"

namespace softtape {

/// While one lives, SIGINT and SIGTERM are noted instead of ending the program: loops ask
/// requested() and stop at a good place. A second signal ends the program at once. What was there
/// before comes back with the last guard; a signal that the program was started with ignored
/// (nohup) stays ignored. Guards nest; they may be made on any thread.
class SOFTTAPE_API InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Whether a signal has come since the first of the present guards.
  static bool requested();
};

}  // namespace softtape
