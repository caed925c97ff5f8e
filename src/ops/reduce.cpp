// Sums and what is made of them: sum_to, sum, mean, any, all. The folds are in reduce_plan.hpp.
#include "softtape/ops/reduce.hpp"

#include <fmt/format.h>

#include "ops/reduce_plan.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

std::uint32_t Axes::checked_mask(const char* op, int rank) const {
  if (count_ > Shape::kMaxRank) {
    throw ShapeError(
        fmt::format("[{}] at most {} axes can be named: got {}", op, Shape::kMaxRank, count_));
  }
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::uint32_t bit = 1u << normalize_axis(op, axes_[i], rank);
    if (mask & bit) {
      throw ShapeError(
          fmt::format("[{}] an axis may be named only once: got axis {} twice", op, axes_[i]));
    }
    mask |= bit;
  }
  return mask;
}

namespace detail {

Shape reduced_shape(const Shape& x, std::uint32_t mask, bool keepdim) {
  std::int64_t sizes[Shape::kMaxRank];
  std::size_t rank = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool gone = mask >> axis & 1;
    if (!gone || keepdim) sizes[rank++] = gone ? 1 : x[axis];
  }
  return Shape(std::span<const std::int64_t>(sizes, rank));
}

ReducePlan::ReducePlan(const Tensor& input, std::uint32_t axes, bool keepdim, Layout layout)
    : mask(axes), x(input) {
  const Shape& from = TensorAccess::node(input)->shape;
  const int rank = from.rank();
  if (mask == (1u << rank) - 1) {
    if (keepdim) shape = reduced_shape(from, mask, true);
    reduced = from.numel();
    return;
  }
  shape = reduced_shape(from, mask, keepdim);
  // Outer axes, reduced ones, inner ones; axes of size 1 may stand anywhere.
  int order[Shape::kMaxRank];
  int n = 0;
  bool in_place = true;
  for (int axis = 0; axis < rank; ++axis) {
    const bool gone = mask >> axis & 1;
    if (!gone) order[n++] = axis;
    if (from[axis] == 1) continue;
    if (gone) {
      in_place = in_place && inner == 1;
      reduced *= from[axis];
    } else if (reduced == 1) {
      outer *= from[axis];
    } else {
      inner *= from[axis];
    }
  }
  if (in_place && (layout == Layout::any || inner == 1)) return;
  for (int axis = 0; axis < rank; ++axis) {
    if (mask >> axis & 1) order[n++] = axis;
  }
  outer *= inner;
  inner = 1;
  const NoGrad values_only;
  x = permute(x, std::span<const int>(order, static_cast<std::size_t>(rank)));
}

Tensor with_kept_axes(const Tensor& t, const Shape& x, std::uint32_t mask) {
  if (t.rank() == 0 || t.rank() == x.rank()) return t;  // a scalar broadcasts as it is
  return reshape(t, reduced_shape(x, mask, true));
}

std::int64_t reduced_count(const Shape& x, std::uint32_t mask) {
  std::int64_t n = 1;
  for (int axis = 0; axis < x.rank(); ++axis) n *= mask >> axis & 1 ? x[axis] : 1;
  return n;
}

void check_not_empty(const char* op, const Tensor& x, const ReducePlan& plan) {
  if (plan.reduced == 0 && plan.outer * plan.inner != 0) {
    throw ValueError(
        fmt::format("[{}] there must be something to reduce: x is {}", op, to_string(x.shape())));
  }
}

}  // namespace detail

using detail::ReducePlan;

