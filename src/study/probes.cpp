// Probes of weights and of score gradients. One function per row, in double.
#include "softtape/study/probes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "study/index.hpp"
#include "study/rows.hpp"

namespace softtape {

namespace {

using detail::Rows;
using Row = std::span<const double>;

// Weights are not negative; scores, which are easily passed for them, are.
Rows weight_rows(const char* op, const Tensor& weights) {
  Rows rows(op, "weights", weights);
  const Row all = rows.all();
  const auto bad = std::find_if(all.begin(), all.end(), [](double p) { return p < 0; });
  if (bad != all.end()) {
    throw ValueError(
        fmt::format("[{}] weights must not be negative: got {} at {}; pass softmax(scores), not "
                    "scores",
                    op, *bad, detail::index_text(rows.shape(), bad - all.begin())));
  }
  return rows;
}

// A row seen from its largest weight. With w the sum of the losers, 1 - p_winner is w: summed, not
// subtracted, it keeps its digits when the winner has nearly everything.
struct Distribution {
  explicit Distribution(Row weights) : p(weights.begin(), weights.end()) {
    double sum = 0;
    for (const double x : p) sum += x;
    for (double& x : p) x /= sum > 0 ? sum : 1;
    top = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
    for (std::size_t j = 0; j < p.size(); ++j) losers += j == top ? 0 : p[j];
    poisoned = std::isnan(sum) || std::isinf(sum);
    saturated = p.empty() || losers == 0;
  }
  double others(std::size_t j) const { return j == top ? losers : p[top] + (losers - p[j]); }

  std::vector<double> p;
  std::size_t top = 0;
  double losers = 0;
  bool poisoned = false;
  bool saturated = false;  // one key or none has everything: J = 0
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// With q_j = p_j / w for the losers, Q = sum q^2 and o_j = 1 - p_j:
//   ||J||_F^2 = w^2 (p_top^2 (1 + 2 Q) + sum_j q_j^2 (o_j^2 + w^2 (Q - q_j^2))).
// Differences occur only where a positive term of their size or more is added.
double frobenius(Row weights) {
  const Distribution row(weights);
  if (row.poisoned) return kNaN;
  if (row.saturated) return 0;
  const double w = row.losers;
  double squares = 0;
  for (std::size_t j = 0; j < row.p.size(); ++j) {
    if (j != row.top) squares += (row.p[j] / w) * (row.p[j] / w);
  }
  double sum = row.p[row.top] * row.p[row.top] * (1 + 2 * squares);
  for (std::size_t j = 0; j < row.p.size(); ++j) {
    if (j == row.top) continue;
    const double q2 = (row.p[j] / w) * (row.p[j] / w);
    sum += q2 * (row.others(j) * row.others(j) + w * w * (squares - q2));
  }
  return w * std::sqrt(sum);
}

// x is an eigenvalue of J where sum_j p_j / (p_j - x) = 0; between the two largest weights
// the sum rises from -Inf to Inf. Solved for y = x - p_second, so that neither end cancels.
double spectral(Row weights) {
  const Distribution row(weights);
  if (row.poisoned) return kNaN;
  if (row.saturated) return 0;
  double second = 0;
  double largest_slope = 0;
  for (std::size_t j = 0; j < row.p.size(); ++j) {
    if (j != row.top) second = std::max(second, row.p[j]);
    largest_slope = std::max(largest_slope, row.p[j] * row.others(j));
  }
  const double gap = row.p[row.top] - second;
  if (gap == 0) return second;
  const auto sum_at = [&](double y) {
    double sum = row.p[row.top] / (gap - y);
    for (std::size_t j = 0; j < row.p.size(); ++j) {
      if (j != row.top && row.p[j] > 0) sum -= row.p[j] / (y + (second - row.p[j]));
    }
    return sum;
  };
  // max p (1 - p) <= x <= 2 max p (1 - p): halving this bracket 60 times settles every digit.
  double low = std::max(0.0, largest_slope - second);
  double high = std::min(gap, 2 * largest_slope - second);
  for (int i = 0; i < 60 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (sum_at(middle) < 0 ? low : high) = middle;
  }
  return second + low + (high - low) / 2;
}

// ln of the winner's weight is ln(1 - w): near 1 the weight itself has lost the digits of w.
double entropy_of(Row weights) {
  const Distribution row(weights);
  if (row.poisoned) return kNaN;
  if (row.saturated) return 0;
  double sum = -row.p[row.top] * std::log1p(-row.losers);
  for (std::size_t j = 0; j < row.p.size(); ++j) {
    if (j != row.top && row.p[j] > 0) sum -= row.p[j] * std::log(row.p[j]);
  }
  return sum;
}

double gini_of(std::vector<double> p) {
  std::sort(p.begin(), p.end());
  double sum = 0;
  double ranked = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    sum += p[i];
    ranked += (2 * static_cast<double>(i + 1) - static_cast<double>(p.size()) - 1) * p[i];
  }
  return std::isnan(sum) ? kNaN : sum == 0 ? 0 : ranked / (static_cast<double>(p.size()) * sum);
}

void check_options(const char* op, const DeadKeyOptions& options) {
  const auto check = [&](const char* key, double value) {
    if (value > 0 && std::isfinite(value)) return;
    throw ValueError(fmt::format("[{}] {} must be positive and finite: got {}", op, key, value));
  };
  check("samples", options.samples);
  check("threshold", options.threshold);
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// sqrt(sum x^2), scaled by the largest |x|.
template <class Visible>
double norm_of(Row x, Visible visible) {
  double largest = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (visible(j) && !(std::abs(x[j]) <= largest)) largest = std::abs(x[j]);
    if (std::isnan(largest)) return largest;
  }
  if (largest == 0 || std::isinf(largest)) return largest;
  double sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (visible(j)) sum += (x[j] / largest) * (x[j] / largest);
  }
  return largest * std::sqrt(sum);
}

bool every_key(std::size_t) { return true; }

}  // namespace

