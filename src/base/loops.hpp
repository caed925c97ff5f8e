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

/// As many chunks, or a few more: two, or a multiple of four. Few threads then get equal shares,
/// and the same part of one loop after the other, which is in their core's cache.
constexpr std::int64_t even_chunks(std::int64_t chunks) {
  return chunks < 3 ? chunks : (chunks + 3) / 4 * 4;
}

/// Calls f(begin, end) over [0, n) in chunks of at most about `grain`, in parallel when there are
/// several.
template <class F>
void for_ranges(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= grain) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
  constexpr std::int64_t kLong = 1024;
  constexpr std::int64_t kWhole = 64;  // numbers, so that long ranges begin with a cache line
  const std::int64_t chunks = even_chunks((n + grain - 1) / grain);
  std::int64_t length = (n + chunks - 1) / chunks;
  if (length > kLong) length = (length + kWhole - 1) / kWhole * kWhole;
  parallel_for((n + length - 1) / length,
               [&](std::int64_t chunk) { f(chunk * length, std::min(n, (chunk + 1) * length)); });
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
