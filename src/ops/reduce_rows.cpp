// Reductions that go through a row more than once: var, std, logsumexp, norm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/reduce_plan.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

using detail::ReducePlan;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// f(rows, results, count, n) for ranges of rows of a plan whose rows are contiguous.
template <class F>
Tensor reduce_row_ranges(const char* op, const ReducePlan& plan, F f) {
  Tensor y = detail::make_tensor(plan.shape, plan.x.dtype());
  visit_float(plan.x.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(plan.x);
    T* into = detail::fresh_numbers<T>(y);
    const std::int64_t n = plan.reduced;
    detail::for_ranges(plan.outer, detail::row_grain(4 * n),
                       [&](std::int64_t begin, std::int64_t end) {
                         f(from + begin * n, into + begin, end - begin, n);
                       });
  });
  return y;
}

// f(row, n) for every row.
template <class F>
Tensor reduce_rows(const char* op, const ReducePlan& plan, F f) {
  return reduce_row_ranges(op, plan,
                           [&](const auto* x, auto* y, std::int64_t rows, std::int64_t n) {
                             for (std::int64_t row = 0; row < rows; ++row)
                               y[row] = f(x + row * n, n);
                           });
}

// sum of f(x_i) over a row in double, in blocks of lanes: the order of sum_numbers.
template <class T, class F>
double sum_of(const T* x, std::int64_t n, F f) {
  constexpr std::int64_t kBlock = 256;
  T values[kBlock];
  double total = 0;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t size = std::min(kBlock, n - first);
    for (std::int64_t i = 0; i < size; ++i) values[i] = f(x[first + i]);
    total += static_cast<double>(detail::sum_numbers(values, size));
  }
  return total;
}

// The largest |x|; NaN when there is one.
template <class T>
T largest(const T* x, std::int64_t n) {
  T top = 0;
  for (std::int64_t i = 0; i < n; ++i) top = detail::MaxFold<T>::add(top, std::abs(x[i]));
  return top;
}

template <class T>
T variance_of(const T* x, std::int64_t n, double correction) {
  const T mean =
      static_cast<T>(static_cast<double>(detail::sum_numbers(x, n)) / static_cast<double>(n));
  // What rounding left in the mean shows in the sum of the deviations, and is taken out again.
  const double left = sum_of(x, n, [mean](T v) { return v - mean; });
  const double squares = sum_of(x, n, [mean](T v) { return (v - mean) * (v - mean); });
  const double count = static_cast<double>(n);
  return static_cast<T>(std::max(squares - left * left / count, 0.0) / (count - correction));
}

constexpr std::int64_t kExpBlock = 256;

template <class T>
T top_of(const T* x, std::int64_t n) {
  T top;
  detail::fold_narrow<detail::MaxFold<T>>(x, n, 1, &top);
  return top;
}
// What a row is shifted by, and ln of its sum of e^(x - shift) shifted back; an infinite or NaN top
// is the result itself.
template <class T>
T shift_of(T top) {
  return std::isfinite(top) ? top : T{0};
}
template <class T>
T shifted_log(T top, double sum) {
  return std::isfinite(top) ? top + static_cast<T>(std::log(sum)) : top;
}

// Rows that are longer than a block, one at a time.
template <class T>
T logsumexp_of(const T* x, std::int64_t n) {
  const T top = top_of(x, n);
  T values[kExpBlock];
  double total = 0;
  for (std::int64_t first = 0; first < n; first += kExpBlock) {
    const std::int64_t size = std::min(kExpBlock, n - first);
    for (std::int64_t i = 0; i < size; ++i) values[i] = x[first + i] - shift_of(top);
    detail::exp_numbers(values, values, size);
    total += static_cast<double>(detail::sum_numbers(values, size));
  }
  return shifted_log(top, total);
}

