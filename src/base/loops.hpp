// Cutting long loops over numbers into chunks of fixed size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "softtape/base/parallel.hpp"

namespace softtape::detail {

/// Elements per chunk of an elementwise loop: fixed, so that results do not depend on threads.
constexpr std::int64_t kGrain = 1 << 15;

/// Calls f(begin, end) over [0, n) in chunks of `grain`, in parallel when there are several.
template <class F>
void for_ranges(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= grain) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
  parallel_for((n + grain - 1) / grain,
               [&](std::int64_t chunk) { f(chunk * grain, std::min(n, (chunk + 1) * grain)); });
}

/// Rows of a loop whose rows cost `row_cost` element operations each.
inline std::int64_t row_grain(std::int64_t row_cost) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, row_cost));
}

}  // namespace softtape::detail
