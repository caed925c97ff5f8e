// Three programs that must be as short as they are here.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <softtape/softtape.hpp>
#include <string>

#include "support/leak_guard.hpp"
#include "train/support.hpp"

using namespace softtape;

TEST_CASE("program: train a causal head on real text and print what starves") {
  const test_support::LeakGuard leaks;
  const std::string path = "../README.md";
  std::string printed;

  Rng rng(0);
  auto text = CharText::from_file(path, {.context = 32});
  Embedding tokens(text.vocab(), 64, rng);
  SelfAttention head(64, 64, 64, {.scale = Scale::none(), .mask = Mask::causal()}, rng);
  Linear unembed(64, text.vocab(), rng);
  Adam optimizer(parameters(tokens, head, unembed), {.lr = 3e-3});
  double first = 0, last = 0;
  for (int step = 0; step < 120; ++step) {
    auto [x, y] = text.batch(16, rng);
    auto attended = head.attend(tokens(x));
    Tensor loss = cross_entropy(unembed(attended.output), y);
    if (step % 100 == 0) printed += fmt::format("{}\n", starvation(loss, attended));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item();
  }

  CHECK(first > std::log(static_cast<double>(text.vocab())) - 0.2);  // it begins by guessing
  CHECK(last < first - 1);
  CHECK(test_support::contains(printed, "dead"));
}

TEST_CASE("program: gradients of weights and scores") {
  Rng rng(1);
  const Tensor q = randn(rng, {4, 8}).requires_grad_();
  const Tensor k = randn(rng, {4, 8}), v = randn(rng, {4, 8}), target = randn(rng, {4, 8});

  auto a = scaled_dot_product_attention(q, k, v, {.mask = Mask::causal()});
  auto g = grad(mse_loss(a.output, target), {a.weights, a.scores});

  REQUIRE(g.size() == 2);
  CHECK(g[0].shape() == Shape{4, 4});
  CHECK(max(abs(triu(g[1], 1))).item() == 0);    // hidden scores have no gradient
  CHECK(max(abs(sum(g[1], -1))).item() < 1e-6);  // and a row of them sums to 0
}

namespace {

const OpInfo kCube{"cube", [](Vjp& r) { r.set(0, chain_mul(r.gy(), mul(3, square(r.x(0))))); },
                   saves_inputs};

Tensor cube(const Tensor& x) {
  Tensor y = empty_like(x);
  visit_float(x.dtype(), "cube", [&](auto zero) {
    const auto from = x.data<decltype(zero)>();
    const auto into = y.mutable_data<decltype(zero)>();
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = from[i] * from[i] * from[i];
  });
  return record(kCube, y, {x});
}

}  // namespace

TEST_CASE("program: an op of one's own, checked to second order") {
  const Tensor x = tensor({1.0, -2.0}, {.dtype = DType::float64});
  const auto report = gradcheck(cube, {x}, {.order = 2});
  CHECK_MESSAGE(report.passed, fmt::format("{}", report));
}
