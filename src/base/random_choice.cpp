// Rng::choice: the draws of numpy.random.Generator.choice on the numbers 0 to n - 1, with its four
// ways (with and without replacement, equally likely or weighted) and its rules for choosing.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "softtape/base/error.hpp"
#include "softtape/base/random.hpp"

namespace softtape {
namespace {

using Values = std::vector<std::int64_t>;

void check_choice(std::int64_t n, std::int64_t size, const ChoiceOptions& options) {
  const auto require = [&](bool met, std::string_view rule) {
    if (!met) throw ValueError(fmt::format("[Rng::choice] {}: n = {}, size = {}", rule, n, size));
  };
  require(n >= 0 && size >= 0, "n and size must not be negative");
  require(n > 0 || size == 0, "there must be a value to draw from");
  require(options.replace || size <= n, "without replacement size must not exceed n");

  const std::vector<double>& p = options.p;
  if (p.empty()) return;
  if (p.size() != static_cast<std::size_t>(n)) {
    throw ValueError(fmt::format(
        "[Rng::choice] p must hold one probability for each value: n = {}, p has {}", n, p.size()));
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!(p[i] >= 0 && std::isfinite(p[i]))) {
      throw ValueError(fmt::format(
          "[Rng::choice] probabilities must be finite and not negative: p[{}] = {}", i, p[i]));
    }
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  if (!(std::abs(sum - 1) <= 0x1p-26)) {  // the square root of double's epsilon
    throw ValueError(fmt::format("[Rng::choice] probabilities must sum to 1: sum = {}", sum));
  }
  const auto possible = std::count_if(p.begin(), p.end(), [](double x) { return x > 0; });
  require(options.replace || size <= possible,
          "without replacement size must not exceed the number of probabilities above 0");
}

std::vector<double> cumulative(std::span<const double> p) {
  std::vector<double> cdf(p.size());
  std::partial_sum(p.begin(), p.end(), cdf.begin());
  const double total = cdf.back();
  for (double& x : cdf) x /= total;
  return cdf;
}

std::int64_t draw(Rng& rng, std::span<const double> cdf) {
  return std::upper_bound(cdf.begin(), cdf.end(), rng.random()) - cdf.begin();
}

Values weighted(Rng& rng, std::int64_t size, std::span<const double> p) {
  const std::vector<double> cdf = cumulative(p);
  Values values(static_cast<std::size_t>(size));
  for (std::int64_t& value : values) value = draw(rng, cdf);
  return values;
}

/// Rounds of weighted draws: a round skips what it drew before, and the next one rules it out.
Values weighted_without_replacement(Rng& rng, std::size_t size, std::vector<double> p) {
  Values values;
  while (values.size() < size) {
    const std::vector<double> cdf = cumulative(p);
    for (std::size_t draws = size - values.size(); draws > 0; --draws) {
      const std::int64_t value = draw(rng, cdf);
      double& weight = p[static_cast<std::size_t>(value)];
      if (weight > 0) values.push_back(value);
      weight = 0;
    }
  }
  return values;
}

/// Shuffles the places from `first` on, the last one first. Rng::shuffle draws by another method.
void shuffle_from(Rng& rng, Values& values, std::int64_t first) {
  for (auto i = static_cast<std::int64_t>(values.size()) - 1; i >= first; --i) {
    const std::int64_t j = rng.integers(0, i, {.endpoint = true});
    std::swap(values[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(j)]);
  }
}

/// The last `size` places of a shuffle that stops when they are settled.
Values tail_of_shuffle(Rng& rng, std::int64_t n, std::int64_t size) {
  Values values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  shuffle_from(rng, values, n - size);
  return {values.end() - size, values.end()};
}

/// Floyd's algorithm: draw from [0, last], and take `last` itself where the draw is taken already.
Values distinct(Rng& rng, std::int64_t n, std::int64_t size, bool shuffle) {
  Values values;
  std::unordered_set<std::int64_t> taken;
  for (std::int64_t last = n - size; last < n; ++last) {
    std::int64_t value = rng.integers(0, last, {.endpoint = true});
    if (taken.contains(value)) value = last;
    taken.insert(value);
    values.push_back(value);
  }
  if (shuffle) shuffle_from(rng, values, 1);
  return values;
}

}  // namespace

std::vector<std::int64_t> Rng::choice(std::int64_t n, std::int64_t size,
                                      const ChoiceOptions& options) {
  check_choice(n, size, options);
  if (size == 0) return {};
  if (!options.p.empty()) {
    if (options.replace) return weighted(*this, size, options.p);
    return weighted_without_replacement(*this, static_cast<std::size_t>(size), options.p);
  }
  if (options.replace) {
    Values values(static_cast<std::size_t>(size));
    integers(values, 0, n);
    return values;
  }
  // NumPy's bounds: a shuffle is the cheaper way to a large part of many values.
  const bool by_shuffle = n > 10000 && size > n / (options.shuffle ? 50 : 20);
  return by_shuffle ? tail_of_shuffle(*this, n, size) : distinct(*this, n, size, options.shuffle);
}

}  // namespace softtape
