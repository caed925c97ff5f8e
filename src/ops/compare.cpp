// Comparisons of whole tensors.
#include "softtape/ops/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/map.hpp"

namespace softtape {

namespace {

bool close(double a, double b, const CloseOptions& options) {
  if (a == b) return true;
  if (std::isnan(a) || std::isnan(b)) return options.equal_nan && std::isnan(a) && std::isnan(b);
  // An infinite b would be within an infinite tolerance of everything.
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= options.atol + options.rtol * std::abs(b);
}

}  // namespace

bool allclose(TensorArg a, Operand b, CloseOptions options) {
  if (!(options.rtol >= 0 && options.atol >= 0)) {
    throw ValueError(fmt::format("[allclose] tolerances must not be negative: rtol {}, atol {}",
                                 options.rtol, options.atol));
  }
  const detail::OperandPair in("allclose", Operand(a), b);
  if (b.is_tensor() && in.a().shape() != in.b().shape()) {
    throw ShapeError(fmt::format("[allclose] shapes must be equal: a is {}, b is {}",
                                 to_string(in.a().shape()), to_string(in.b().shape())));
  }
  return visit_any(in.a().dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* pa = detail::numbers<T>(in.a());
    const T* pb = detail::numbers<T>(in.b());
    const std::int64_t step = b.is_tensor() ? 1 : 0;
    for (std::int64_t i = 0; i < in.a().numel(); ++i) {
      if (!close(static_cast<double>(pa[i]), static_cast<double>(pb[i * step]), options)) {
        return false;
      }
    }
    return true;
  });
}

bool equal(TensorArg a, TensorArg b) {
  detail::check_defined("equal", "a", a);
  detail::check_defined("equal", "b", b);
  if (a->shape() != b->shape() || a->dtype() != b->dtype()) return false;
  return visit_any(a->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(a);
    return std::equal(from, from + a->numel(), detail::numbers<T>(b));
  });
}

}  // namespace softtape
