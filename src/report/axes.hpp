// What a panel's axes reach over, and text as gnuplot takes it.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "softtape/report/figure.hpp"

namespace softtape::detail {

/// Grows with what is added to it; on a log axis only by what is positive.
struct Range {
  double low = std::numeric_limits<double>::quiet_NaN(),
         high = std::numeric_limits<double>::quiet_NaN();
  bool log = false;
  void add(double x) {
    if (!std::isfinite(x) || (log && x <= 0)) return;
    low = std::isnan(low) ? x : std::min(low, x);
    high = std::isnan(high) ? x : std::max(high, x);
  }
  bool empty() const { return std::isnan(low); }
};

struct Ranges {
  Range x, y;
  bool empty = true;  // nothing to draw
};

/// Of everything a panel draws, with air around it, and of some length whatever the data.
Ranges ranges_of(const Panel& panel);

/// Sets scale, range and ticks of axis 'x' or 'y'.
std::string axis_commands(char name, const Axis& axis, const Range& range);

/// gnuplot takes single-quoted text as it is, but for the quote itself.
std::string quoted(std::string_view text);

}  // namespace softtape::detail
