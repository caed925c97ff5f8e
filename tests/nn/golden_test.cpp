// Layers against PyTorch, forward and backward, and a training run step for step.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "golden/charlm_golden.hpp"
#include "golden/nn_golden.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/embedding.hpp"
#include "softtape/nn/norm.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/nn/transformer_block.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/optim/adam.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

namespace {

Tensor drawn(Rng& rng, const Shape& shape, double std = 0.5) {
  return normal(rng, 0, std, shape, {.dtype = DType::float64});
}

void draw_parameters(const State& parameters, Rng& rng, double std) {
  const NoGrad guard;
  for (auto [name, parameter] : parameters) parameter.copy_(drawn(rng, parameter.shape(), std));
}

void check(const std::vector<double>& want, const Tensor& got) {
  CHECK_NUMBERS(got, tensor(want, got.shape()), 1e-11, 1e-13);
}

// Weights, x and the upstream gradient come from the stream that the script drew from.
void check_layer(const std::string& name, const Module& module,
                 const std::function<Tensor(const Tensor&)>& layer, const Shape& shape) {
  for (const auto& golden : golden::nn::layers) {
    if (golden.name != name) continue;
    CAPTURE(name);
    Rng rng(golden.seed);
    draw_parameters(module.named_parameters(), rng, 0.5);
    Tensor x = drawn(rng, shape);
    x.requires_grad_();
    const Tensor y = layer(x);
    check(golden.y, y);
    y.backward({.gradient = drawn(rng, y.shape())});
    check(golden.gx, x.grad());
    const State parameters = module.named_parameters();
    REQUIRE(parameters.size() == golden.gradients.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(parameters[i].first);
      check(golden.gradients[i], parameters[i].second.grad());
    }
    return;
  }
  FAIL("no golden numbers for ", name);
}

void check_layer(const std::string& name, const Layer& layer, const Shape& shape) {
  check_layer(
      name, layer, [&](const Tensor& x) { return layer(x); }, shape);
}

}  // namespace

TEST_CASE("golden: layers equal PyTorch's, forward and backward") {
  const DefaultDtype guard(DType::float64);
  Rng rng(0);
  const Mask causal = Mask::causal();
  check_layer("linear", Linear(3, 2, rng), {2, 2, 3});
  check_layer("layer_norm", LayerNorm(4), {2, 3, 4});
  check_layer("mlp", Mlp(3, 5, rng), {2, 3});
  check_layer("self", MultiHeadAttention(4, 2, {.mask = causal}, rng), {2, 3, 4});
  const MultiHeadAttention cross(4, 2, rng);
  Rng other(77);
  const Tensor memory = drawn(other, {2, 5, 4});
  check_layer("cross", cross, [&](const Tensor& x) { return cross(x, memory); }, {2, 3, 4});
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::post}) {
    check_layer(
        placement == NormPlacement::pre ? "pre" : "post",
        TransformerBlock(
            4, 2, {.attention = {.mask = causal}, .mlp_width = 6, .placement = placement}, rng),
        {2, 3, 4});
  }
}

TEST_CASE("golden: the loss curve of a 2-layer character model equals PyTorch's") {
  const test_support::LeakGuard leaks;
  const DefaultDtype guard(DType::float64);
  constexpr std::int64_t kVocab = 11, kWidth = 8, kContext = 6, kBatch = 4;
  Rng start(0);
  const TransformerBlockOptions causal{.attention = {.mask = Mask::causal()}};
  Embedding tokens(kVocab, kWidth, start);
  LearnedPositions positions(kContext, kWidth, start);
  TransformerBlock first(kWidth, 2, causal, start), second(kWidth, 2, causal, start);
  LayerNorm norm(kWidth);
  Linear unembed(kWidth, kVocab, start);
  const State all = parameters(tokens, positions, first, second, norm, unembed);
  AdamW optimizer(all, {.lr = 1e-2, .weight_decay = 0.1});

  Rng rng(2024);
  const auto text = randint(rng, 0, kVocab, {200}).to_vector<std::int64_t>();
  draw_parameters(all, rng, 0.3);
  for (const double want : golden::charlm::losses) {
    std::vector<std::int64_t> x, y;
    for (const auto at : randint(rng, 0, 200 - kContext, {kBatch}).to_vector<std::int64_t>()) {
      x.insert(x.end(), text.begin() + at, text.begin() + at + kContext);
      y.insert(y.end(), text.begin() + at + 1, text.begin() + at + kContext + 1);
    }
    const Tensor h = positions(tokens(tensor(x, {kBatch, kContext})));
    const Tensor loss =
        cross_entropy(unembed(norm(second(first(h)))), tensor(y, {kBatch, kContext}));
    CHECK(loss.item() == doctest::Approx(want).epsilon(1e-10));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
