// New shapes and new orders: reshape and its kin, permute, broadcast_to.
#include "softtape/ops/shape.hpp"

#include <fmt/format.h>

#include <array>

#include "ops/strided.hpp"
#include "softtape/ops/reduce.hpp"

namespace softtape {

namespace {

using AxisOrder = std::array<int, Shape::kMaxRank>;

const OpInfo kReshape{"reshape", [](Vjp& r) { r.set(0, reshape(r.gy(), r.x_shape(0))); }};

const OpInfo kPermute{
    "permute", [](Vjp& r) {
      const auto& axes = r.attributes<AxisOrder>();
      const int rank = r.gy().rank();
      AxisOrder back{};
      for (int i = 0; i < rank; ++i) {
        back[static_cast<std::size_t>(axes[static_cast<std::size_t>(i)])] = i;
      }
      r.set(0, permute(r.gy(), std::span<const int>(back.data(), static_cast<std::size_t>(rank))));
    }};

const OpInfo kBroadcastTo{"broadcast_to", [](Vjp& r) { r.set(0, sum_to(r.gy(), r.x_shape(0))); }};

std::string list(std::span<const std::int64_t> sizes) {
  return fmt::format("({}{})", fmt::join(sizes.begin(), sizes.end(), ", "),
                     sizes.size() == 1 ? "," : "");
}

// For shapes whose element count is known to fit.
Tensor reshaped(const Tensor& x, const Shape& shape) {
  return record(kReshape, detail::make_view(x, shape), {x});
}

}  // namespace

Tensor reshape(TensorArg x, const Shape& shape) {
  detail::check_defined("reshape", "x", x);
  if (shape.numel() != x->numel()) {
    throw ShapeError(fmt::format(
        "[reshape] the number of elements must stay: x is {} with {}, asked for {} with {}",
        to_string(x->shape()), x->numel(), to_string(shape), shape.numel()));
  }
  return reshaped(x, shape);
}

Tensor reshape(TensorArg x, std::span<const std::int64_t> sizes) {
  detail::check_defined("reshape", "x", x);
  std::array<std::int64_t, Shape::kMaxRank> filled{};
  if (sizes.size() > filled.size()) {
    throw ShapeError(
        fmt::format("[reshape] at most {} axes: got {}", Shape::kMaxRank, list(sizes)));
  }
  const std::size_t none = sizes.size();
  std::size_t open = none;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < -1 || (sizes[i] == -1 && open != none)) {
      throw ShapeError(fmt::format(
          "[reshape] sizes must not be negative, but for a single -1: got {}", list(sizes)));
    }
    if (sizes[i] == -1) open = i;
    filled[i] = sizes[i] == -1 ? 1 : sizes[i];
  }
  const std::span<const std::int64_t> known(filled.data(), sizes.size());
  if (open != none) {
    const std::int64_t rest = Shape(known).numel();
    if (rest == 0 || x->numel() % rest != 0) {
      throw ShapeError(
          fmt::format("[reshape] no size fits in place of -1: x is {} with {} elements, "
                      "asked for {}",
                      to_string(x->shape()), x->numel(), list(sizes)));
    }
    filled[open] = x->numel() / rest;
  }
  return reshape(x, Shape(known));
}

Tensor reshape(TensorArg x, std::initializer_list<std::int64_t> sizes) {
  return reshape(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()));
}

Tensor flatten(TensorArg x, int start, int end) {
  detail::check_defined("flatten", "x", x);
  const Shape& shape = x->shape();
  if (shape.rank() == 0) {
    normalize_axis("flatten", start, 1);
    normalize_axis("flatten", end, 1);
    return reshaped(x, {1});
  }
  const int first = normalize_axis("flatten", start, shape.rank());
  const int last = normalize_axis("flatten", end, shape.rank());
  if (first > last) {
    throw ShapeError(fmt::format("[flatten] start must not lie behind end: got {} and {} for {}",
                                 start, end, to_string(shape)));
  }
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  std::size_t n = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > first && i <= last) {
      sizes[n - 1] *= shape[i];
    } else {
      sizes[n++] = shape[i];
    }
  }
  return reshaped(x, Shape(std::span<const std::int64_t>(sizes.data(), n)));
}

Tensor squeeze(TensorArg x) {
  detail::check_defined("squeeze", "x", x);
  Shape shape = x->shape();
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) shape = shape.without(i);
  }
  return reshaped(x, shape);
}

Tensor squeeze(TensorArg x, int axis) {
  detail::check_defined("squeeze", "x", x);
  const int at = normalize_axis("squeeze", axis, x->rank());
  if (x->shape()[at] != 1) {
    throw ShapeError(fmt::format("[squeeze] only an axis of size 1 can go: axis {} of {} has {}",
                                 axis, to_string(x->shape()), x->shape()[at]));
  }
  return reshaped(x, x->shape().without(at));
}

