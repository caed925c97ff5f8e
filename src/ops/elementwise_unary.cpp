// Elementwise ops of one input.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "ops/map.hpp"
#include "ops/vector_math.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape {

namespace {

// gx = gy * slope, by selection where gy is 0.
template <Tensor (*slope)(const Tensor&)>
void from_input(Vjp& r) {
  r.set(0, chain_mul(r.gy(), slope(r.x(0))));
}
template <Tensor (*slope)(const Tensor&)>
void from_output(Vjp& r) {
  r.set(0, chain_mul(r.gy(), slope(r.y())));
}

// A tensor like x, filled by a vectorised routine over ranges.
template <class F>
Tensor range_values(const Tensor& x, F f) {
  Tensor y = detail::make_tensor(x.shape(), x.dtype());
  visit_float(x.dtype(), "range_values", [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    detail::for_ranges(x.numel(), detail::kGrain, [&](std::int64_t begin, std::int64_t end) {
      f(from + begin, into + begin, end - begin);
    });
  });
  return y;
}
template <class F>
Tensor range_op(const OpInfo& op, const Tensor& x, F f) {
  detail::check_float(op.name, "x", x);
  return record(op, range_values(x, f), {x});
}

constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
constexpr double kSqrtHalf = 1 / std::numbers::sqrt2;
constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kGeluCubic = 0.044715;  // Hendrycks and Gimpel 2016, section 2

const OpInfo kNeg{"neg", [](Vjp& r) { r.set(0, neg(r.gy())); }};
const OpInfo kExp{"exp", from_output<[](const Tensor& y) { return y; }>, saves_output};
const OpInfo kExpm1{"expm1", from_output<[](const Tensor& y) { return add(y, 1); }>, saves_output};
const OpInfo kLog{"log", from_input<[](const Tensor& x) { return div(1, x); }>, saves_inputs};
const OpInfo kLog1p{"log1p", from_input<[](const Tensor& x) { return div(1, add(x, 1)); }>,
                    saves_inputs};
const OpInfo kSqrt{"sqrt", from_output<[](const Tensor& y) { return div(0.5, y); }>, saves_output};
const OpInfo kRsqrt{"rsqrt",
                    from_output<[](const Tensor& y) { return mul(-0.5, chain_mul(y, square(y))); }>,
                    saves_output};
const OpInfo kSquare{"square", from_input<[](const Tensor& x) { return add(x, x); }>, saves_inputs};
const OpInfo kAbs{"abs", from_input<[](const Tensor& x) { return sign(x); }>, saves_inputs};
const OpInfo kSign{"sign", [](Vjp& r) { r.set(0, mul(r.gy(), 0)); }};
const OpInfo kSin{"sin", from_input<[](const Tensor& x) { return cos(x); }>, saves_inputs};
const OpInfo kCos{"cos", from_input<[](const Tensor& x) { return neg(sin(x)); }>, saves_inputs};
const OpInfo kTanh{"tanh", from_output<[](const Tensor& y) { return sub(1, square(y)); }>,
                   saves_output};
const OpInfo kErf{
    "erf", from_input<[](const Tensor& x) { return mul(kTwoOverSqrtPi, exp(neg(square(x)))); }>,
    saves_inputs};
// s(x) s(-x) keeps its precision where s(x) rounds to 1.
const OpInfo kSigmoid{"sigmoid",
                      from_input<[](const Tensor& x) { return mul(sigmoid(x), sigmoid(neg(x))); }>,
                      saves_inputs};
const OpInfo kSoftplus{"softplus", from_input<[](const Tensor& x) { return sigmoid(x); }>,
                       saves_inputs};
const OpInfo kRelu{"relu", [](Vjp& r) { r.set(0, where(gt(r.y(), 0), r.gy(), 0)); }, saves_output};
const OpInfo kSilu{"silu", from_input<[](const Tensor& x) {
                     // s(-x) is 0 at +Inf, s(x) at -Inf, and 0 times x there must be 0.
                     const Tensor s = sigmoid(x);
                     return chain_mul(s, add(1, chain_mul(sigmoid(neg(x)), x)));
                   }>,
                   saves_inputs};
// Phi(x) + x phi(x) in one pass, outside the graph.
Tensor gelu_slope_values(const Tensor& x) {
  return range_values(x, [](auto* a, auto* y, auto n) { detail::gelu_erf_slope_numbers(a, y, n); });
}
// The same as ops, for gradients of gradients.
Tensor gelu_slope(const Tensor& x) {
  const Tensor cdf = mul(0.5, add(1, erf(mul(kSqrtHalf, x))));
  const Tensor density = mul(0.5 * kTwoOverSqrtPi * kSqrtHalf, exp(mul(-0.5, square(x))));
  return add(cdf, chain_mul(density, x));
}
const OpInfo kGeluErf{"gelu",
                      [](Vjp& r) {
                        const Tensor x = r.x(0);
                        const Tensor slope = r.recording() ? gelu_slope(x) : gelu_slope_values(x);
                        r.set(0, chain_mul(r.gy(), slope));
                      },
                      saves_inputs};
const OpInfo kGeluTanh{"gelu_tanh", from_input<[](const Tensor& input) {
                         // u = c (x + a x^3), t = tanh u: (1 + t) / 2 + x (1 - t^2) u' / 2.
                         // Beyond 30 the slope is 0 or 1, while x^2 could overflow.
                         const Tensor x = clamp(input, -30, 30);
                         const Tensor x2 = square(x);
                         const Tensor t =
                             tanh(mul(kSqrt2OverPi, mul(x, add(1, mul(kGeluCubic, x2)))));
                         const Tensor du = mul(kSqrt2OverPi, add(1, mul(3 * kGeluCubic, x2)));
                         const Tensor bell = chain_mul(sub(1, square(t)), mul(x, du));
                         return mul(0.5, add(add(1, t), bell));
                       }>,
                       saves_inputs};

const OpInfo kClamp{"clamp",
                    [](Vjp& r) {
                      const auto [low, high] = r.attributes<std::pair<double, double>>();
                      const Tensor x = r.x(0);
                      const Tensor inside = logical_and(ge(x, low), le(x, high));
                      r.set(0, where(inside, r.gy(), 0));
                    },
                    saves_inputs};

const OpInfo kTo{"to", [](Vjp& r) { r.set(0, to(r.gy(), r.x_dtype(0))); }};

template <class From, class To>
To convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, std::int64_t>) {
    // 2^63 is exact in both float types; the comparison is false for NaN.
    if (!(x >= From(-9223372036854775808.0) && x < From(9223372036854775808.0))) {
      throw ValueError(fmt::format("[to] int64 cannot hold {}", x));
    }
  }
  return static_cast<To>(x);
}

}  // namespace

