// Guards the compiler flags: no -ffast-math (masks need infinities) and no fused multiply-add
// (random streams and hand calculations need two roundings), neither in the library nor here.
#include "base/build_flags.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#if defined(__FAST_MATH__)
#error "the tests need IEEE arithmetic: build without -ffast-math"
#endif

namespace softtape {
namespace {

// Values the compiler can't see through, so that nothing below is computed while compiling.
template <class T>
T opaque(T value) {
  volatile T hidden = value;
  return hidden;
}

// (1 + e)(1 - e) = 1 - e^2 rounds to 1 when e^2 is under half an ulp; a fused product keeps -e^2.
template <class T>
struct FusionProbe {
  T e = std::ldexp(T(1), -(std::numeric_limits<T>::digits / 2 + 1));
  T a = opaque(T(1) + e);
  T b = opaque(T(1) - e);
  T c = opaque(T(-1));
};

TEST_CASE_TEMPLATE("flags: a * b + c is rounded twice", T, float, double) {
  const FusionProbe<T> probe;
  REQUIRE(std::fma(probe.a, probe.b, probe.c) != T(0));
  CHECK(detail::multiply_add(probe.a, probe.b, probe.c) == T(0));
  CHECK(probe.a * probe.b + probe.c == T(0));
}

TEST_CASE("flags: infinities and NaNs survive in the library") {
  CHECK(detail::keeps_infinities(opaque(std::numeric_limits<double>::infinity()),
                                 opaque(std::numeric_limits<double>::quiet_NaN())));
  CHECK_FALSE(detail::keeps_infinities(opaque(1.0), opaque(2.0)));
}

TEST_CASE_TEMPLATE("flags: infinities and NaNs survive in the tests", T, float, double) {
  const T infinity = opaque(std::numeric_limits<T>::infinity());
  CHECK(infinity > std::numeric_limits<T>::max());
  CHECK(std::isinf(-infinity));
  CHECK(T(1) / infinity == T(0));
  CHECK(std::isnan(infinity - infinity));
  CHECK(std::exp(-infinity) == T(0));
}

}  // namespace
}  // namespace softtape
