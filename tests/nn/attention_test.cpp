// Attention layers: what they compute, options, hooks, streams, and what they refuse.
#include <doctest/doctest.h>

#include <cmath>

#include "softtape/graph/grad.hpp"
#include "softtape/nn/multi_head_attention.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/nn/self_attention.hpp"
#include "softtape/nn/transformer_block.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/rope.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"
#include "support/threads.hpp"

using namespace softtape;
using test_support::kNaN;

namespace {

// Everything in float64 here: paths are compared with each other.
struct Doubles {
  DefaultDtype guard{DType::float64};
};

}  // namespace

TEST_CASE("SelfAttention: the lesson's head") {
  const test_support::LeakGuard leaks;
  const Doubles doubles;
  Rng rng(1), same(1);
  SelfAttention head(8, 4, 3, {.mask = Mask::causal()}, rng);
  same.spawn(1);
  CHECK(test_support::same_bits(head.wq, normal(same, 0, 1 / std::sqrt(8.0), {8, 4})));
  CHECK(head.wv.shape() == Shape{8, 3});
  CHECK(head.named_parameters().size() == 3);
  CHECK(head.state().size() == 3);

  const Tensor x = randn(rng, {2, 5, 8});
  const Attention a = head.attend(x);
  CHECK(a.output.shape() == Shape{2, 5, 3});
  CHECK(a.weights.shape() == Shape{2, 5, 5});
  CHECK(a.weights[0][0][1].item() == 0);
  CHECK_NUMBERS(a.raw_scores, matmul(matmul(x, head.wq), matmul(x, head.wk), {.transpose_b = true}),
                1e-12);
  CHECK_NUMBERS(a.output, matmul(a.weights, matmul(x, head.wv)), 1e-12, 1e-15);
  CHECK_NUMBERS(head(x), a.output, 1e-12, 1e-15);
  const Tensor loss = sum(square(a.output));
  for (const Tensor& g : grad(loss, {head.wq, head.wk, head.wv, a.weights, a.scores})) {
    CHECK(max(abs(g)).item() > 0);
  }
}

TEST_CASE("SelfAttention: the mask of a call is combined with its own") {
  const Doubles doubles;
  Rng rng(1);
  SelfAttention head(4, 2, 2, {.mask = Mask::causal()}, rng);
  const Tensor x = randn(rng, {3, 4});
  const Mask first_hidden = Mask::masked_out(tensor({true, false, false}));
  const Attention a = head.attend(x, first_hidden);
  CHECK_NUMBERS(a.weights[0], {0, 0, 0});
  CHECK_NUMBERS(a.weights[1], {0, 1, 0});
  CHECK_NUMBERS(head(x, first_hidden), a.output, 1e-12);
}

TEST_CASE("SelfAttention: a learned scale and bias are parameters, a fixed bias is a buffer") {
  const Doubles doubles;
  Rng rng(1);
  const Tensor factor = scalar(0.5);
  const Tensor bias = zeros({3, 3}, {.requires_grad = true});
  SelfAttention head(4, 2, 2, {.scale = Scale::learned(factor), .bias = bias}, rng);
  const State parameters = head.named_parameters();
  REQUIRE(parameters.size() == 5);
  CHECK(parameters[0].second.is_same(factor));
  CHECK(parameters[1].second.is_same(bias));
  sum(square(head(randn(rng, {3, 4})))).backward();
  CHECK(std::abs(factor.grad().item()) > 0);
  CHECK(max(abs(bias.grad())).item() > 0);
  SelfAttention fixed(4, 2, 2, {.bias = ones({3, 3})}, rng);
  CHECK(fixed.named_parameters().size() == 3);
  CHECK(fixed.state().size() == 4);
  fixed.to(DType::float32);
  CHECK(fixed(ones({3, 4}, {.dtype = DType::float32})).dtype() == DType::float32);
}

TEST_CASE("attention layers: dropout on a single key is 0 or 1 / (1 - p)") {
  const Doubles doubles;
  Rng rng(1);
  SelfAttention head(1, 1, 1, {.dropout = 0.6}, rng);
  const Tensor x = ones({40, 1, 1});
  int kept = 0;
  for (const double weight : head.attend(x).weights.to_vector()) {
    CHECK((weight == 0 || weight == doctest::Approx(2.5).epsilon(1e-15)));
    kept += weight != 0;
  }
  CHECK(kept > 0);
  CHECK(kept < 40);
  head.eval();
  CHECK(min(head.attend(x).weights).item() == 1);
}