// Short rows, as many at once as fill a block.
template <class T>
void logsumexp_rows(const T* x, T* y, std::int64_t rows, std::int64_t n) {
  T values[kExpBlock];
  const std::int64_t many = kExpBlock / n;
  for (std::int64_t first = 0; first < rows; first += many) {
    const std::int64_t last = std::min(rows, first + many);
    for (std::int64_t row = first; row < last; ++row) {
      const T* from = x + row * n;
      T* into = values + (row - first) * n;
      y[row] = top_of(from, n);
      for (std::int64_t i = 0; i < n; ++i) into[i] = from[i] - shift_of(y[row]);
    }
    detail::exp_numbers(values, values, (last - first) * n);
    for (std::int64_t row = first; row < last; ++row) {
      const double sum = static_cast<double>(detail::sum_numbers(values + (row - first) * n, n));
      y[row] = shifted_log(y[row], sum);
    }
  }
}

template <class T>
T norm_of(const T* x, std::int64_t n, double p) {
  if (p == 2) {
    const double squares = sum_of(x, n, [](T v) { return v * v; });
    // Between these no square has overflowed or lost digits to underflow.
    constexpr double kLow = std::is_same_v<T, float> ? 1e-20 : 1e-280;
    if (squares > kLow && squares <= std::numeric_limits<T>::max()) {
      return static_cast<T>(std::sqrt(squares));
    }
  }
  const T top = largest(x, n);
  if (top == 0 || !std::isfinite(top)) return top;
  const double scaled = p == 2 ? sum_of(x, n, [top](T v) { return (v / top) * (v / top); })
                               : sum_of(x, n, [top, power = static_cast<T>(p)](T v) {
                                   return std::pow(std::abs(v) / top, power);
                                 });
  return static_cast<T>(static_cast<double>(top) *
                        (p == 2 ? std::sqrt(scaled) : std::pow(scaled, 1 / p)));
}

struct Variance {
  std::uint32_t mask;
  double divisor;
};

// (x - mean) / divisor, the slope of half the variance.
Tensor deviation(const Tensor& x, const Variance& of) {
  const Tensor centre = sum_to(x, detail::reduced_shape(x.shape(), of.mask, true));
  return div(sub(x, div(centre, detail::reduced_count(x.shape(), of.mask))), of.divisor);
}

const OpInfo kVar{"var",
                  [](Vjp& r) {
                    const auto& of = r.attributes<Variance>();
                    const Tensor x = r.x(0);
                    const Tensor gy = detail::with_kept_axes(r.gy(), x.shape(), of.mask);
                    r.set(0, chain_mul(mul(2, gy), deviation(x, of)));
                  },
                  saves_inputs};

const OpInfo kStd{"std",
                  [](Vjp& r) {
                    const auto& of = r.attributes<Variance>();
                    const Tensor x = r.x(0);
                    const Tensor gy = detail::with_kept_axes(r.gy(), x.shape(), of.mask);
                    const Tensor y = detail::with_kept_axes(r.y(), x.shape(), of.mask);
                    const Tensor flat = eq(y, 0);
                    const Tensor share = where(flat, 0, div(gy, where(flat, 1, y)));
                    r.set(0, chain_mul(share, deviation(x, of)));
                  },
                  saves_inputs | saves_output};

// The shift is a constant: it cancels in e / sum(e), so no gradient goes through it.
const OpInfo kLogsumexp{"logsumexp",
                        [](Vjp& r) {
                          const auto mask = r.attributes<std::uint32_t>();
                          const Tensor x = r.x(0);
                          const Shape kept = detail::reduced_shape(x.shape(), mask, true);
                          const Tensor y = reshape(r.y().detach(), kept);
                          const Tensor e = exp(sub(x, where(eq(y, -kInf), 0, y)));
                          const Tensor sums = sum_to(e, kept);
                          const Tensor weights = div(e, where(eq(sums, 0), 1, sums));
                          r.set(0, chain_mul(reshape(r.gy(), kept), weights));
                        },
                        saves_inputs | saves_output};

struct NormOf {
  std::uint32_t mask;
  double p;
};

