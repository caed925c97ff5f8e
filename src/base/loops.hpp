// Cutting long loops over numbers into chunks, by size alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "softtape/base/parallel.hpp"

namespace softtape::detail {

/// Elements per chunk of an elementwise loop, at most.
constexpr std::int64_t kGrain = 1 << 15;

/// As many chunks, or a few more: two, or a multiple of four. Few threads then get equal shares,
/// and the same part of one loop after the other, which is in their core's cache.
constexpr std::int64_t even_chunks(std::int64_t chunks) {
  return chunks < 3 ? chunks : (chunks + 3) / 4 * 4;
}

/// Where part i of [0, n) begins when it is cut into `parts` of about the same size, in whole units
/// but for the end of the last.
constexpr std::int64_t cut(std::int64_t n, std::int64_t unit, std::int64_t parts, std::int64_t i) {
  return i == parts ? n : n / unit * i / parts * unit;
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
  const std::int64_t chunks = std::min(n, even_chunks((n + grain - 1) / grain));
  const std::int64_t unit = n / chunks > kLong ? kWhole : 1;
  parallel_for(chunks, [&](std::int64_t chunk) {
    f(cut(n, unit, chunks, chunk), cut(n, unit, chunks, chunk + 1));
  });
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
