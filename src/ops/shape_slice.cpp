// Parts of tensors: slice and what is made of it.
#include <fmt/format.h>

#include <algorithm>

#include "ops/strided.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

using Bound = std::optional<std::int64_t>;

struct SliceArguments {
  int axis;
  Bound start;
  Bound stop;
  std::int64_t step;
};

// What a slice reads of an axis: entries first, first + step, ...
struct Range {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

// Python's rule: negative bounds count from the end, then bounds are limited to the axis.
Range resolve(const char* op, std::int64_t size, const SliceArguments& s) {
  if (s.step == 0) throw ValueError(fmt::format("[{}] step must not be 0", op));
  const std::int64_t low = s.step > 0 ? 0 : -1;
  const std::int64_t high = s.step > 0 ? size : size - 1;
  const auto limit = [&](Bound bound, std::int64_t otherwise) {
    if (!bound) return otherwise;
    return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
  };
  const std::int64_t start = limit(s.start, s.step > 0 ? low : high);
  const std::int64_t stop = limit(s.stop, s.step > 0 ? high : low);
  if (s.step > 0 ? start >= stop : start <= stop) return {};
  const std::int64_t last = s.step > 0 ? stop - 1 - start : stop + 1 - start;
  const std::int64_t count = last / s.step + 1;
  return {start, count > 1 ? s.step : 1, count};
}

const OpInfo kSlice{"slice", [](Vjp& r) {
                      const auto& s = r.attributes<SliceArguments>();
                      r.set(0, slice_vjp(r.gy(), r.x_shape(0), s.axis, s.start, s.stop, s.step));
                    }};

const OpInfo kSliceVjp{"slice_vjp", [](Vjp& r) {
                         const auto& s = r.attributes<SliceArguments>();
                         r.set(0, slice(r.gy(), s.axis, s.start, s.stop, s.step));
                       }};

}  // namespace

Tensor slice(TensorArg x, int axis, Bound start, Bound stop, std::int64_t step) {
  detail::check_defined("slice", "x", x);
  const int at = normalize_axis("slice", axis, x->rank());
  const Range range = resolve("slice", x->shape()[at], {at, start, stop, step});
  Tensor y = detail::make_tensor(x->shape().with(at, range.count), x->dtype());
  const detail::Steps from(x->shape());
  const detail::Steps into(y.shape());
  detail::StridedCopy copy;
  for (int i = 0; i < y.rank(); ++i) {
    copy.axis(y.shape()[i], i == at ? range.step * from[i] : from[i], into[i]);
  }
  const auto offset = static_cast<std::size_t>(range.first * from[at]) * size_of(x->dtype());
  copy.run(x->dtype(), detail::numbers<char>(x) + offset, detail::fresh_numbers<char>(y));
  return record(kSlice, std::move(y), {*x}, SliceArguments{at, start, stop, step});
}

Tensor slice_vjp(TensorArg gy, const Shape& shape, int axis, Bound start, Bound stop,
                 std::int64_t step) {
  detail::check_defined("slice_vjp", "gy", gy);
  const int at = normalize_axis("slice_vjp", axis, shape.rank());
  const Range range = resolve("slice_vjp", shape[at], {at, start, stop, step});
  if (gy->shape() != shape.with(at, range.count)) {
    throw ShapeError(fmt::format(
        "[slice_vjp] gy must have the shape of the slice: gy is {}, the "
        "slice of {} is {}",
        to_string(gy->shape()), to_string(shape), to_string(shape.with(at, range.count))));
  }
  Tensor gx = detail::make_tensor(shape, gy->dtype());
  detail::fill_zeros(gx);
  const detail::Steps from(gy->shape());
  const detail::Steps into(shape);
  detail::StridedCopy copy;
  for (int i = 0; i < shape.rank(); ++i) {
    copy.axis(gy->shape()[i], from[i], i == at ? range.step * into[i] : into[i]);
  }
  const auto offset = static_cast<std::size_t>(range.first * into[at]) * size_of(gy->dtype());
  copy.run(gy->dtype(), detail::numbers<char>(gy), detail::fresh_numbers<char>(gx) + offset);
  return record(kSliceVjp, std::move(gx), {*gy}, SliceArguments{at, start, stop, step});
}

