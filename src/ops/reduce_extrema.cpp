// Reductions that pick: max, min, argmax, argmin.
#include <fmt/format.h>

#include "ops/reduce_plan.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

using detail::ReducePlan;

namespace {

// Whoever equals the result shares its gradient; when the result is NaN, the NaNs do.
void share_among_winners(Vjp& r) {
  const auto mask = r.attributes<std::uint32_t>();
  const Tensor x = r.x(0);
  const Tensor y = detail::with_kept_axes(r.y(), x.shape(), mask);
  const Tensor gy = detail::with_kept_axes(r.gy(), x.shape(), mask);
  const Tensor wins = logical_or(eq(x, y), isnan(x));
  const Tensor count = sum_to(to(wins, x.dtype()), y.shape());
  r.set(0, where(wins, div(gy, count), 0));
}

const OpInfo kMax{"max", share_among_winners, saves_inputs | saves_output};
const OpInfo kMin{"min", share_among_winners, saves_inputs | saves_output};

void check_ordered(const char* op, const Tensor& x) {
  if (detail::node_of(op, "x", x).dtype == DType::boolean) {
    throw DtypeError(fmt::format("[{}] booleans have no order: use any or all", op));
  }
}

// Calls f(T{}) for the types that have an order.
template <class F>
void visit_ordered(const char* op, DType dtype, F f) {
  if (dtype == DType::int64) return f(std::int64_t{});
  visit_float(dtype, op, f);
}

template <template <class> class Fold>
Tensor pick(const OpInfo& op, const Tensor& x, const Axes& axes, ReduceOptions options) {
  check_ordered(op.name, x);
  const ReducePlan plan(x, axes.mask(op.name, x.rank()), options.keepdim);
  detail::check_not_empty(op.name, x, plan);
  Tensor y = detail::make_tensor(plan.shape, x.dtype());
  visit_ordered(op.name, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    detail::fold<Fold<T>, T>(plan, detail::fresh_numbers<T>(y));
  });
  return record(op, std::move(y), {x}, plan.mask);
}

// The first place of a row whose number no other beats. Blocks are folded first: looking for a
// place stops at the first one that holds the fold's result.
template <class Fold, class T>
std::int64_t first_winner(const T* x, std::int64_t n) {
  T best;
  detail::fold_narrow<Fold>(x, n, 1, &best);
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] == best || x[i] != x[i]) return i;
  }
  return 0;
}

template <template <class> class Fold>
Tensor place(const char* op, const Tensor& x, std::optional<int> axis, ReduceOptions options) {
  check_ordered(op, x);
  const Axes axes = axis ? Axes(*axis) : Axes();
  const ReducePlan plan(x, axes.mask(op, x.rank()), options.keepdim, ReducePlan::Layout::rows);
  detail::check_not_empty(op, x, plan);
  Tensor y = detail::make_tensor(plan.shape, DType::int64);
  auto* into = detail::fresh_numbers<std::int64_t>(y);
  visit_ordered(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(plan.x);
    const std::int64_t n = plan.reduced;
    detail::for_ranges(plan.outer, detail::row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        into[row] = first_winner<Fold<T>>(from + row * n, n);
      }
    });
  });
  return y;
}

}  // namespace

Tensor max(TensorArg x, Axes axes, ReduceOptions options) {
  return pick<detail::MaxFold>(kMax, x, axes, options);
}

Tensor min(TensorArg x, Axes axes, ReduceOptions options) {
  return pick<detail::MinFold>(kMin, x, axes, options);
}

Tensor argmax(TensorArg x, std::optional<int> axis, ReduceOptions options) {
  return place<detail::MaxFold>("argmax", x, axis, options);
}

Tensor argmin(TensorArg x, std::optional<int> axis, ReduceOptions options) {
  return place<detail::MinFold>("argmin", x, axis, options);
}

}  // namespace softtape
