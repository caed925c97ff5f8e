// Larger tensors: cat, stack, pad. And the triangles tril and triu.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/loops.hpp"
#include "ops/fill.hpp"
#include "ops/strided.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

using Paddings = std::array<Padding, Shape::kMaxRank>;

const OpInfo kCat{"cat", [](Vjp& r) {
                    const int axis = r.attributes<int>();
                    std::int64_t from = 0;
                    for (int i = 0; i < r.arity(); ++i) {
                      const std::int64_t size = r.x_shape(i)[axis];
                      if (r.needs(i)) r.set(i, slice(r.gy(), axis, from, from + size));
                      from += size;
                    }
                  }};

// The frame may be infinite on purpose.
const OpInfo kPad{"pad",
                  [](Vjp& r) {
                    const auto& paddings = r.attributes<Paddings>();
                    const Shape& shape = r.x_shape(0);
                    Tensor gx = r.gy();
                    for (int axis = 0; axis < shape.rank(); ++axis) {
                      if (gx.dim(axis) == shape[axis]) continue;
                      const std::int64_t from = paddings[static_cast<std::size_t>(axis)].before;
                      gx = slice(gx, axis, from, from + shape[axis]);
                    }
                    r.set(0, gx);
                  },
                  saves_nothing, true};

const OpInfo kTril{"tril", [](Vjp& r) { r.set(0, tril(r.gy(), r.attributes<std::int64_t>())); }};
const OpInfo kTriu{"triu", [](Vjp& r) { r.set(0, triu(r.gy(), r.attributes<std::int64_t>())); }};

Tensor join(const char* op, const detail::PoolVector<TensorRef>& tensors, int axis) {
  if (tensors.empty()) throw ValueError(fmt::format("[{}] needs at least one tensor", op));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!(*tensors[i]).defined()) detail::throw_undefined(op, fmt::format("tensor {}", i).c_str());
  }
  const Tensor& first = *tensors[0];
  const int at = normalize_axis(op, axis, first.rank());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = *tensors[i];
    if (t.dtype() != first.dtype()) {
      throw DtypeError(
          fmt::format("[{}] all tensors must have one dtype: tensor 0 is {}, tensor {} is {}; "
                      "convert with to()",
                      op, to_string(first.dtype()), i, to_string(t.dtype())));
    }
    if (t.rank() != first.rank() || t.shape().with(at, 0) != first.shape().with(at, 0)) {
      throw ShapeError(
          fmt::format("[{}] sizes must agree but for axis {}: tensor 0 is {}, tensor {} is {}", op,
                      at, to_string(first.shape()), i, to_string(t.shape())));
    }
    total += t.shape()[at];
  }
  Tensor y = detail::make_tensor(first.shape().with(at, total), first.dtype());
  const detail::Steps into(y.shape());
  char* place = detail::fresh_numbers<char>(y);
  for (const TensorRef& ref : tensors) {
    const Shape& shape = (*ref).shape();
    const detail::Steps from(shape);
    detail::StridedCopy copy;
    for (int i = 0; i < shape.rank(); ++i) copy.axis(shape[i], from[i], into[i]);
    copy.run(y.dtype(), detail::numbers<char>(*ref), place);
    place += static_cast<std::size_t>(shape[at] * into[at]) * size_of(y.dtype());
  }
  std::unique_ptr<detail::Attributes> attributes;
  if (detail::will_record(tensors.data(), tensors.size())) {
    attributes = std::make_unique<detail::AttributesOf<int>>(at);
  }
  return detail::record(kCat, kCat.saves, std::move(y), tensors.data(), tensors.size(),
                        std::move(attributes));
}

// The tensors of a stack, each with the new axis.
template <class Tensors>
Tensor join_new_axis(const Tensors& tensors, int axis) {
  detail::PoolVector<Tensor> parts;
  detail::PoolVector<TensorRef> refs;
  parts.reserve(tensors.size());
  refs.reserve(tensors.size());
  const Shape* shape = nullptr;
  for (std::size_t i = 0; const Tensor& t : tensors) {
    if (!t.defined()) detail::throw_undefined("stack", fmt::format("tensor {}", i).c_str());
    if (!shape) shape = &t.shape();
    if (t.shape() != *shape) {
      throw ShapeError(fmt::format("[stack] shapes must be equal: tensor 0 is {}, tensor {} is {}",
                                   to_string(*shape), i, to_string(t.shape())));
    }
    ++i;
  }
  if (shape) {
    normalize_axis("stack", axis, shape->rank() + 1);
    if (shape->rank() == Shape::kMaxRank) {
      throw ShapeError(fmt::format("[stack] at most {} axes: the tensors are {}", Shape::kMaxRank,
                                   to_string(*shape)));
    }
  }
  for (const Tensor& t : tensors) {
    parts.push_back(unsqueeze(t, axis));
    refs.emplace_back(parts.back());
  }
  return join("stack", refs, axis);
}

