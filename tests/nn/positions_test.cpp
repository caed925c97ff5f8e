// Positions: the sinusoidal table, learned rows, ALiBi's slopes, and what rope keeps.
#include "softtape/nn/positions.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/rope.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

TEST_CASE("sinusoidal: an odd width leaves out the last cosine") {
  const DefaultDtype guard(DType::float64);
  const Tensor table = sinusoidal_positions(4, 5);
  CHECK(table.shape() == Shape{4, 5});
  CHECK_NUMBERS(table[3],
                {0.1411200080598672, -0.9899924966004454, 0.07528529299888896, 0.997162035307237,
                 0.001892870903091888},
                1e-12, 1e-14);
  CHECK_NUMBERS(table[0], {0, 1, 0, 1, 0});
  CHECK_NUMBERS(sinusoidal_positions(2, 1), {{0}, {std::sin(1.0)}});
  CHECK(sinusoidal_positions(0, 4).shape() == Shape{0, 4});
  CHECK_THROWS_SAYING(ValueError, "sinusoidal_positions", "d must be at least 1",
                      sinusoidal_positions(3, 0));
  CHECK_THROWS_SAYING(ValueError, "sinusoidal_positions", "got -1", sinusoidal_positions(-1, 4));
  CHECK_THROWS_SAYING(ValueError, "sinusoidal_positions", "base", sinusoidal_positions(3, 4, 0));
}

TEST_CASE("position layers add their first rows") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  const SinusoidalPositions fixed(6, 4);
  LearnedPositions learned(6, 4, rng);
  const Tensor x = ones({2, 3, 4});
  CHECK(equal(fixed(x), add(x, sinusoidal_positions(3, 4))));
  CHECK(equal(learned(x), add(x, slice(learned.weight, 0, 0, 3))));
  CHECK(equal(learned(ones({6, 4})), add(1, learned.weight)));
  CHECK(fixed.named_parameters().empty());
  CHECK(fixed.state().size() == 1);
  CHECK(learned.weight.requires_grad());
  for (const Shape& bad : {Shape{7, 4}, Shape{3, 5}, Shape{4}}) {
    CHECK_THROWS_SAYING(ShapeError, "SinusoidalPositions", to_string(bad), fixed(ones(bad)));
    CHECK_THROWS_SAYING(ShapeError, "LearnedPositions", to_string(bad), learned(ones(bad)));
  }
  CHECK_THROWS_SAYING(ValueError, "SinusoidalPositions", "context", SinusoidalPositions(0, 4));
  CHECK_THROWS_SAYING(ValueError, "LearnedPositions", "context", LearnedPositions(0, 4, rng));
  CHECK_THROWS_SAYING(ValueError, "LearnedPositions", "d must", LearnedPositions(4, 0, rng));
}

TEST_CASE("alibi: slopes for powers of two and between") {
  CHECK(alibi_slopes(1) == std::vector<double>{1.0 / 256});
  CHECK(alibi_slopes(8) ==
        std::vector<double>{0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256});
  // Those of 2 heads, then the first of 4.
  CHECK(alibi_slopes(3) == std::vector<double>{1.0 / 16, 1.0 / 256, 0.25});
  CHECK_THROWS_SAYING(ValueError, "alibi_slopes", "at least 1", alibi_slopes(0));
}

TEST_CASE("alibi: distances, with the last query at the last key") {
  const DefaultDtype guard(DType::float64);
  CHECK_NUMBERS(mul(alibi_bias(0, 2, 3), 256), {{-1, 0, -1}, {-2, -1, 0}});
  const Tensor bias = alibi_bias(2, 2, 2);
  CHECK_NUMBERS(bias, {{{0, -1.0 / 16}, {-1.0 / 16, 0}}, {{0, -1.0 / 256}, {-1.0 / 256, 0}}});
  CHECK(alibi_bias(2, 0, 3).shape() == Shape{2, 0, 3});
  CHECK_THROWS_SAYING(ValueError, "alibi_bias", "negative", alibi_bias(-1, 2, 2));
  CHECK_THROWS_SAYING(ValueError, "alibi_bias", "negative", alibi_bias(1, 2, -2));
}

TEST_CASE("rope: products depend on distance alone") {
  Rng rng(1);
  const TensorOptions kDouble{.dtype = DType::float64};
  const Tensor q = broadcast_to(randn(rng, {1, 6}, kDouble), {5, 6});
  const Tensor k = broadcast_to(randn(rng, {1, 6}, kDouble), {5, 6});
  const Tensor scores = matmul(rope(q), rope(k), {.transpose_b = true});
  for (std::int64_t i = 1; i < 5; ++i) {
    for (std::int64_t j = 1; j < 5; ++j) {
      CHECK(scores[i][j].item() == doctest::Approx(scores[i - 1][j - 1].item()).epsilon(1e-12));
    }
  }
  CHECK(scores[0][1].item() != doctest::Approx(scores[0][2].item()));
  CHECK_NUMBERS(rope(rope(q), {.inverse = true}), q, 1e-14, 1e-15);
  CHECK_NUMBERS(rope(q, {.offset = 2})[0], rope(q)[2]);
}
