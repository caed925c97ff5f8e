// Elementwise ops. All broadcast as NumPy does and hand the gradient back summed to each input's
// shape. Where an upstream gradient is exactly 0 the gradient is exactly 0, whatever the slope:
// select, not multiply (mul alone stays IEEE). Float ops take float32 and float64; mixing throws.
//
// Throws (all): ShapeError when shapes do not broadcast, DtypeError for dtypes that do not fit,
// GraphError for undefined tensors.
#pragma once

#include <optional>

#include "softtape/graph/arguments.hpp"

namespace softtape {

/// y = a + b; float or int64. Vjp: ga = gy, gb = gy, summed to shape.
SOFTTAPE_API Tensor add(Operand a, Operand b);
/// y = a - b; float or int64.
SOFTTAPE_API Tensor sub(Operand a, Operand b);
/// y = a b; float or int64. Vjp: ga = gy b, gb = gy a.
SOFTTAPE_API Tensor mul(Operand a, Operand b);
/// y = a / b; float. Vjp: ga = gy / b, gb = -gy y / b.
SOFTTAPE_API Tensor div(Operand a, Operand b);
/// y = a^b; float. Vjp: ga = gy b a^(b-1), gb = gy y ln a.
/// Edges: slopes at base 0 are those of the limit: 0 for b > 1, 1 for b = 1, Inf below; a negative
/// base with a fractional exponent gives NaN, value and slope.
SOFTTAPE_API Tensor pow(Operand a, Operand b);
/// max(a, b) and min(a, b); a NaN in either is the result. Vjp: ties share the gradient evenly.
SOFTTAPE_API Tensor maximum(Operand a, Operand b);
SOFTTAPE_API Tensor minimum(Operand a, Operand b);
/// g * slope, and exactly 0 where g is 0: the product of the chain rule. Differentiable in both.
SOFTTAPE_API Tensor chain_mul(TensorArg g, TensorArg slope);

inline Tensor operator+(Operand a, Operand b) { return add(a, b); }
inline Tensor operator-(Operand a, Operand b) { return sub(a, b); }
inline Tensor operator*(Operand a, Operand b) { return mul(a, b); }
inline Tensor operator/(Operand a, Operand b) { return div(a, b); }

SOFTTAPE_API Tensor neg(TensorArg x);  ///< -x; float or int64
inline Tensor operator-(TensorArg x) { return neg(x); }
SOFTTAPE_API Tensor exp(TensorArg x);     ///< e^x
SOFTTAPE_API Tensor expm1(TensorArg x);   ///< e^x - 1, precise near 0
SOFTTAPE_API Tensor log(TensorArg x);     ///< ln x
SOFTTAPE_API Tensor log1p(TensorArg x);   ///< ln(1 + x), precise near 0
SOFTTAPE_API Tensor sqrt(TensorArg x);    ///< slope Inf at 0
SOFTTAPE_API Tensor rsqrt(TensorArg x);   ///< 1 / sqrt(x)
SOFTTAPE_API Tensor square(TensorArg x);  ///< x x
SOFTTAPE_API Tensor abs(TensorArg x);     ///< |x|; slope 0 at 0
SOFTTAPE_API Tensor sign(TensorArg x);    ///< -1, 0 or 1; slope 0
SOFTTAPE_API Tensor sin(TensorArg x);
SOFTTAPE_API Tensor cos(TensorArg x);
SOFTTAPE_API Tensor tanh(TensorArg x);
SOFTTAPE_API Tensor erf(TensorArg x);       ///< (2 / sqrt(pi)) int_0^x e^(-t^2) dt
SOFTTAPE_API Tensor sigmoid(TensorArg x);   ///< 1 / (1 + e^-x), without overflow
SOFTTAPE_API Tensor softplus(TensorArg x);  ///< ln(1 + e^x), without overflow
SOFTTAPE_API Tensor relu(TensorArg x);      ///< max(x, 0); slope 0 at 0
SOFTTAPE_API Tensor silu(TensorArg x);      ///< x sigmoid(x)

/// Forms of GELU: x Phi(x) by erf, or its tanh approximation (Hendrycks and Gimpel 2016).
enum class Gelu { erf, tanh };
SOFTTAPE_API Tensor gelu(TensorArg x, Gelu form = Gelu::erf);

/// x limited to [low, high]; slope 1 inside and on the bounds. Throws: ValueError when low > high
/// or a bound is NaN.
SOFTTAPE_API Tensor clamp(TensorArg x, std::optional<double> low, std::optional<double> high);

/// a where `condition` is true, b elsewhere. The branch not taken gets an exact zero gradient.
/// Throws: DtypeError unless the condition is boolean.
SOFTTAPE_API Tensor where(TensorArg condition, Operand a, Operand b);

/// Comparisons give boolean tensors and no gradient. Floats or int64; eq and ne also booleans.
SOFTTAPE_API Tensor eq(Operand a, Operand b);
SOFTTAPE_API Tensor ne(Operand a, Operand b);
SOFTTAPE_API Tensor lt(Operand a, Operand b);
SOFTTAPE_API Tensor le(Operand a, Operand b);
SOFTTAPE_API Tensor gt(Operand a, Operand b);
SOFTTAPE_API Tensor ge(Operand a, Operand b);
inline Tensor operator<(Operand a, Operand b) { return lt(a, b); }
inline Tensor operator<=(Operand a, Operand b) { return le(a, b); }
inline Tensor operator>(Operand a, Operand b) { return gt(a, b); }
inline Tensor operator>=(Operand a, Operand b) { return ge(a, b); }

/// On boolean tensors. Throws: DtypeError for any other type.
SOFTTAPE_API Tensor logical_and(TensorArg a, TensorArg b);
SOFTTAPE_API Tensor logical_or(TensorArg a, TensorArg b);
SOFTTAPE_API Tensor logical_xor(TensorArg a, TensorArg b);
SOFTTAPE_API Tensor logical_not(TensorArg a);

SOFTTAPE_API Tensor isfinite(TensorArg x);
SOFTTAPE_API Tensor isnan(TensorArg x);

/// The numbers as another type. Between float types it is differentiable: gx = gy, cast back.
/// Edges: a float outside int64, or NaN, throws ValueError; a non-zero number is true.
SOFTTAPE_API Tensor to(TensorArg x, DType dtype);

}  // namespace softtape