Tensor neg(TensorArg x) {
  detail::check_defined("neg", "x", x);
  if (x->dtype() == DType::int64) return sub(0, x);
  return detail::unary_op(kNeg, x, [](auto v) { return -v; });
}

Tensor exp(TensorArg x) {
  return range_op(kExp, x, [](auto* a, auto* y, auto n) { detail::exp_numbers(a, y, n); });
}
Tensor expm1(TensorArg x) {
  return detail::unary_op(kExpm1, x, [](auto v) { return std::expm1(v); });
}
Tensor log(TensorArg x) {
  return detail::unary_op(kLog, x, [](auto v) { return std::log(v); });
}
Tensor log1p(TensorArg x) {
  return detail::unary_op(kLog1p, x, [](auto v) { return std::log1p(v); });
}
Tensor sqrt(TensorArg x) {
  return detail::unary_op(kSqrt, x, [](auto v) { return std::sqrt(v); });
}
Tensor rsqrt(TensorArg x) {
  return detail::unary_op(kRsqrt, x, [](auto v) { return 1 / std::sqrt(v); });
}
Tensor square(TensorArg x) {
  return detail::unary_op(kSquare, x, [](auto v) { return v * v; });
}
Tensor abs(TensorArg x) {
  return detail::unary_op(kAbs, x, [](auto v) { return std::abs(v); });
}
Tensor sign(TensorArg x) {
  return detail::unary_op(kSign, x, [](auto v) {
    using T = decltype(v);
    return v > 0 ? T{1} : v < 0 ? T{-1} : v == 0 ? T{0} : v;  // NaN stays NaN
  });
}
Tensor sin(TensorArg x) {
  return detail::unary_op(kSin, x, [](auto v) { return std::sin(v); });
}
Tensor cos(TensorArg x) {
  return detail::unary_op(kCos, x, [](auto v) { return std::cos(v); });
}
Tensor tanh(TensorArg x) {
  return range_op(kTanh, x, [](auto* a, auto* y, auto n) { detail::tanh_numbers(a, y, n); });
}
Tensor erf(TensorArg x) {
  return detail::unary_op(kErf, x, [](auto v) { return std::erf(v); });
}
Tensor sigmoid(TensorArg x) {
  return detail::unary_op(kSigmoid, x, [](auto v) {
    const auto e = std::exp(-std::abs(v));  // at most 1: nothing overflows
    return (v >= 0 ? 1 : e) / (1 + e);
  });
}
Tensor softplus(TensorArg x) {
  return detail::unary_op(kSoftplus, x, [](auto v) {
    return (v > 0 ? v : decltype(v){0}) + std::log1p(std::exp(-std::abs(v)));
  });
}
Tensor relu(TensorArg x) {
  return detail::unary_op(kRelu, x, [](auto v) { return v > 0 || v != v ? v : decltype(v){0}; });
}
Tensor silu(TensorArg x) {
  return detail::unary_op(kSilu, x, [](auto v) {
    const auto e = std::exp(-std::abs(v));
    const auto s = (v >= 0 ? 1 : e) / (1 + e);
    return s == 0 ? decltype(v){0} : v * s;  // -Inf times 0 is 0 here
  });
}

