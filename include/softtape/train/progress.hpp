// Progress: how far a run is, on stderr, for people. Results belong on stdout.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "softtape/base/export.hpp"

namespace softtape {

struct ProgressOptions {
  std::string label = "train";
  bool enabled = true;
  /// Seconds between lines where stderr is no terminal. (On one, the bar is drawn anew ten times a
  /// second.)
  double interval = 5;
};

/// A bar with rate and time left where stderr is a terminal; elsewhere a line every few seconds:
///
///     train 120/500 (24 %), 41.3/s, 9 s left: loss 2.314
///
/// Colours only on a terminal, and not where NO_COLOR is set to anything. A bar that is left
/// unfinished, by an exception too, ends its line. Trouble with stderr is ignored.
class SOFTTAPE_API Progress {
 public:
  /// `done` of `total` are done already: they do not count in the rate.
  /// Throws: ValueError unless 0 <= done <= total and the interval is not negative.
  Progress(std::int64_t total, ProgressOptions options = {}, std::int64_t done = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows that `done` are done, with a few words more, if it is time to.
  void update(std::int64_t done, std::string_view words = {});
  /// Whether an update would be shown now: what makes its words can wait till then.
  bool is_due() const;
  /// The last line; updates after it are not shown.
  void finish(std::string_view words = {});

 private:
  enum class Style { none, lines, bar };
  using Clock = std::chrono::steady_clock;
  void show(std::string_view words, bool last);

  ProgressOptions options_;
  Style style_ = Style::none;
  bool colour_ = false;
  bool open_ = false;  // whether the cursor stands behind a bar
  std::int64_t total_;
  std::int64_t first_;
  std::int64_t done_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace softtape
