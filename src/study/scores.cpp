// Score statistics, and the audit of the scale.
#include "softtape/study/scores.hpp"

#include <cmath>
#include <limits>

#include "study/rows.hpp"

namespace softtape {

namespace {

using detail::Rows;
constexpr double kHidden = -std::numeric_limits<double>::infinity();
// Factors closer than this are one and the same; float32 scores still meet it.
constexpr double kSameFactor = 1e-3;

bool same(double a, double b) { return std::abs(a - b) <= kSameFactor * std::abs(b); }

// A row's numbers about their mean, in two passes.
struct Spread {
  double mean = 0;
  double squares = 0;
};
Spread spread_of(const std::vector<double>& x) {
  Spread result;
  if (x.empty()) return result;
  for (const double value : x) result.mean += value;
  result.mean /= static_cast<double>(x.size());
  for (const double value : x) result.squares += (value - result.mean) * (value - result.mean);
  return result;
}

void check_sizes(const ScaleAuditOptions& options) {
  if (options.dk < 1) {
    throw ValueError(
        fmt::format("[scale_audit] dk, the width of a key, must be 1 or more: got {}", options.dk));
  }
  if (options.d_model < 0) {
    throw ValueError(
        fmt::format("[scale_audit] d_model must not be negative: got {}", options.d_model));
  }
}

// The readings of a factor, in the order in which they are likely.
std::vector<std::string> readings(double factor, const Shape& shape,
                                  const ScaleAuditOptions& options) {
  const auto dk = static_cast<double>(options.dk);
  const auto d = static_cast<double>(options.d_model);
  const int rank = shape.rank();
  const std::int64_t m = shape.dim(-1);
  const std::int64_t n = rank > 1 ? shape.dim(-2) : 0;
  std::vector<std::string> found;
  const auto read = [&](double candidate, const std::string& words) {
    if (std::isfinite(candidate) && same(factor, candidate)) found.push_back(words);
  };
  read(1, "not scaled: scores are q.k as it is");
  read(1 / dk, fmt::format("scaled twice: the factor is 1/dk = 1/{} (meant so in muP: "
                           "Scale::inv_dk())",
                           options.dk));
  read(std::sqrt(dk),
       fmt::format("multiplied by sqrt(dk) = sqrt({}) instead of divided by it", options.dk));
  if (d > 0 && options.d_model != options.dk) {
    read(1 / std::sqrt(d), fmt::format("divided by sqrt(d_model) = sqrt({}) instead of sqrt(dk) = "
                                       "sqrt({})",
                                       options.d_model, options.dk));
    read(1 / d, fmt::format("divided by d_model = {} instead of sqrt(dk) = sqrt({})",
                            options.d_model, options.dk));
    read(1 / std::sqrt(d * dk), fmt::format("scaled twice: by 1/sqrt(d_model) = 1/sqrt({}) and "
                                            "1/sqrt(dk) = 1/sqrt({})",
                                            options.d_model, options.dk));
  }
  if (m != 1) {
    read(1 / std::sqrt(static_cast<double>(m)),
         fmt::format("wrong axis: divided by the root of the number of keys, {}, instead of their "
                     "width, {}",
                     m, options.dk));
  }
  if (n > 1) {
    read(1 / std::sqrt(static_cast<double>(n)),
         fmt::format("wrong axis: divided by the root of the number of queries, {}, instead of "
                     "the width of a key, {}",
                     n, options.dk));
  }
  read(1 / std::sqrt(std::sqrt(dk)),
       fmt::format("scaled by dk^(-1/4) = {}^(-1/4): of queries and keys only one was scaled by "
                   "it, or the root was taken twice",
                   options.dk));
  if (found.empty()) found.push_back("a factor of its own");
  return found;
}

// Whether all rows (last axis) or all columns of weights sum to 1.
std::pair<bool, bool> sums_to_one(const Tensor& weights) {
  const Rows rows("scale_audit", "weights", weights);
  const std::int64_t m = rows.width();
  const std::int64_t n = weights.rank() > 1 ? weights.dim(-2) : 1;
  const auto is_one = [](double sum) { return std::abs(sum - 1) < 1e-3; };
  bool by_rows = true;
  bool by_columns = n > 0 && m > 0;
  std::vector<double> columns(static_cast<std::size_t>(m));
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < columns.size(); ++j) {
      sum += rows[row][j];
      columns[j] += rows[row][j];
    }
    by_rows &= is_one(sum) || sum == 0;  // a row that sees nothing
    if ((row + 1) % n != 0) continue;
    for (double& column : columns) {
      by_columns &= is_one(column);
      column = 0;
    }
  }
  return {by_rows, by_columns};
}

}  // namespace

double saturation_boundary(double keys) { return keys > 1 ? std::sqrt(2 * std::log(keys)) : 0; }

double predicted_score_std(const Scale& scale, std::int64_t dk) {
  if (dk < 1) {
    throw ValueError(fmt::format("[predicted_score_std] dk must be 1 or more: got {}", dk));
  }
  return std::abs(scale.factor(dk)) * std::sqrt(static_cast<double>(dk));
}