namespace {

// A gradient of the result's shape, spread over the input's.
Tensor spread(Vjp& r, const Tensor& t) {
  const auto mask = r.attributes<std::uint32_t>();
  return broadcast_to(detail::with_kept_axes(t, r.x_shape(0), mask), r.x_shape(0));
}

const OpInfo kSumTo{"sum_to", [](Vjp& r) { r.set(0, broadcast_to(r.gy(), r.x_shape(0))); }};

const OpInfo kSum{"sum", [](Vjp& r) { r.set(0, spread(r, r.gy())); }};

const OpInfo kMean{"mean", [](Vjp& r) {
                     const auto mask = r.attributes<std::uint32_t>();
                     r.set(0, spread(r, div(r.gy(), detail::reduced_count(r.x_shape(0), mask))));
                   }};

Tensor sum_values(const char* op, const ReducePlan& plan) {
  const DType dtype = plan.x.dtype();
  Tensor y = detail::make_tensor(plan.shape, dtype);
  if (dtype == DType::int64) {
    using I = std::int64_t;
    detail::fold<detail::SumFold<I>, I>(plan, detail::fresh_numbers<I>(y));
  } else {
    visit_float(dtype, op, [&](auto zero) {
      using T = decltype(zero);
      T* into = detail::fresh_numbers<T>(y);
      if (plan.outer == 1 && plan.inner == 1 && plan.reduced <= detail::kGrain) {
        *into = detail::sum_numbers(detail::numbers<T>(plan.x), plan.reduced);
      } else {
        detail::fold<detail::SumFold<T>, T>(plan, into);
      }
    });
  }
  return y;
}

template <class Fold>
Tensor fold_booleans(const char* op, const Tensor& x, const Axes& axes, ReduceOptions options) {
  detail::check_boolean(op, "x", x);
  const ReducePlan plan(x, axes.mask(op, x.rank()), options.keepdim);
  Tensor y = detail::make_tensor(plan.shape, DType::boolean);
  detail::fold<Fold, unsigned char>(plan, detail::fresh_numbers<unsigned char>(y));
  return y;
}

}  // namespace

Tensor sum_to(TensorArg x, const Shape& shape) {
  const Shape& from = detail::node_of("sum_to", "x", x).shape;
  if (from == shape) return x;
  const int lead = from.rank() - shape.rank();
  bool fits = lead >= 0;
  std::uint32_t mask = fits ? (1u << lead) - 1 : 0;
  for (int axis = 0; axis < shape.rank() && fits; ++axis) {
    fits = shape[axis] == from[axis + lead] || shape[axis] == 1;
    if (shape[axis] != from[axis + lead]) mask |= 1u << (axis + lead);
  }
  if (!fits) {
    throw ShapeError(fmt::format("[sum_to] shape must broadcast to that of x: {} and {}",
                                 to_string(shape), to_string(from)));
  }
  detail::check_float("sum_to", "x", x);
  ReducePlan plan(x, mask, false);
  plan.shape = shape;
  return record(kSumTo, sum_values("sum_to", plan), {*x});
}

Tensor sum(TensorArg x, Axes axes, ReduceOptions options) {
  const DType dtype = detail::node_of("sum", "x", x).dtype;
  const ReducePlan plan(dtype == DType::boolean ? to(x, DType::int64) : *x,
                        axes.mask("sum", x->rank()), options.keepdim);
  return record(kSum, sum_values("sum", plan), {*x}, plan.mask);
}

Tensor mean(TensorArg x, Axes axes, ReduceOptions options) {
  detail::check_float("mean", "x", x);
  const ReducePlan plan(x, axes.mask("mean", x->rank()), options.keepdim);
  detail::check_not_empty("mean", x, plan);
  Tensor y = sum_values("mean", plan);
  visit_float(y.dtype(), "mean", [&](auto zero) {
    using T = decltype(zero);
    T* numbers = detail::fresh_numbers<T>(y);
    const T n = static_cast<T>(plan.reduced);
    for (std::int64_t i = 0; i < y.numel(); ++i) numbers[i] /= n;
  });
  return record(kMean, std::move(y), {*x}, plan.mask);
}

Tensor any(TensorArg x, Axes axes, ReduceOptions options) {
  return fold_booleans<detail::AnyFold>("any", x, axes, options);
}

Tensor all(TensorArg x, Axes axes, ReduceOptions options) {
  return fold_booleans<detail::AllFold>("all", x, axes, options);
}

}  // namespace softtape
