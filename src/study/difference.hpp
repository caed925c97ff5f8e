// The derivative of a function of one number by central differences, with an error estimate and a
// test for kinks. What gradcheck compares rules with.
#pragma once

#include <functional>
#include <vector>

namespace softtape::detail {

/// The values of a curve t -> y(t).
using Curve = std::function<std::vector<double>(double t)>;

struct DifferenceOptions {
  double first_step = 0;  // halved down to last_step
  double last_step = 0;
  double rtol = 0;  // precision wanted
  double atol = 0;
  double epsilon = 0;  // rounding of one value, relative
};

struct Slope {
  bool finite = false;  // false: no step gave finite values on both sides
  double value = 0;     // d/dt sum_k weights_k y_k at t = 0
  double error = 0;     // of the extrapolation, estimated
  double noise = 0;     // of rounding, estimated
  double jump = 0;      // right slope minus left slope, extrapolated to step 0
  double step = 0;      // at which the estimates were best
};

/// Halves the step until extrapolation and one-sided slopes settle; returns the best step's result.
Slope slope_at_zero(const Curve& curve, const std::vector<double>& at_zero,
                    const std::vector<double>& weights, const DifferenceOptions& options);

/// A jump of the slope this many times the precision wanted is a kink.
constexpr double kJumpFactor = 20;

}  // namespace softtape::detail
