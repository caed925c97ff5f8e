// The edges of the random generator: the largest and the smallest raw words, draws on a border of
// probabilities, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "softtape/base/error.hpp"
#include "softtape/base/random.hpp"

namespace softtape {
namespace {

/// A generator whose next raw word is rotr(high ^ low, high >> 58): from state 0 the increment is
/// what a step leaves behind.
Rng with_increment(std::uint64_t high, std::uint64_t low) {
  RngState state;
  state.inc_high = high;
  state.inc_low = low;
  Rng rng(0);
  rng.set_state(state);
  return rng;
}

/// All 64 bits of the next raw word are ones.
Rng with_largest_word() { return with_increment(0, ~std::uint64_t{0}); }

TEST_CASE("random: a draw on a border of probabilities belongs to the value above it") {
  const auto choose = [](Rng rng, std::vector<double> p) {
    const auto n = static_cast<std::int64_t>(p.size());
    return rng.choice(n, 1, {.p = std::move(p)})[0];
  };
  const Rng zero = with_increment(1, 1), half = with_increment(1, (std::uint64_t{1} << 63) | 1);
  REQUIRE(Rng(zero).random() == 0);
  CHECK(choose(zero, {0, 0, 1}) == 2);  // never a value of probability 0
  CHECK(choose(zero, {0.25, 0.75}) == 0);
  REQUIRE(Rng(half).random() == 0.5);
  CHECK(choose(half, {0.5, 0.5}) == 1);
  CHECK(choose(half, {0.5, 0, 0.5}) == 2);
  CHECK(choose(with_largest_word(), {0.5, 0.5, 0}) == 1);
}

TEST_CASE("random: the largest raw word stays below 1 in double and float") {
  REQUIRE(with_largest_word().next_uint64() == ~std::uint64_t{0});
  CHECK(with_largest_word().random() == 0.9999999999999999);
  CHECK(with_largest_word().uniform(0, 1) == 0.9999999999999999);
  std::vector<float> floats(2);
  with_largest_word().random(floats);
  CHECK(floats == std::vector<float>{0x1.fffffep-1f, 0x1.fffffep-1f});
  const auto uniform = [](double low, double high) {
    float x = 0;
    with_largest_word().uniform(std::span<float>(&x, 1), low, high);
    return x;
  };
  CHECK(uniform(0, 1) == 0x1.fffffep-1f);
  CHECK(uniform(-2, 3) == std::nextafter(3.0f, 0.0f));
  CHECK(uniform(-3, -2) == std::nextafter(-2.0f, -3.0f));
  CHECK(uniform(-1, 0) < 0);
  CHECK(static_cast<double>(uniform(0, 0.1)) < 0.1);
  CHECK(uniform(2, 2) == 2);
}

TEST_CASE("random: ten million draws lie in [0, 1)") {
  Rng rng(123);
  std::vector<double> doubles(100000);
  std::vector<float> floats(100000), rounded(100000);
  for (int block = 0; block < 100; ++block) {
    rng.random(doubles);
    rng.random(floats);
    rng.uniform(rounded, 0, 1);
    const auto outside = [](auto x) { return !(x >= 0 && x < 1); };
    REQUIRE(std::none_of(doubles.begin(), doubles.end(), outside));
    REQUIRE(std::none_of(floats.begin(), floats.end(), outside));
    REQUIRE(std::none_of(rounded.begin(), rounded.end(), outside));
  }
}

TEST_CASE("random: what cannot be drawn is refused, and the generator stays as it was") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Rng rng(1);
  std::vector<double> d(3);
  std::vector<float> f(3);
  std::vector<std::int64_t> i(3);
  rng.integers(0, 5);  // leaves half a word waiting
  const RngState before = rng.state();

  const auto refuses = [&](const std::string& message, const std::function<void()>& call) {
    CAPTURE(message);
    try {
      call();
      FAIL_CHECK("was accepted");
    } catch (const ValueError& error) {
      CHECK(std::string(error.what()).find(message) == 0);
    }
    CHECK(rng.state() == before);
  };
  const std::string empty = "[Rng::integers] low must be less than high: low = ";
  refuses(empty + "5, high = 5; {.endpoint = true} includes high", [&] { rng.integers(5, 5); });
  refuses(empty + "6, high = 5", [&] { rng.integers(i, 6, 5); });
  refuses("[Rng::integers] low must not exceed high: low = 6, high = 5",
          [&] { rng.integers(6, 5, {.endpoint = true}); });
  refuses(empty, [&] { rng.integers(std::numeric_limits<std::int64_t>::max(), 0); });

  const std::string std_rule = "[Rng::normal] std must be finite and not negative: std = ";
  refuses(std_rule + "-1", [&] { rng.normal(0, -1); });
  refuses(std_rule + "inf", [&] { rng.normal(d, 0, inf); });
  refuses(std_rule + "nan", [&] { rng.normal(f, 0, nan); });

  const std::string range_rule =
      "[Rng::uniform] high - low must be finite and not negative: low = ";
  refuses(range_rule + "3, high = 1", [&] { rng.uniform(3, 1); });
  refuses(range_rule + "-1e+308, high = 1e+308", [&] { rng.uniform(d, -1e308, 1e308); });
  refuses(range_rule + "0, high = inf", [&] { rng.uniform(f, 0, inf); });
  refuses(range_rule + "nan, high = 1", [&] { rng.uniform(nan, 1); });

  refuses("[Rng::permutation] n must not be negative: n = -3", [&] { rng.permutation(-3); });
  refuses("[Rng::spawn] n must not be negative: n = -1", [&] { rng.spawn(-1); });

  refuses("[Rng::choice] n and size must not be negative: n = -1", [&] { rng.choice(-1, 0); });
  refuses("[Rng::choice] n and size must not be negative", [&] { rng.choice(3, -1); });
  refuses("[Rng::choice] there must be a value to draw from: n = 0", [&] { rng.choice(0, 1); });
  refuses("[Rng::choice] without replacement size must not exceed n: n = 3, size = 4",
          [&] { rng.choice(3, 4, {.replace = false}); });
  const auto choose = [&](std::vector<double> p, bool replace = true) {
    return [&rng, p = std::move(p), replace] { rng.choice(3, 2, {.replace = replace, .p = p}); };
  };
  refuses("[Rng::choice] p must hold one probability for each value: n = 3, p has 2",
          choose({0.5, 0.5}));
  const std::string p_rule = "[Rng::choice] probabilities must be finite and not negative: ";
  refuses(p_rule + "p[2] = -0.1", choose({0.5, 0.6, -0.1}));
  refuses(p_rule + "p[1] = nan", choose({0.5, nan, 0.5}));
  refuses(p_rule + "p[0] = inf", choose({inf, 0, 0}));
  refuses("[Rng::choice] probabilities must sum to 1: sum = 1.0000000", choose({0.5, 0.5, 2e-8}));
  refuses("[Rng::choice] probabilities must sum to 1: sum = 0", choose({0, 0, 0}));
  refuses("[Rng::choice] without replacement size must not exceed the number of probabilities",
          choose({1, 0, 0}, false));

  RngState bad = before;
  bad.inc_low += 1;
  refuses("[Rng::set_state] the increment must be odd", [&] { rng.set_state(bad); });
  for (const std::uint32_t pool_size : {0U, 3U, 65U}) {
    bad = before;
    bad.pool_size = pool_size;
    refuses("[Rng::set_state] pool_size must be from 4 to 64", [&] { rng.set_state(bad); });
  }
}

}  // namespace
}  // namespace softtape