Tensor unsqueeze(TensorArg x, int axis) {
  detail::check_defined("unsqueeze", "x", x);
  const int at = normalize_axis("unsqueeze", axis, x->rank() + 1);
  if (x->rank() == Shape::kMaxRank) {
    throw ShapeError(fmt::format("[unsqueeze] at most {} axes: x is {}", Shape::kMaxRank,
                                 to_string(x->shape())));
  }
  return reshaped(x, x->shape().inserted(at, 1));
}

Tensor permute(TensorArg x, std::span<const int> axes) {
  detail::check_defined("permute", "x", x);
  const Shape& shape = x->shape();
  if (axes.size() != static_cast<std::size_t>(shape.rank())) {
    throw ShapeError(fmt::format("[permute] needs every axis once: got ({}) for {}",
                                 fmt::join(axes.begin(), axes.end(), ", "), to_string(shape)));
  }
  AxisOrder order{};
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  unsigned seen = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis("permute", axes[i], shape.rank());
    if (seen >> axis & 1u) {
      throw ShapeError(fmt::format("[permute] needs every axis once: got ({}) for {}",
                                   fmt::join(axes.begin(), axes.end(), ", "), to_string(shape)));
    }
    seen |= 1u << axis;
    order[i] = axis;
    sizes[i] = shape[axis];
  }
  Tensor y = detail::make_tensor(Shape(std::span<const std::int64_t>(sizes.data(), axes.size())),
                                 x->dtype());
  const detail::Steps from(shape);
  const detail::Steps into(y.shape());
  detail::StridedCopy copy;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    copy.axis(sizes[i], from[order[i]], into[static_cast<int>(i)]);
  }
  copy.run(x->dtype(), detail::numbers<char>(x), detail::fresh_numbers<char>(y));
  return record(kPermute, std::move(y), {*x}, order);
}

Tensor permute(TensorArg x, std::initializer_list<int> axes) {
  return permute(x, std::span<const int>(axes.begin(), axes.size()));
}

Tensor transpose(TensorArg x, int a, int b) {
  detail::check_defined("transpose", "x", x);
  const int first = normalize_axis("transpose", a, x->rank());
  const int second = normalize_axis("transpose", b, x->rank());
  AxisOrder axes{0, 1, 2, 3, 4, 5};
  std::swap(axes[static_cast<std::size_t>(first)], axes[static_cast<std::size_t>(second)]);
  return permute(x, std::span<const int>(axes.data(), static_cast<std::size_t>(x->rank())));
}

Tensor broadcast_to(TensorArg x, const Shape& shape) {
  detail::check_defined("broadcast_to", "x", x);
  const Shape& from = x->shape();
  const int lead = shape.rank() - from.rank();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) fits = from[i] == 1 || from[i] == shape[lead + i];
  if (!fits) {
    throw ShapeError(
        fmt::format("[broadcast_to] only axes of size 1 and new ones in front can "
                    "stretch: x is {}, asked for {}",
                    to_string(from), to_string(shape)));
  }
  Tensor y = detail::make_tensor(shape, x->dtype());
  const detail::Steps steps(from);
  const detail::Steps into(shape);
  detail::StridedCopy copy;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool stretched = i < lead || from[i - lead] == 1;
    copy.axis(shape[i], stretched ? 0 : steps[i - lead], into[i]);
  }
  copy.run(x->dtype(), detail::numbers<char>(x), detail::fresh_numbers<char>(y));
  return record(kBroadcastTo, std::move(y), {*x});
}

Tensor expand(TensorArg x, std::initializer_list<std::int64_t> sizes) {
  detail::check_defined("expand", "x", x);
  const std::span<const std::int64_t> asked(sizes.begin(), sizes.size());
  std::array<std::int64_t, Shape::kMaxRank> filled{};
  const int lead = static_cast<int>(sizes.size()) - x->rank();
  if (sizes.size() > filled.size() || lead < 0) {
    throw ShapeError(fmt::format("[expand] needs {} to {} sizes: x is {}, asked for {}", x->rank(),
                                 Shape::kMaxRank, to_string(x->shape()), list(asked)));
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const int axis = static_cast<int>(i) - lead;
    if (asked[i] < -1 || (asked[i] == -1 && axis < 0)) {
      throw ShapeError(
          fmt::format("[expand] -1 keeps the size of an axis that x has: x is {}, asked "
                      "for {}",
                      to_string(x->shape()), list(asked)));
    }
    filled[i] = asked[i] == -1 ? x->shape()[axis] : asked[i];
  }
  return broadcast_to(x, Shape(std::span<const std::int64_t>(filled.data(), asked.size())));
}

}  // namespace softtape
