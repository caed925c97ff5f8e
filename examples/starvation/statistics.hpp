// Numbers over seeds, and what theory predicts of a softmax over random scores.
#pragma once

#include <vector>

namespace starvation {

double mean_of(const std::vector<double>& x);
/// Divided by n - 1; 0 for fewer than two.
double sd_of(const std::vector<double>& x);
/// Middle value, of an even count the mean of the middle two. Infinite values count; NaN for none.
double median_of(std::vector<double> x);

/// f_T, the density at 0 of the gap between the two largest of T standard normals: the integral of
/// T (T-1) phi^2 Phi^(T-2). For unscaled scores, E||J||_F -> f_T / sqrt(dk).
double top_gap_density(double T);
/// Whether that limit is near: sqrt(dk) at least five times sqrt(2 ln T).
bool limit_holds(double dk, double T);

}  // namespace starvation
