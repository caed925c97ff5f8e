// Independent jobs side by side. What they give is stored by their number, so results do not
// depend on how many threads there are.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace starvation {

struct JobOptions {
  std::string label;
  int threads = 1;
  bool progress = true;
};

/// Calls job(0) to job(count - 1), each once, in order of their numbers as threads become free.
/// A signal (softtape::InterruptGuard) keeps further jobs from starting. The first exception is
/// thrown again when all threads are done. Returns false when a signal came.
bool run_jobs(std::size_t count, const JobOptions& options,
              const std::function<void(std::size_t)>& job);

}  // namespace starvation
