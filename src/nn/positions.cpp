// Tables of positions, and the bias and slopes of ALiBi.
#include "softtape/nn/positions.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "nn/sizes.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

void append_slopes(std::vector<double>& slopes, std::int64_t power, std::int64_t first,
                   std::int64_t stride, std::int64_t count) {
  for (std::int64_t h = first; count-- > 0; h += stride) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  }
}

// The first n rows of a table (context, d), added to x (..., n, d).
Tensor add_rows(const char* layer, const Tensor& x, const Tensor& table) {
  detail::check_width(layer, x, table.dim(1));
  if (x.rank() < 2 || x.dim(-2) > table.dim(0)) {
    throw ShapeError(fmt::format("[{}] x must be (..., n, {}) with n at most {}: x is {}", layer,
                                 table.dim(1), table.dim(0), to_string(x.shape())));
  }
  const std::int64_t n = x.dim(-2);
  return add(x, n == table.dim(0) ? table : narrow(table, 0, 0, n));
}

}  // namespace

Tensor sinusoidal_positions(std::int64_t n, std::int64_t d, double base) {
  detail::check_size("sinusoidal_positions", "d", d);
  if (n < 0 || !std::isfinite(base) || base <= 0) {
    throw ValueError(fmt::format(
        "[sinusoidal_positions] n must not be negative, base positive and finite: got {} and {}", n,
        base));
  }
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(n * d));
  for (std::int64_t t = 0; t < n; ++t) {
    for (std::int64_t j = 0; j < d; ++j) {
      const double exponent = static_cast<double>(j - j % 2) / static_cast<double>(d);
      const double angle = static_cast<double>(t) * std::pow(base, -exponent);
      table.push_back(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return tensor(table, {n, d});
}

std::vector<double> alibi_slopes(std::int64_t heads) {
  detail::check_size("alibi_slopes", "heads", heads);
  const auto below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  append_slopes(slopes, below, 1, 1, below);
  append_slopes(slopes, 2 * below, 1, 2, heads - below);
  return slopes;
}

Tensor alibi_bias(std::int64_t heads, std::int64_t n, std::int64_t m) {
  if (heads < 0 || n < 0 || m < 0) {
    throw ValueError(
        fmt::format("[alibi_bias] sizes must not be negative: got {}, {}, {}", heads, n, m));
  }
  const std::vector<double> slopes = alibi_slopes(heads ? heads : 1);
  std::vector<double> bias;
  bias.reserve(slopes.size() * static_cast<std::size_t>(n * m));
  for (const double slope : slopes) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        bias.push_back(-slope * std::abs(static_cast<double>(i + m - n - j)));
      }
    }
  }
  return tensor(bias, heads ? Shape{heads, n, m} : Shape{n, m});
}

SinusoidalPositions::SinusoidalPositions(std::int64_t context, std::int64_t d) {
  detail::check_size("SinusoidalPositions", "context", context);
  table_ = sinusoidal_positions(context, d);
  register_buffer("table", table_);
}

Tensor SinusoidalPositions::operator()(TensorArg x) const {
  return hooked(add_rows("SinusoidalPositions", x, table_));
}

LearnedPositions::LearnedPositions(std::int64_t context, std::int64_t d,
                                   LearnedPositionsOptions options, Rng& rng) {
  detail::check_size("LearnedPositions", "context", context);
  detail::check_size("LearnedPositions", "d", d);
  weight = normal(rng, 0, options.std, {context, d});
  register_parameter("weight", weight);
}

Tensor LearnedPositions::operator()(TensorArg x) const {
  return hooked(add_rows("LearnedPositions", x, weight));
}

}  // namespace softtape