Tensor gelu(TensorArg x, Gelu form) {
  if (form == Gelu::erf) {
    return range_op(kGeluErf, x,
                    [](auto* a, auto* y, auto n) { detail::gelu_erf_numbers(a, y, n); });
  }
  return range_op(kGeluTanh, x,
                  [](auto* a, auto* y, auto n) { detail::gelu_tanh_numbers(a, y, n); });
}

Tensor clamp(TensorArg x, std::optional<double> low, std::optional<double> high) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double lo = low.value_or(-kInf);
  const double hi = high.value_or(kInf);
  if (!(lo <= hi)) {
    throw ValueError(fmt::format("[clamp] low must not exceed high: got {} and {}", lo, hi));
  }
  detail::check_float("clamp", "x", x);
  Tensor y = detail::make_tensor(x->shape(), x->dtype());
  visit_float(x->dtype(), "clamp", [&](auto zero) {
    using T = decltype(zero);
    const T l = static_cast<T>(lo);
    const T h = static_cast<T>(hi);
    detail::map_numbers(detail::numbers<T>(x), detail::fresh_numbers<T>(y), y.numel(), [l, h](T v) {
      return v < l ? l : v > h ? h : v;
    });
  });
  return record(kClamp, std::move(y), {*x}, std::pair<double, double>(lo, hi));
}

Tensor isfinite(TensorArg x) {
  detail::check_float("isfinite", "x", x);
  Tensor y = detail::make_tensor(x->shape(), DType::boolean);
  visit_float(x->dtype(), "isfinite", [&](auto zero) {
    using T = decltype(zero);
    detail::map_numbers(detail::numbers<T>(x), detail::fresh_numbers<bool>(y), y.numel(),
                        [](T v) { return std::isfinite(v); });
  });
  return y;
}

Tensor isnan(TensorArg x) {
  detail::check_float("isnan", "x", x);
  return ne(x, x);
}

Tensor to(TensorArg x, DType dtype) {
  detail::check_defined("to", "x", x);
  if (x->dtype() == dtype) return x;
  Tensor y = detail::make_tensor(x->shape(), dtype);
  visit_any(x->dtype(), [&](auto from) {
    visit_any(dtype, [&](auto into) {
      using From = decltype(from);
      using To = decltype(into);
      const From* in = detail::numbers<From>(x);
      To* out = detail::fresh_numbers<To>(y);
      for (std::int64_t i = 0; i < y.numel(); ++i) out[i] = convert<From, To>(in[i]);
    });
  });
  if (!is_floating(x->dtype())) return y;
  return record(kTo, std::move(y), {*x});
}

}  // namespace softtape