TEST_CASE("attention layers: a saved stream drops the same weights again") {
  const Doubles doubles;
  Rng rng(1);
  MultiHeadAttention heads(4, 2, {.dropout = 0.5}, rng);
  const Tensor x = randn(rng, {6, 4});
  heads(x);
  const State saved = heads.state();
  const Tensor next = heads(x);
  CHECK_FALSE(equal(heads(x), next));
  heads.load_state({saved.begin(), saved.begin() + 1}, false);
  CHECK(saved[0].first == "stream");
  CHECK(equal(heads(x), next));
}

TEST_CASE("attention layers: hooks see weights, also of operator()") {
  const test_support::LeakGuard leaks;
  const Doubles doubles;
  Rng rng(1);
  SelfAttention head(4, 2, 2, rng);
  const Tensor x = randn(rng, {3, 4});
  int calls = 0;
  const int number = head.register_attention_hook([&](const Module& layer, const Attention& a) {
    CHECK(&layer == &head);
    CHECK(a.weights.shape() == Shape{3, 3});
    CHECK(a.scores.defined());
    ++calls;
  });
  head(x);
  head.attend(x);
  head.remove_attention_hook(number);
  head(x);
  CHECK(calls == 2);
  head.register_forward_hook([](const Module&, const Tensor& y) { return mul(y, 2); });
  CHECK_NUMBERS(head.attend(x).output, head(x), 1e-12);
  CHECK_THROWS_SAYING(ValueError, "register_attention_hook", "empty",
                      head.register_attention_hook(nullptr));
}

TEST_CASE("attention layers: rope and alibi") {
  const Doubles doubles;
  Rng rng(1);
  const Tensor x = randn(rng, {2, 5, 8});
  MultiHeadAttention turned(8, 2, {.positions = RelativePositions::rope}, rng);
  const auto split = [](const Tensor& y) { return transpose(reshape(y, {2, 5, 2, 4}), 1, 2); };
  const Tensor q = split(rope(turned.query(x), {.heads = 2}));
  const Tensor k = split(rope(turned.key(x), {.heads = 2}));
  CHECK_NUMBERS(turned.attend(x).raw_scores, matmul(q, k, {.transpose_b = true}), 1e-12, 1e-14);

  MultiHeadAttention biased(8, 2, {.positions = RelativePositions::alibi}, rng);
  const Attention a = biased.attend(x);
  CHECK_NUMBERS(sub(a.scores, mul(a.raw_scores, 0.5)),
                broadcast_to(alibi_bias(2, 5, 5), {2, 2, 5, 5}), 1e-10, 1e-12);
  CHECK_NUMBERS(biased(x), a.output, 1e-12, 1e-14);
  SelfAttention single(8, 4, 4, {.positions = RelativePositions::alibi}, rng);
  const Attention s = single.attend(x);
  CHECK_NUMBERS(sub(s.scores, mul(s.raw_scores, 0.5)), broadcast_to(alibi_bias(0, 5, 5), {2, 5, 5}),
                1e-10, 1e-12);
}

TEST_CASE("MultiHeadAttention: shapes of self and cross attention") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  MultiHeadAttention heads(6, 3, {.dk = 4, .dv = 5, .memory_width = 7}, rng);
  const Tensor x = randn(rng, {2, 3, 6});
  const Tensor memory = randn(rng, {2, 4, 7});
  const Attention a = heads.attend(x, memory);
  CHECK(a.output.shape() == Shape{2, 3, 6});
  CHECK(a.weights.shape() == Shape{2, 3, 3, 4});
  CHECK(heads(x, memory).shape() == Shape{2, 3, 6});
  CHECK(heads.query.weight.shape() == Shape{12, 6});
  CHECK(heads.value.weight.shape() == Shape{15, 7});
  CHECK_NUMBERS(heads.out.bias, zeros({6}));
  const Tensor padded = heads(x, memory, Mask::key_padding({4, 0}));
  CHECK_NUMBERS(padded[1], zeros({3, 6}));  // nothing visible: zero output, and out.bias is 0
  CHECK_THROWS_SAYING(ShapeError, "MultiHeadAttention", "7 entries: x is (2, 3, 6)", heads(x));
  CHECK_THROWS_SAYING(ShapeError, "MultiHeadAttention", "6 entries", heads(memory, memory));
  MultiHeadAttention bare(6, 3, {.projection_bias = false}, rng);
  CHECK(bare.named_parameters().size() == 4);
}

