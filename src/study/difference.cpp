// Ridders' method: central differences at halved steps, extrapolated in the square of the step.
#include "study/difference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace softtape::detail {
namespace {

// sum_k w_k (to_k - from_k). Numbers that stay as they are add nothing, infinities included.
double change(const std::vector<double>& from, const std::vector<double>& to,
              const std::vector<double>& weights) {
  long double sum = 0;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k] == to[k]) continue;
    sum += static_cast<long double>(weights[k]) *
           (static_cast<long double>(to[k]) - static_cast<long double>(from[k]));
  }
  return static_cast<double>(sum);
}

// What rounding of the values may do to change().
double rounding(const std::vector<double>& from, const std::vector<double>& to,
                const std::vector<double>& weights, double epsilon) {
  double sum = 0;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k] != to[k]) sum += std::abs(weights[k]) * (std::abs(from[k]) + std::abs(to[k]));
  }
  return sum * epsilon;
}

}  // namespace

Slope slope_at_zero(const Curve& curve, const std::vector<double>& at_zero,
                    const std::vector<double>& weights, const DifferenceOptions& options) {
  constexpr std::size_t kColumns = 6;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Slope best;
  double best_quality = kNone;
  std::vector<double> previous;  // extrapolations at the last step, by order
  double previous_gap = 0;
  for (double h = options.first_step; h >= options.last_step; h /= 2) {
    const std::vector<double> right = curve(h);
    const std::vector<double> left = curve(-h);
    const double central = change(left, right, weights) / (2 * h);
    const double gap = (change(at_zero, right, weights) - change(left, at_zero, weights)) / h;
    if (!std::isfinite(central) || !std::isfinite(gap)) {
      previous.clear();  // the step left the function's domain: start again closer
      continue;
    }
    Slope now{true, central, kNone, rounding(left, right, weights, options.epsilon) / h, gap, h};
    std::vector<double> row{central};
    double power = 1;
    for (std::size_t j = 0; j < std::min(previous.size(), kColumns - 1); ++j) {
      power *= 4;
      row.push_back(row[j] + (row[j] - previous[j]) / (power - 1));
      const double error =
          std::max(std::abs(row[j + 1] - row[j]), std::abs(row[j + 1] - previous[j]));
      if (error < now.error) {
        now.error = error;
        now.value = row[j + 1];
      }
    }
    if (!previous.empty()) {
      // A smooth function's gap is h f'' + O(h^3): what halving the step leaves is the jump.
      now.jump = 2 * gap - previous_gap;
      const double quality = std::max(now.error, std::abs(now.jump) / kJumpFactor);
      if (quality < best_quality) {
        best_quality = quality;
        best = now;
      }
      const double wanted = options.atol + options.rtol * std::abs(now.value);
      if (quality <= 0.1 * wanted + now.noise) return now;
    }
    previous = std::move(row);
    previous_gap = gap;
  }
  return best;
}

}  // namespace softtape::detail