template <class Tensors>
detail::PoolVector<TensorRef> references(const Tensors& tensors) {
  detail::PoolVector<TensorRef> refs;
  refs.reserve(tensors.size());
  for (const Tensor& t : tensors) refs.emplace_back(t);
  return refs;
}

// The last two axes with the entries where column - row lies on one side of a diagonal.
Tensor triangle(const OpInfo& op, const Tensor& x, std::int64_t diagonal, bool lower) {
  detail::check_defined(op.name, "x", x);
  if (x.rank() < 2) {
    throw ShapeError(
        fmt::format("[{}] needs at least two axes: x is {}", op.name, to_string(x.shape())));
  }
  const std::int64_t height = x.dim(-2);
  const std::int64_t width = x.dim(-1);
  const std::int64_t above = std::clamp(diagonal, -height - 1, width);
  Tensor y = detail::make_tensor(x.shape(), x.dtype());
  visit_any(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    const std::int64_t rows = width ? x.numel() / width : 0;
    detail::for_ranges(rows, detail::row_grain(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* source = from + row * width;
        T* target = into + row * width;
        const std::int64_t edge = row % height + above + (lower ? 1 : 0);
        const std::int64_t cut = std::clamp<std::int64_t>(edge, 0, width);
        std::fill_n(lower ? target + cut : target, lower ? width - cut : cut, T{});
        if (lower) std::copy_n(source, cut, target);
        if (!lower) std::copy_n(source + cut, width - cut, target + cut);
      }
    });
  });
  return record(op, std::move(y), {x}, diagonal);
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int axis) {
  return join("cat", references(tensors), axis);
}
Tensor cat(std::initializer_list<TensorArg> tensors, int axis) {
  return join("cat", references(tensors), axis);
}
Tensor stack(std::span<const Tensor> tensors, int axis) { return join_new_axis(tensors, axis); }
Tensor stack(std::initializer_list<TensorArg> tensors, int axis) {
  return join_new_axis(tensors, axis);
}

Tensor pad(TensorArg x, std::span<const Padding> paddings, double value) {
  detail::check_defined("pad", "x", x);
  const Shape& shape = x->shape();
  if (paddings.size() != static_cast<std::size_t>(shape.rank())) {
    throw ShapeError(fmt::format("[pad] needs one padding per axis: got {} for {}", paddings.size(),
                                 to_string(shape)));
  }
  Paddings kept{};
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  for (std::size_t i = 0; i < paddings.size(); ++i) {
    const Padding& p = paddings[i];
    const std::int64_t size = shape[static_cast<int>(i)];
    if (p.before < 0 || p.after < 0 || __builtin_add_overflow(size, p.before, &sizes[i]) ||
        __builtin_add_overflow(sizes[i], p.after, &sizes[i])) {
      throw ShapeError(
          fmt::format("[pad] paddings must not be negative: got ({}, {}) for axis {} of "
                      "{}; cut with slice",
                      p.before, p.after, i, to_string(shape)));
    }
    kept[i] = p;
  }
  detail::check_number("pad", x->dtype(), value);
  Tensor y = detail::make_tensor(
      Shape(std::span<const std::int64_t>(sizes.data(), paddings.size())), x->dtype());
  detail::fill_number(y, value);
  const detail::Steps from(shape);
  const detail::Steps into(y.shape());
  detail::StridedCopy copy;
  std::int64_t first = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    copy.axis(shape[i], from[i], into[i]);
    first += kept[static_cast<std::size_t>(i)].before * into[i];
  }
  // With nothing to copy the first place may lie beyond the end.
  if (x->numel() > 0) {
    copy.run(
        x->dtype(), detail::numbers<char>(x),
        detail::fresh_numbers<char>(y) + static_cast<std::size_t>(first) * size_of(x->dtype()));
  }
  return record(kPad, std::move(y), {*x}, kept);
}

Tensor pad(TensorArg x, std::initializer_list<Padding> paddings, double value) {
  return pad(x, std::span<const Padding>(paddings.begin(), paddings.size()), value);
}

Tensor tril(TensorArg x, std::int64_t diagonal) { return triangle(kTril, x, diagonal, true); }
Tensor triu(TensorArg x, std::int64_t diagonal) { return triangle(kTriu, x, diagonal, false); }

}  // namespace softtape