TEST_CASE("MultiHeadAttention: invalid head counts and options") {
  Rng rng(1);
  const RngState before = rng.state();
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "heads must be at least 1: got 0",
                      MultiHeadAttention(4, 0, rng));
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "d = 4, heads = 3",
                      MultiHeadAttention(4, 3, rng));
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "d must be at least 1: got 0",
                      MultiHeadAttention(0, 1, rng));
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "heads", MultiHeadAttention(4, -2, rng));
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "dk",
                      MultiHeadAttention(4, 2, {.dk = -1}, rng));
  CHECK_THROWS_SAYING(ValueError, "MultiHeadAttention", "probability",
                      MultiHeadAttention(4, 2, {.dropout = kNaN}, rng));
  CHECK_THROWS_SAYING(ShapeError, "MultiHeadAttention", "dk must be even, got 3",
                      MultiHeadAttention(6, 2, {.positions = RelativePositions::rope}, rng));
  CHECK_THROWS_SAYING(ValueError, "SelfAttention", "soft_cap",
                      SelfAttention(4, 2, 2, {.soft_cap = -1}, rng));
  CHECK_THROWS_SAYING(ValueError, "SelfAttention", "rope_base",
                      SelfAttention(4, 2, 2, {.rope_base = 0}, rng));
  CHECK(rng.state().state_low == before.state_low);
  CHECK_THROWS_SAYING(ValueError, "SelfAttention", "dv", SelfAttention(4, 2, 0, rng));
  CHECK_THROWS_SAYING(ShapeError, "SelfAttention", "dk must be even, got 3",
                      SelfAttention(4, 3, 2, {.positions = RelativePositions::rope}, rng));
  const SelfAttention head(4, 2, 2, rng);
  CHECK_THROWS_SAYING(ShapeError, "SelfAttention", "4 entries: x is (3, 5)", head(ones({3, 5})));
  CHECK_THROWS_AS(head(ones({4})), ShapeError);
}

TEST_CASE("TransformerBlock: pre and post norm, RMS norm, dropout in eval") {
  const test_support::LeakGuard leaks;
  const Doubles doubles;
  Rng rng(1);
  const Tensor x = randn(rng, {2, 3, 4});
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::post}) {
    for (const NormKind norm : {NormKind::layer, NormKind::rms}) {
      TransformerBlock block(4, 2,
                             {.attention = {.mask = Mask::causal()},
                              .dropout = 0.3,
                              .placement = placement,
                              .norm = norm},
                             rng);
      block.eval();
      CHECK(equal(block(x), block(x)));
      CHECK(block(x).shape() == x.shape());
      block.train();
      CHECK_FALSE(equal(block(x), block(x)));
      block.eval();
      // Causal: what comes later does not matter.
      CHECK(equal(slice(block(x), 1, 0, 2),
                  slice(block(cat({slice(x, 1, 0, 2), ones({2, 1, 4})}, 1)), 1, 0, 2)));
      const std::size_t of_norms = norm == NormKind::layer ? 4 : 2;
      CHECK(block.named_parameters().size() == of_norms + 12);
      CHECK(block.named_parameters()[0].first == "norm1.weight");
    }
  }
  CHECK_THROWS_AS(TransformerBlock(4, 3, rng), ValueError);
  CHECK_THROWS_AS(TransformerBlock(4, 2, {.mlp_width = -1}, rng), ValueError);
  CHECK_THROWS_AS(TransformerBlock(4, 2, {.eps = 0}, rng), ValueError);
}

TEST_CASE("TransformerBlock: the same bits at one and two threads [thread]") {
  const auto gradients = [](int threads) {
    const test_support::ThreadCount count(threads);
    Rng rng(1);
    TransformerBlock block(32, 4, {.attention = {.mask = Mask::causal()}}, rng);
    sum(square(block(randn(rng, {8, 48, 32})))).backward();
    std::vector<Tensor> found;
    for (const auto& [name, parameter] : block.named_parameters())
      found.push_back(parameter.grad());
    return found;
  };
  const auto one = gradients(1);
  const auto two = gradients(2);
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(test_support::same_bits(one[i], two[i]));
}
