// What the library's own compiler flags promise about floating point, as functions that a test can
// call: they are compiled with the library's flags, not with the caller's.
#pragma once

namespace softtape::detail {

/// a * b + c, rounded after the product and again after the sum.
double multiply_add(double a, double b, double c);
float multiply_add(float a, float b, float c);

/// True where infinities and NaNs compare as IEEE 754 says; masks rest on it.
bool keeps_infinities(double infinity, double nan);

}  // namespace softtape::detail