ScoreStatistics score_statistics(const Tensor& scores, const Mask& mask) {
  const Rows rows("score_statistics", "scores", scores);
  const detail::VisibleRows visible(mask, rows.shape());
  ScoreStatistics result;
  std::vector<double> all;
  std::int64_t seeing = 0;
  std::int64_t freedom = 0;
  double squares = 0;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    std::vector<double> seen;
    for (std::size_t j = 0; j < rows[row].size(); ++j) {
      if (visible(row, j) && rows[row][j] != kHidden) seen.push_back(rows[row][j]);
    }
    if (seen.empty()) continue;
    ++seeing;
    freedom += static_cast<std::int64_t>(seen.size()) - 1;
    squares += spread_of(seen).squares;
    all.insert(all.end(), seen.begin(), seen.end());
  }
  const Spread total = spread_of(all);
  result.count = static_cast<std::int64_t>(all.size());
  result.mean = total.mean;
  if (seeing > 0) result.keys = static_cast<double>(all.size()) / static_cast<double>(seeing);
  if (all.size() > 1) result.std = std::sqrt(total.squares / static_cast<double>(all.size() - 1));
  if (freedom > 0) result.row_std = std::sqrt(squares / static_cast<double>(freedom));
  result.boundary = saturation_boundary(result.keys);
  return result;
}

std::string to_string(const ScoreStatistics& s) {
  return fmt::format(
      "scores: {} visible, {:.4g} a row, mean {:.4g}, standard deviation {:.4g} ({:.4g} within "
      "rows); {} sqrt(2 ln {:.4g}) = {:.4g}: {}",
      s.count, s.keys, s.mean, s.std, s.row_std, s.saturated() ? "beyond" : "within", s.keys,
      s.boundary, s.saturated() ? "saturated" : "soft");
}

ScaleAudit scale_audit(const Tensor& raw_scores, const Tensor& scores,
                       const ScaleAuditOptions& options) {
  const Rows raw("scale_audit", "raw_scores", raw_scores);
  const Rows scaled("scale_audit", "scores", scores);
  if (raw.shape() != scaled.shape()) {
    throw ShapeError(
        fmt::format("[scale_audit] shapes must be equal: raw_scores is {}, scores is "
                    "{}",
                    to_string(raw.shape()), to_string(scaled.shape())));
  }
  check_sizes(options);
  double raw_raw = 0;
  double raw_scaled = 0;
  double scaled_scaled = 0;
  for (std::size_t i = 0; i < raw.all().size(); ++i) {
    const double x = raw.all()[i];
    const double y = scaled.all()[i];
    if (y == kHidden || !std::isfinite(x)) continue;
    raw_raw += x * x;
    raw_scaled += x * y;
    scaled_scaled += y * y;
  }
  if (raw_raw == 0) {
    throw ValueError(
        fmt::format("[scale_audit] needs a visible raw score that is not 0: raw_scores is {}",
                    to_string(raw.shape())));
  }
  ScaleAudit audit;
  audit.factor = raw_scaled / raw_raw;
  audit.expected = 1 / std::sqrt(static_cast<double>(options.dk));
  for (std::size_t i = 0; i < raw.all().size(); ++i) {
    const double x = raw.all()[i];
    const double y = scaled.all()[i];
    if (y == kHidden || !std::isfinite(x)) continue;
    const double off = y - audit.factor * x;
    audit.residual += off * off;
  }
  if (scaled_scaled > 0) audit.residual = std::sqrt(audit.residual / scaled_scaled);
  audit.right = same(audit.factor, audit.expected);
  if (!audit.right) audit.mistakes = readings(audit.factor, raw.shape(), options);
  return audit;
}

ScaleAudit scale_audit(const Attention& attended, const ScaleAuditOptions& options) {
  for (const auto& [name, tensor] :
       {std::pair{"raw_scores", &attended.raw_scores}, std::pair{"scores", &attended.scores},
        std::pair{"weights", &attended.weights}}) {
    if (tensor->defined()) continue;
    throw GraphError(fmt::format(
        "[scale_audit] attention must keep its weights and scores: {} is undefined; pass "
        "{{.need_weights = true}}, or call the layer's attend",
        name));
  }
  ScaleAudit audit = scale_audit(attended.raw_scores, attended.scores, options);
  const auto [by_rows, by_columns] = sums_to_one(attended.weights);
  if (!by_rows && by_columns) {
    audit.right = false;
    audit.mistakes.push_back(
        "wrong axis: weights sum to 1 over the queries of a key; softmax goes along the last axis");
  }
  return audit;
}

std::string to_string(const ScaleAudit& audit) {
  std::string text =
      fmt::format("scale_audit: {}: scores are {:.6g} times q.k, 1/sqrt(dk) is {:.6g}",
                  audit.right ? "right" : "WRONG", audit.factor, audit.expected);
  for (const std::string& mistake : audit.mistakes) text += "\n  " + mistake;
  if (audit.residual > kSameFactor) {
    text += fmt::format(
        "\n  a bias or a soft cap lies between: {:.3g} of the scores is no multiple "
        "of q.k",
        audit.residual);
  }
  return text;
}

}  // namespace softtape
