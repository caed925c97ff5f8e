// Sorting indices, line by line along an axis.
#include "softtape/ops/sort.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/loops.hpp"
#include "ops/strided.hpp"
#include "softtape/ops/index.hpp"

namespace softtape {

namespace {

using PoolIndices = detail::PoolVector<std::int64_t>;

// The first k indices of each line in order. The index breaks ties, so the order is total and no
// stable sort, which needs memory of its own, has to be used.
template <class T>
void sort_line(const T* x, std::int64_t step, PoolIndices& order, std::int64_t k, bool descending) {
  const auto before = [&](std::int64_t i, std::int64_t j) {
    const T a = x[i * step];
    const T b = x[j * step];
    if (a < b) return !descending;
    if (b < a) return descending;
    const bool a_nan = a != a;
    const bool b_nan = b != b;
    return a_nan == b_nan ? i < j : b_nan;
  };
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (k < static_cast<std::int64_t>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  } else {
    std::sort(order.begin(), order.end(), before);
  }
}

// For every line along the axis, the indices of its first k numbers in order.
Tensor first_in_order(const Tensor& x, int axis, std::int64_t k, bool descending) {
  const std::int64_t size = x.shape()[axis];
  Tensor y = detail::make_tensor(x.shape().with(axis, k), DType::int64);
  const detail::Steps x_steps(x.shape());
  const detail::Steps y_steps(y.shape());
  detail::StridedCopy lines;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) lines.axis(x.shape()[i], x_steps[i], y_steps[i]);
  }
  auto* indices = detail::fresh_numbers<std::int64_t>(y);
  const std::int64_t cost =
      size * static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size)));
  visit_any(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* numbers = detail::numbers<T>(x);
    detail::for_tasks(lines.places(lines.rank), 8.0 * static_cast<double>(cost),
                      [&](std::int64_t begin, std::int64_t end) {
                        PoolIndices order(static_cast<std::size_t>(size));
                        detail::Places line(lines, lines.rank, begin);
                        for (std::int64_t n = begin; n < end; ++n, line.next()) {
                          sort_line(numbers + line.from, x_steps[axis], order, k, descending);
                          for (std::int64_t i = 0; i < k; ++i) {
                            indices[line.into + i * y_steps[axis]] =
                                order[static_cast<std::size_t>(i)];
                          }
                        }
                      });
  });
  return y;
}

}  // namespace

Tensor argsort(TensorArg x, int axis, SortOptions options) {
  detail::check_defined("argsort", "x", x);
  const int at = normalize_axis("argsort", axis, x->rank());
  return first_in_order(x, at, x->shape()[at], options.descending);
}

Sorted sort(TensorArg x, int axis, SortOptions options) {
  detail::check_defined("sort", "x", x);
  const int at = normalize_axis("sort", axis, x->rank());
  const Tensor indices = first_in_order(x, at, x->shape()[at], options.descending);
  return {gather(x, at, indices), indices};
}

Sorted topk(TensorArg x, std::int64_t k, int axis, TopkOptions options) {
  detail::check_defined("topk", "x", x);
  const int at = normalize_axis("topk", axis, x->rank());
  const std::int64_t size = x->shape()[at];
  if (k < 0 || k > size) {
    throw ValueError(fmt::format("[topk] k must lie in [0, {}]: got {} for axis {} of {}", size, k,
                                 axis, to_string(x->shape())));
  }
  const Tensor indices = first_in_order(x, at, k, options.largest);
  return {gather(x, at, indices), indices};
}

}  // namespace softtape
