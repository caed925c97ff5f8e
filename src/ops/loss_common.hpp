// What losses share: checks, and how the losses of elements or rows become one value.
#pragma once

#include <algorithm>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "ops/vector_math.hpp"
#include "softtape/ops/loss.hpp"

namespace softtape::detail {

/// Throws: ValueError for a mean over nothing.
void check_mean(const char* op, Reduction reduction, const Shape& shape);

/// The losses of `shape`, each costing `cost` operations, reduced and divided by `divisor`, 0
/// when that is 0.
/// f(begin, end, out) writes those of [begin, end). Sums run in chunks of fixed size, in double.
template <class T, class F>
Tensor reduce_losses(const Shape& shape, Reduction reduction, std::int64_t cost, double divisor,
                     F f) {
  const std::int64_t n = shape.numel();
  const std::int64_t grain = row_grain(cost);
  if (reduction == Reduction::none) {
    Tensor y = make_tensor(shape, dtype_of<T>);
    T* into = fresh_numbers<T>(y);
    for_ranges(n, grain,
               [&](std::int64_t begin, std::int64_t end) { f(begin, end, into + begin); });
    return y;
  }
  const std::int64_t chunks = (n + grain - 1) / grain;
  PoolVector<double> sums(static_cast<std::size_t>(chunks));
  parallel_for(chunks, [&](std::int64_t chunk) {
    constexpr std::int64_t kBlock = 256;
    T losses[kBlock];
    double sum = 0;
    const std::int64_t end = std::min(n, (chunk + 1) * grain);
    for (std::int64_t first = chunk * grain; first < end; first += kBlock) {
      const std::int64_t last = std::min(end, first + kBlock);
      f(first, last, losses);
      sum += static_cast<double>(sum_numbers(losses, last - first));
    }
    sums[static_cast<std::size_t>(chunk)] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  Tensor y = make_tensor({}, dtype_of<T>);
  *fresh_numbers<T>(y) = static_cast<T>(divisor == 0 ? 0 : total / divisor);
  return y;
}

}  // namespace softtape::detail
