// Sampling: the softmax of one row, in double.
#include "softtape/nn/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_options(const LogitsFunction& logits, const std::vector<std::int64_t>& prompt,
                   const GenerateOptions& o) {
  if (!logits) throw ValueError("[generate] the logits function is empty");
  if (prompt.empty()) throw ValueError("[generate] a prompt needs at least one token");
  if (o.tokens < 0 || o.top_k < 0 || o.context < 0) {
    throw ValueError(
        fmt::format("[generate] tokens, top_k and context must not be negative: got {}, {}, {}",
                    o.tokens, o.top_k, o.context));
  }
  if (!std::isfinite(o.temperature) || o.temperature < 0) {
    throw ValueError(fmt::format("[generate] temperature must be finite and not negative: got {}",
                                 o.temperature));
  }
}

// The logits of the last token, one per id.
std::vector<double> last_row(const Tensor& logits) {
  detail::check_float("generate", "logits", logits);
  if (logits.rank() == 0 || logits.numel() == 0) {
    throw ShapeError(fmt::format("[generate] logits must be (..., n, vocab): got {}",
                                 to_string(logits.shape())));
  }
  const std::vector<double> all = logits.to_vector();
  std::vector<double> row(all.end() - logits.dim(-1), all.end());
  const double top = *std::max_element(row.begin(), row.end());
  const bool any_nan = std::any_of(row.begin(), row.end(), [](double z) { return std::isnan(z); });
  if (any_nan || !std::isfinite(top)) {
    throw ValueError("[generate] logits hold NaN, +Inf or nothing but -Inf: the model diverged");
  }
  return row;
}

// Ids, likeliest first, the smaller one first among equals.
std::vector<std::int64_t> ranked(const std::vector<double>& row) {
  std::vector<std::int64_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) {
    return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
  });
  return ids;
}

std::int64_t draw(const std::vector<double>& row, const GenerateOptions& o, Rng& rng) {
  std::vector<std::int64_t> ids = ranked(row);
  if (o.temperature == 0) return ids.front();
  if (o.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(o.top_k)));
  const double top = row[static_cast<std::size_t>(ids.front())];
  std::vector<double> below(ids.size());  // cumulative weights
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double z = row[static_cast<std::size_t>(ids[i])];
    total += z == -kInf ? 0 : std::exp((z - top) / o.temperature);
    below[i] = total;
  }
  const auto chosen = std::upper_bound(below.begin(), below.end(), rng.random() * total);
  // A product that rounds up to the total takes the last id that has any weight.
  return chosen == below.end()
             ? ids[static_cast<std::size_t>(std::lower_bound(below.begin(), below.end(), total) -
                                            below.begin())]
             : ids[static_cast<std::size_t>(chosen - below.begin())];
}

}  // namespace

std::vector<std::int64_t> generate(const LogitsFunction& logits, std::vector<std::int64_t> prompt,
                                   const GenerateOptions& options, Rng& rng) {
  check_options(logits, prompt, options);
  const NoGrad guard;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    const std::int64_t seen = options.context ? std::min(options.context, length) : length;
    const std::vector<std::int64_t> ids(prompt.end() - seen, prompt.end());
    prompt.push_back(draw(last_row(logits(tensor(ids, {1, seen}))), options, rng));
  }
  return prompt;
}

}  // namespace softtape
