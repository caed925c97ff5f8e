// generate: greedy, temperature, top-k, and what it refuses.
#include "softtape/nn/generate.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::kInf;
using test_support::kNaN;

namespace {

using Ids = std::vector<std::int64_t>;

// A model that always predicts the same row, after rows of nonsense.
LogitsFunction constant(std::vector<double> row) {
  return [row](const Tensor& ids) {
    std::vector<double> all(row.size() * static_cast<std::size_t>(ids.numel()), 1e9);
    std::copy(row.begin(), row.end(), all.end() - static_cast<std::ptrdiff_t>(row.size()));
    return tensor(all, {1, ids.dim(1), static_cast<std::int64_t>(row.size())});
  };
}

}  // namespace

TEST_CASE("generate: greedy takes the first of the likeliest and draws nothing") {
  const test_support::LeakGuard leaks;
  Rng rng(1), same(1);
  const auto model = constant({0, 2, 1, 2});
  CHECK(generate(model, {3}, {.tokens = 3, .temperature = 0}, rng) == Ids{3, 1, 1, 1});
  CHECK(rng.state() == same.state());
  CHECK(generate(model, {3, 2}, {.tokens = 0}, rng) == Ids{3, 2});
}

TEST_CASE("generate: the model sees the last tokens, without recording") {
  Rng rng(1);
  std::vector<Ids> seen;
  const Tensor weight = ones({5}, {.requires_grad = true});
  const auto model = [&](const Tensor& ids) {
    CHECK_FALSE(grad_enabled());
    CHECK(ids.dim(0) == 1);
    seen.push_back(ids.to_vector<std::int64_t>());
    std::vector<double> row(5, 0);
    row[static_cast<std::size_t>((seen.back().back() + 1) % 5)] = 1;
    return mul(to(tensor(row), DType::float32), weight);
  };
  const Ids all = generate(model, {0, 1}, {.tokens = 3, .temperature = 0, .context = 2}, rng);
  CHECK(all == Ids{0, 1, 2, 3, 4});
  CHECK(seen == std::vector<Ids>{{0, 1}, {1, 2}, {2, 3}});
  CHECK(grad_enabled());
}

TEST_CASE("generate: frequencies are those of the softmax") {
  Rng rng(1);
  const std::int64_t n = 20000;
  const auto share = [&](double temperature, std::int64_t top_k, std::int64_t id) {
    const Ids ids =
        generate(constant({std::log(1.0), std::log(4.0), -kInf, std::log(3.0)}), {0},
                 {.tokens = n, .temperature = temperature, .top_k = top_k, .context = 1}, rng);
    return static_cast<double>(std::count(ids.begin() + 1, ids.end(), id)) / static_cast<double>(n);
  };
  const auto near = [](double x) { return doctest::Approx(x).epsilon(0.05); };
  CHECK(share(1, 0, 1) == near(0.5));
  CHECK(share(1, 0, 0) == near(0.125));
  CHECK(share(1, 0, 2) == 0);
  CHECK(share(0.5, 0, 1) == near(16.0 / 26));
  CHECK(share(1, 2, 1) == near(4.0 / 7));
  CHECK(share(1, 2, 0) == 0);
  CHECK(share(1, 1, 1) == 1);
  CHECK(share(1, 100, 3) == near(0.375));
  CHECK(share(1e-300, 0, 1) == 1);
}

TEST_CASE("generate: the same seed gives the same text") {
  Rng a(5), b(5), c(6);
  const auto model = constant({0, 0.5, 1});
  const Ids first = generate(model, {0}, {.tokens = 50}, a);
  CHECK(first == generate(model, {0}, {.tokens = 50}, b));
  CHECK(first != generate(model, {0}, {.tokens = 50}, c));
}

TEST_CASE("generate: what is refused") {
  Rng rng(1);
  const auto model = constant({0, 1});
  CHECK_THROWS_SAYING(ValueError, "generate", "empty", generate(nullptr, {0}, {}, rng));
  CHECK_THROWS_SAYING(ValueError, "generate", "at least one token", generate(model, {}, {}, rng));
  CHECK_THROWS_SAYING(ValueError, "generate", "negative",
                      generate(model, {0}, {.tokens = -1}, rng));
  CHECK_THROWS_SAYING(ValueError, "generate", "negative", generate(model, {0}, {.top_k = -1}, rng));
  for (const double temperature : {-1.0, kNaN, kInf}) {
    CHECK_THROWS_SAYING(ValueError, "generate", "temperature",
                        generate(model, {0}, {.temperature = temperature}, rng));
  }
  for (const auto& row : {std::vector<double>{0, kNaN}, {kNaN, 0}, {kInf, 0}, {-kInf, -kInf}}) {
    CHECK_THROWS_SAYING(ValueError, "generate", "diverged", generate(constant(row), {0}, {}, rng));
  }
  CHECK_THROWS_SAYING(ShapeError, "generate", "(..., n, vocab)",
                      generate([](const Tensor&) { return scalar(1.0); }, {0}, {}, rng));
  CHECK_THROWS_SAYING(DtypeError, "generate", "int64",
                      generate([](const Tensor& ids) { return ids; }, {0}, {}, rng));
}
