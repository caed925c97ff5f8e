// Means, spreads and medians, and the closed forms that measurements are held against.
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace starvation {

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double sd_of(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double mean = mean_of(x);
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(x.size() - 1));
}

double median_of(std::vector<double> x) {
  if (x.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(x);
  const std::size_t half = x.size() / 2;
  return x.size() % 2 == 1 ? x[half] : (x[half - 1] + x[half]) / 2;
}

double top_gap_density(double T) {
  // The trapezoid rule converges faster than any power here: the integrand and all its derivatives
  // vanish at both ends.
  constexpr double step = 1.0 / 128;
  double sum = 0;
  for (double x = -12; x <= 12; x += step) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    const double below = std::erfc(-x / std::sqrt(2.0)) / 2;
    sum += density * density * std::pow(below, T - 2);
  }
  return T * (T - 1) * sum * step;
}

bool limit_holds(double dk, double T) {
  // Below five times the boundary the limit is off by a fifth and more (Monte Carlo, T = 128).
  return T >= 2 && std::sqrt(dk) >= 5 * std::sqrt(2 * std::log(T));
}

}  // namespace starvation
