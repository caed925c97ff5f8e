// Refuses to compile under flags that break the library's promises. See build_flags.hpp.
#include "base/build_flags.hpp"

#include <limits>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "softtape needs infinities and exact order of sums: build without -ffast-math"
#endif

namespace softtape::detail {

double multiply_add(double a, double b, double c) { return a * b + c; }

float multiply_add(float a, float b, float c) { return a * b + c; }

bool keeps_infinities(double infinity, double nan) {
  return infinity > std::numeric_limits<double>::max() && -infinity < infinity && nan != nan;
}

}  // namespace softtape::detail