Tensor entropy(const Tensor& weights) {
  return detail::map_rows(weight_rows("entropy", weights), 8,
                          [](Row p, std::int64_t) { return entropy_of(p); });
}

Tensor effective_keys(const Tensor& weights) {
  return detail::map_rows(weight_rows("effective_keys", weights), 1, [](Row p, std::int64_t) {
    double sum = 0;
    for (const double x : p) sum += x * x;
    return sum == 0 ? 0 : 1 / sum;
  });
}

Tensor max_weight(const Tensor& weights) {
  return detail::map_rows(weight_rows("max_weight", weights), 1, [](Row p, std::int64_t) {
    double largest = 0;
    for (const double x : p) {
      if (!(x <= largest)) largest = x;
      if (std::isnan(x)) break;
    }
    return largest;
  });
}

Tensor gini(const Tensor& weights, const Mask& mask) {
  const Rows rows = weight_rows("gini", weights);
  const detail::VisibleRows visible(mask, rows.shape());
  return detail::map_rows(rows, 16, [&](Row p, std::int64_t row) {
    std::vector<double> seen;
    for (std::size_t j = 0; j < p.size(); ++j) {
      if (visible(row, j)) seen.push_back(p[j]);
    }
    return gini_of(std::move(seen));
  });
}

Tensor softmax_jacobian(const Tensor& weights) {
  const Rows rows = weight_rows("softmax_jacobian", weights);
  const std::int64_t m = rows.width();
  Tensor y = detail::make_tensor(rows.shape().inserted(-1, m), DType::float64);
  double* into = detail::fresh_numbers<double>(y);
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    const Distribution d(rows[row]);
    for (std::size_t i = 0; i < d.p.size(); ++i) {
      for (std::size_t j = 0; j < d.p.size(); ++j) {
        *into++ = i == j ? d.p[i] * d.others(i) : -d.p[i] * d.p[j];
      }
    }
  }
  return y;
}

Tensor jacobian_frobenius_norm(const Tensor& weights) {
  return detail::map_rows(weight_rows("jacobian_frobenius_norm", weights), 4,
                          [](Row p, std::int64_t) { return frobenius(p); });
}

