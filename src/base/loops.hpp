// Cutting long loops over numbers into chunks of fixed size.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

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

/// Runs body(begin, end) over [0, count) in parallel, several short tasks to a chunk. A body that
/// finds no memory for its scratch must not throw out of a parallel loop: it throws afterwards.
template <class F>
void for_tasks(std::int64_t count, double cost, F&& body) {
  constexpr double kWorthAThread = 2e5;  // multiply-adds
  const auto grain = static_cast<std::int64_t>(std::max(1.0, kWorthAThread / std::max(1.0, cost)));
  std::atomic<bool> no_memory{false};
  for_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    try {
      body(begin, end);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  });
  if (no_memory) throw std::bad_alloc();
}

}  // namespace softtape::detail