const OpInfo kNorm{"norm",
                   [](Vjp& r) {
                     const auto [mask, p] = r.attributes<NormOf>();
                     const Tensor x = r.x(0);
                     const Tensor gy = detail::with_kept_axes(r.gy(), x.shape(), mask);
                     const Tensor y = detail::with_kept_axes(r.y(), x.shape(), mask);
                     const Tensor zero = eq(y, 0);
                     const Tensor scale = where(zero, 1, y);
                     if (p == 2) {
                       r.set(0, chain_mul(where(zero, 0, gy), div(x, scale)));
                       return;
                     }
                     // Where x is 0 a power below 1 has no slope: those entries are left out.
                     const Tensor flat = eq(x, 0);
                     const Tensor ratio = where(flat, 1, div(abs(x), scale));
                     const Tensor slope = mul(sign(x), pow(ratio, p - 1));
                     r.set(0, chain_mul(gy, where(flat, 0, slope)));
                   },
                   saves_inputs | saves_output};

ReducePlan variance_plan(const char* op, const Tensor& x, const Axes& axes,
                         const VarOptions& options) {
  detail::check_float(op, "x", x);
  ReducePlan plan(x, axes.mask(op, x.rank()), options.keepdim, ReducePlan::Layout::rows);
  if (!(static_cast<double>(plan.reduced) > options.correction)) {
    throw ValueError(fmt::format("[{}] needs more elements than the correction: {} of x {}, {}", op,
                                 plan.reduced, to_string(x.shape()), options.correction));
  }
  return plan;
}

Variance variance_attributes(const ReducePlan& plan, const VarOptions& options) {
  return {plan.mask, static_cast<double>(plan.reduced) - options.correction};
}

}  // namespace

Tensor var(TensorArg x, Axes axes, VarOptions options) {
  const ReducePlan plan = variance_plan("var", x, axes, options);
  Tensor y = reduce_rows("var", plan, [&](const auto* row, std::int64_t n) {
    return variance_of(row, n, options.correction);
  });
  return record(kVar, std::move(y), {*x}, variance_attributes(plan, options));
}

Tensor std(TensorArg x, Axes axes, VarOptions options) {
  const ReducePlan plan = variance_plan("std", x, axes, options);
  Tensor y = reduce_rows("std", plan, [&](const auto* row, std::int64_t n) {
    return std::sqrt(variance_of(row, n, options.correction));
  });
  return record(kStd, std::move(y), {*x}, variance_attributes(plan, options));
}

Tensor logsumexp(TensorArg x, Axes axes, ReduceOptions options) {
  detail::check_float("logsumexp", "x", x);
  const ReducePlan plan(x, axes.mask("logsumexp", x->rank()), options.keepdim,
                        ReducePlan::Layout::rows);
  Tensor y = reduce_row_ranges("logsumexp", plan,
                               [](const auto* from, auto* into, std::int64_t rows, std::int64_t n) {
                                 if (n > 0 && n <= kExpBlock)
                                   return logsumexp_rows(from, into, rows, n);
                                 for (std::int64_t row = 0; row < rows; ++row)
                                   into[row] = logsumexp_of(from + row * n, n);
                               });
  return record(kLogsumexp, std::move(y), {*x}, plan.mask);
}

Tensor norm(TensorArg x, Axes axes, NormOptions options) {
  detail::check_float("norm", "x", x);
  if (!(options.p > 0)) {
    throw ValueError(fmt::format("[norm] p must be positive: got {}", options.p));
  }
  const ReducePlan plan(x, axes.mask("norm", x->rank()), options.keepdim, ReducePlan::Layout::rows);
  if (options.p == kInf) {
    detail::check_not_empty("norm", x, plan);
    return max(abs(x), axes, {.keepdim = options.keepdim});
  }
  if (options.p == 1) return sum(abs(x), axes, {.keepdim = options.keepdim});
  Tensor y = reduce_rows(
      "norm", plan, [&](const auto* row, std::int64_t n) { return norm_of(row, n, options.p); });
  return record(kNorm, std::move(y), {*x}, NormOf{plan.mask, options.p});
}

}  // namespace softtape