Tensor narrow(TensorArg x, int axis, std::int64_t start, std::int64_t length) {
  detail::check_defined("narrow", "x", x);
  const int at = normalize_axis("narrow", axis, x->rank());
  const std::int64_t size = x->shape()[at];
  const std::int64_t first = start < 0 ? start + size : start;
  if (first < 0 || first > size || length < 0 || length > size - first) {
    throw ValueError(fmt::format(
        "[narrow] start and length must stay inside the axis: {} and {} for axis {} of {}", start,
        length, axis, to_string(x->shape())));
  }
  return slice(x, at, first, first + length);
}

Tensor select(TensorArg x, int axis, std::int64_t index) {
  detail::check_defined("select", "x", x);
  const int at = normalize_axis("select", axis, x->rank());
  const std::int64_t size = x->shape()[at];
  if (index < -size || index >= size) {
    throw ValueError(fmt::format("[select] index must lie in [{}, {}): got {} for axis {} of {}",
                                 -size, size, index, axis, to_string(x->shape())));
  }
  const std::int64_t i = index < 0 ? index + size : index;
  return reshape(slice(x, at, i, i + 1), x->shape().without(at));
}

Tensor Tensor::operator[](std::int64_t i) const { return select(*this, 0, i); }

std::vector<Tensor> split(TensorArg x, std::span<const std::int64_t> sizes, int axis) {
  detail::check_defined("split", "x", x);
  const int at = normalize_axis("split", axis, x->rank());
  std::int64_t total = 0;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    fits = fits && size >= 0 && size <= x->shape()[at] - total;
    if (fits) total += size;
  }
  if (!fits || total != x->shape()[at]) {
    throw ShapeError(fmt::format("[split] sizes must add up to the axis: ({}) for axis {} of {}",
                                 fmt::join(sizes.begin(), sizes.end(), ", "), axis,
                                 to_string(x->shape())));
  }
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  std::int64_t from = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(slice(x, at, from, from + size));
    from += size;
  }
  return parts;
}

std::vector<Tensor> split(TensorArg x, std::initializer_list<std::int64_t> sizes, int axis) {
  return split(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()), axis);
}

std::vector<Tensor> split(TensorArg x, std::int64_t size, int axis) {
  detail::check_defined("split", "x", x);
  const int at = normalize_axis("split", axis, x->rank());
  if (size < 1) throw ValueError(fmt::format("[split] size must be at least 1: got {}", size));
  const std::int64_t all = x->shape()[at];
  std::vector<Tensor> parts;
  // An empty axis gives one empty part.
  std::int64_t from = 0;
  do {
    const std::int64_t n = std::min(size, all - from);
    parts.push_back(slice(x, at, from, from + n));
    from += n;
  } while (from < all);
  return parts;
}

std::vector<Tensor> chunk(TensorArg x, std::int64_t n, int axis) {
  detail::check_defined("chunk", "x", x);
  const int at = normalize_axis("chunk", axis, x->rank());
  if (n < 1) throw ValueError(fmt::format("[chunk] n must be at least 1: got {}", n));
  const std::int64_t size = x->shape()[at];
  return split(x, std::max<std::int64_t>(1, size / n + (size % n != 0)), at);
}

Tensor flip(TensorArg x, int axis) {
  detail::check_defined("flip", "x", x);
  return slice(x, normalize_axis("flip", axis, x->rank()), {}, {}, -1);
}

Tensor roll(TensorArg x, std::int64_t shift, int axis) {
  detail::check_defined("roll", "x", x);
  const int at = normalize_axis("roll", axis, x->rank());
  const std::int64_t size = x->shape()[at];
  if (size == 0) return slice(x, at, {});
  const std::int64_t cut = size - (shift % size + size) % size;
  return cat({slice(x, at, cut), slice(x, at, {}, cut)}, at);
}

}  // namespace softtape