Tensor jacobian_spectral_norm(const Tensor& weights) {
  return detail::map_rows(weight_rows("jacobian_spectral_norm", weights), 100,
                          [](Row p, std::int64_t) { return spectral(p); });
}

Tensor row_gradient_norm(const Tensor& gscores) {
  return detail::map_rows(Rows("row_gradient_norm", "gscores", gscores), 2,
                          [](Row g, std::int64_t) { return norm_of(g, every_key); });
}

Tensor keys_carrying_gradient(const Tensor& gscores) {
  return detail::map_rows(Rows("keys_carrying_gradient", "gscores", gscores), 2,
                          [](Row g, std::int64_t) {
                            double norm = norm_of(g, every_key);
                            if (norm == 0) return norm;
                            double sum = 0;
                            for (const double x : g) sum += std::abs(x) / norm;
                            return sum * sum;
                          });
}

double dead_keys(const Tensor& gscores, const DeadKeyOptions& options) {
  const Rows rows("dead_keys", "gscores", gscores);
  check_options("dead_keys", options);
  const detail::VisibleRows visible(options.mask, rows.shape());
  std::int64_t pairs = 0;
  std::int64_t dead = 0;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    const Row g = rows[row];
    for (std::size_t j = 0; j < g.size(); ++j) {
      if (!visible(row, j)) continue;
      ++pairs;
      dead += std::abs(g[j]) * options.samples < options.threshold;
    }
  }
  return share(dead, pairs);
}

double dead_keys_relative(const Tensor& gscores, const Tensor& gweights,
                          const DeadKeyOptions& options) {
  const Rows rows("dead_keys_relative", "gscores", gscores);
  const Rows upstream("dead_keys_relative", "gweights", gweights);
  if (rows.shape() != upstream.shape()) {
    throw ShapeError(
        fmt::format("[dead_keys_relative] shapes must be equal: gscores is {}, gweights is {}",
                    to_string(rows.shape()), to_string(upstream.shape())));
  }
  check_options("dead_keys_relative", options);
  const detail::VisibleRows visible(options.mask, rows.shape());
  std::int64_t pairs = 0;
  std::int64_t dead = 0;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    const Row g = rows[row];
    const double norm = norm_of(upstream[row], [&](std::size_t j) { return visible(row, j); });
    if (norm == 0) continue;
    for (std::size_t j = 0; j < g.size(); ++j) {
      if (!visible(row, j)) continue;
      ++pairs;
      dead += std::abs(g[j]) < options.threshold * norm;
    }
  }
  return share(dead, pairs);
}

double starved_rows(const Tensor& gscores, const DeadKeyOptions& options) {
  const Rows rows("starved_rows", "gscores", gscores);
  check_options("starved_rows", options);
  const detail::VisibleRows visible(options.mask, rows.shape());
  std::int64_t seeing = 0;
  std::int64_t starved = 0;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    std::int64_t keys = 0;
    const double norm = norm_of(rows[row], [&](std::size_t j) { return visible(row, j); });
    for (std::size_t j = 0; j < rows[row].size(); ++j) keys += visible(row, j);
    if (keys < 2) continue;
    ++seeing;
    starved += norm * options.samples < options.threshold;
  }
  return share(starved, seeing);
}

Summary summarize(const Tensor& values) {
  detail::check_float("summarize", "values", values);
  std::vector<double> x = values.to_vector();
  if (x.empty()) {
    throw ValueError(
        fmt::format("[summarize] needs numbers: values is {}", to_string(values.shape())));
  }
  if (std::any_of(x.begin(), x.end(), [](double v) { return std::isnan(v); })) {
    return {kNaN, kNaN, kNaN, kNaN};
  }
  std::sort(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += v;
  const std::size_t half = x.size() / 2;
  const double median = x.size() % 2 ? x[half] : std::midpoint(x[half - 1], x[half]);
  return {sum / static_cast<double>(x.size()), median, x.front(), x.back()};
}

}  // namespace softtape
