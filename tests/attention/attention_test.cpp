// What attention returns and keeps: the tensors of the result and their gradients, what the graph
// retains, options one by one.
#include "attention/support.hpp"
#include "softtape/attention/mask_scores.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/study/trace.hpp"

using namespace attention_test;

namespace {

std::vector<Tensor> qkv(std::uint64_t seed, std::int64_t n = 5, std::int64_t m = 5) {
  Rng rng(seed);
  return leaves({normals(rng, {n, 4}), normals(rng, {m, 4}), normals(rng, {m, 3})});
}

std::vector<std::string> ops_of(const Tensor& y) {
  std::vector<std::string> names;
  for (const TraceRow& row : trace(y, {.max_nodes = 1000, .values = false}).rows) {
    names.push_back(row.op);
  }
  return names;
}

bool has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("gradients of weights and scores by the softmax rule, exact zeros where hidden") {
  const auto x = qkv(1);
  Rng rng(2);
  const Tensor target = normals(rng, {5, 3});
  const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], {.mask = Mask::causal()});
  const Tensor loss = mse_loss(a.output, target);
  const auto g = grad(loss, {a.weights, a.scores, a.raw_scores, a.output}, {.retain_graph = true});
  // gP = gO v^T, gS = P (gP - sum P gP), and d raw = scale gS.
  CHECK_AGREES(g[0], matmul(g[3], x[2].detach(), {.transpose_b = true}), 1e-14);
  const Tensor p = a.weights.detach();
  const Tensor want = mul(p, sub(g[0], sum(mul(p, g[0]), -1, {.keepdim = true})));
  CHECK_AGREES(g[1], want, 1e-14);
  CHECK_AGREES(g[2], mul(g[1], 0.5), 1e-15);
  CHECK(all_zero(triu(g[1], 1)));
  CHECK(all_zero(triu(g[2], 1)));
  CHECK_FALSE(all_zero(triu(g[0], 1)));  // hidden weights have a gradient; hidden scores have none
  for (const double s : sum(g[1], -1).to_vector()) CHECK(std::abs(s) < 1e-16);
  // The scores are what softmax reads: hidden entries are -Inf, the rest the scaled products.
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      const auto at = static_cast<std::size_t>(i * 5 + j);
      const double s = a.scores.to_vector()[at];
      CHECK(s == (j > i ? -kInf : a.raw_scores.to_vector()[at] * 0.5));
    }
  }
  CHECK_SAME(a.weights, softmax(a.scores));
  CHECK_FALSE(a.logsumexp.requires_grad());
}

TEST_CASE("the gradient of a score is how the loss moves with it") {
  const auto x = qkv(3);
  const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], {.mask = Mask::causal()});
  Rng rng(4);
  const Tensor w = normals(rng, {5, 3});
  const Tensor g = grad(sum(mul(a.output, w)), a.scores)[0];
  for (const std::size_t at : {5u, 6u, 11u, 22u}) {
    const auto loss = [&](double step) {
      std::vector<double> scores = a.scores.to_vector();
      scores[at] += step;
      return sum(mul(matmul(softmax(tensor(scores, {5, 5}, kDouble)), x[2]), w)).item();
    };
    CHECK((loss(1e-5) - loss(-1e-5)) / 2e-5 == doctest::Approx(g.to_vector()[at]).epsilon(1e-7));
  }
}

TEST_CASE("hooks and retained gradients reach every tensor of the result") {
  const auto x = qkv(5);
  Attention a = scaled_dot_product_attention(x[0], x[1], x[2], {.mask = Mask::causal()});
  int calls = 0;
  for (Tensor* t : {&a.output, &a.weights, &a.scores, &a.raw_scores}) {
    t->retain_grad();
    t->register_hook([&calls](const Tensor&) {
      ++calls;
      return Tensor();
    });
  }
  sum(square(a.output)).backward();
  CHECK(calls == 4);
  for (const Tensor& t : {a.output, a.weights, a.scores, a.raw_scores}) {
    REQUIRE(t.grad().defined());
    CHECK(t.grad().shape() == t.shape());
  }
  // A hook that silences one score changes what flows below it.
  const auto y = leaves(x);
  Attention b = scaled_dot_product_attention(y[0], y[1], y[2], {.mask = Mask::causal()});
  b.scores.register_hook([](const Tensor& g) { return mul(g, 0); });
  sum(square(b.output)).backward();
  CHECK(all_zero(y[0].grad()));
  CHECK_SAME(y[2].grad(), x[2].grad());
}

TEST_CASE("composed steps are nodes of their own, and none that does nothing") {
  const auto x = qkv(6);
  const auto plain = ops_of(scaled_dot_product_attention(x[0], x[1], x[2], {}).output);
  CHECK(has(plain, "matmul"));
  CHECK(has(plain, "mul"));
  CHECK(has(plain, "softmax"));
  CHECK_FALSE(has(plain, "mask_scores"));
  const auto masked = ops_of(scaled_dot_product_attention(
                                 x[0], x[1], x[2], {.mask = Mask::causal(), .scale = Scale::none()})
                                 .output);
  CHECK(has(masked, "mask_scores"));
  CHECK_FALSE(has(masked, "mul"));
  const auto fused =
      ops_of(scaled_dot_product_attention(x[0], x[1], x[2], {.need_weights = false}).output);
  CHECK(has(fused, "scaled_dot_product_attention"));
  CHECK_FALSE(has(fused, "softmax"));
}

TEST_CASE("composed attention retains one T x T tensor per head once its handles are gone") {
  constexpr std::int64_t kT = 256;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kSquare = kT * kT * kHeads * 4;
  Rng rng(7);
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) {
    x.push_back(normals(rng, {kHeads, kT, 8}, DType::float32).requires_grad_());
  }
  const auto retained = [&](AttentionOptions options) {
    const std::int64_t before = graph_stats().live_bytes;
    const Tensor output = scaled_dot_product_attention(x[0], x[1], x[2], options).output;
    const std::int64_t kept = graph_stats().live_bytes - before;
    CHECK(output.requires_grad());
    return static_cast<double>(kept) / static_cast<double>(kSquare);
  };
  // Besides the weights: the output, 8/256 of a square, nodes, and blocks rounded up in size.
  CHECK(retained({}) > 1);
  CHECK(retained({}) < 1.3);
  CHECK(retained({.mask = Mask::causal()}) < 1.3);
  CHECK(retained({.bias = normals(rng, {kT}, DType::float32)}) < 1.3);
  CHECK(retained({.mask = Mask::causal(), .scale = Scale::value(0.1)}) < 1.3);
  CHECK(retained({.mask = Mask::causal(), .need_weights = false}) < 0.1);
  // A learned scale is a product of two tensors that change: it keeps the raw scores.
  const Tensor learned = full({}, 0.3, {.dtype = DType::float32, .requires_grad = true});
  CHECK(retained({.scale = Scale::learned(learned)}) < 2.5);
}

TEST_CASE("nothing is recorded without a gradient to find") {
  Rng rng(8);
  const Tensor x = normals(rng, {4, 3});
  for (const bool need_weights : {true, false}) {
    const Attention a = scaled_dot_product_attention(x, x, x, {.need_weights = need_weights});
    CHECK_FALSE(a.output.requires_grad());
    const auto y = leaves({x});
    const NoGrad guard;
    CHECK_FALSE(scaled_dot_product_attention(y[0], y[0], y[0], {.need_weights = need_weights})
                    .output.requires_grad());
  }
}

TEST_CASE("self-attention: one tensor in all three places gets all three gradients") {
  Rng rng(9);
  const Tensor numbers = normals(rng, {6, 3});
  const Tensor gy = normals(rng, {6, 3});
  for (const bool need_weights : {true, false}) {
    const AttentionOptions options{.mask = Mask::causal(), .need_weights = need_weights};
    const Tensor x = leaf(numbers);
    const Tensor together =
        gradients(scaled_dot_product_attention(x, x, x, options).output, {x}, gy)[0];
    const auto y = leaves({numbers, numbers, numbers});
    const auto apart =
        gradients(scaled_dot_product_attention(y[0], y[1], y[2], options).output, y, gy);
    CHECK_AGREES(together, add(add(apart[0], apart[1]), apart[2]), 1e-14);
  }
}

TEST_CASE("a saved tensor that changes before backward is refused by name") {
  for (const bool need_weights : {true, false}) {
    auto x = qkv(10);
    x[1].named("keys");
    const Attention a =
        scaled_dot_product_attention(x[0], x[1], x[2], {.need_weights = need_weights});
    const Tensor loss = sum(a.output);
    {
      const NoGrad guard;
      x[1].fill_(0);
    }
    std::string message;
    try {
      loss.backward();
    } catch (const GraphError& error) {
      message = error.what();
    }
    CHECK(message.find("'keys' was changed in place") != std::string::npos);
  }
}

TEST_CASE("the factor of every scale") {
  CHECK(Scale::inv_sqrt_dk().factor(16) == 0.25);
  CHECK(Scale::inv_dk().factor(16) == 1.0 / 16);
  CHECK(Scale::none().factor(16) == 1);
  CHECK(Scale::value(-0.5).factor(16) == -0.5);
  const Tensor t = full({1}, 3, kDouble);
  CHECK(Scale::learned(t).factor(16) == 3);
  CHECK(Scale::learned(t).is_learned());
  CHECK(Scale::learned(t).tensor().is_same(t));
  CHECK_FALSE(Scale::none().is_learned());
  CHECK_FALSE(Scale::none().tensor().defined());
  CHECK(Scale::inv_sqrt_dk().name() == "inv_sqrt_dk");
  CHECK(Scale::none().name() == "none");
  CHECK(Scale::inv_dk().name() == "inv_dk");
  CHECK(Scale::value(2).name() == "value");
  CHECK(Scale::learned(t).name() == "learned");
}

TEST_CASE("scale: applied once, 0 makes uniform weights, negative ones turn the order round") {
  const auto x = qkv(11);
  const Attention zero = scaled_dot_product_attention(x[0], x[1], x[2], {.scale = Scale::value(0)});
  CHECK_NUMBERS(zero.weights, std::vector<double>(25, 0.2), 1e-15, 0);
  const Attention one = scaled_dot_product_attention(x[0], x[1], x[2], {.scale = Scale::none()});
  CHECK_SAME(one.scores, one.raw_scores);
  const Attention turned =
      scaled_dot_product_attention(x[0], x[1], x[2], {.scale = Scale::value(-1)});
  CHECK_SAME(argmax(turned.weights, -1), argmin(one.weights, -1));
  const Attention half =
      scaled_dot_product_attention(x[0], x[1], x[2], {.scale = Scale::value(0.5)});
  CHECK_SAME(half.scores, mul(half.raw_scores, 0.5));
  CHECK_SAME(half.weights, scaled_dot_product_attention(x[0], x[1], x[2]).weights);  // dk = 4
}

TEST_CASE("a learned scale of 1/sqrt(dk) is the default, and its gradient is sum gS raw") {
  const auto x = qkv(12);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
    for (const bool need_weights : {true, false}) {
      const Tensor factor = full(shape, 0.5, {.dtype = DType::float64, .requires_grad = true});
      const Attention a = scaled_dot_product_attention(
          x[0], x[1], x[2], {.scale = Scale::learned(factor), .need_weights = need_weights});
      CHECK(a.output.shape() == Shape{5, 3});
      const Attention fixed = scaled_dot_product_attention(x[0], x[1], x[2]);
      CHECK_AGREES(a.output, fixed.output, 1e-15);
      const Tensor g = grad(sum(a.output), factor)[0];
      CHECK(g.shape() == shape);
      const Tensor gs = grad(sum(fixed.output), fixed.scores)[0];
      CHECK(g.item() == doctest::Approx(sum(mul(gs, fixed.raw_scores)).item()).epsilon(1e-12));
    }
  }
}

TEST_CASE("soft cap: scores stay in (-c, c), small ones pass") {
  const auto x = qkv(13);
  AttentionOptions options{.scale = Scale::value(50), .soft_cap = 4};
  const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], options);
  for (const double s : a.scores.to_vector()) CHECK(std::abs(s) <= 4);
  options.soft_cap = 1e6;
  const Attention wide = scaled_dot_product_attention(x[0], x[1], x[2], options);
  options.soft_cap = 0;
  CHECK_AGREES(wide.scores, scaled_dot_product_attention(x[0], x[1], x[2], options).scores, 1e-6);
  options.soft_cap = 4;
  options.need_weights = false;
  const Attention without = scaled_dot_product_attention(x[0], x[1], x[2], options);
  CHECK_SAME(without.output, a.output);
  CHECK_FALSE(without.weights.defined());
}

TEST_CASE("QK-norm: scores do not depend on the length of queries and keys") {
  const auto x = qkv(14);
  for (const bool need_weights : {true, false}) {
    const AttentionOptions options{.qk_norm = true, .need_weights = need_weights};
    const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], options);
    const Attention longer =
        scaled_dot_product_attention(mul(x[0], 30), mul(x[1], 0.2), x[2], options);
    CHECK_AGREES(longer.output, a.output, 1e-4);
    if (!need_weights) continue;
    for (const double s : a.scores.to_vector()) CHECK(std::abs(s) <= 2.0001);  // sqrt(dk)
  }
}

TEST_CASE("dropout draws as the op does, once per weight, and gradients see the same mask") {
  const auto x = qkv(15);
  Rng rng(21);
  const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], {.dropout = 0.4, .rng = &rng});
  const Tensor p = softmax(a.scores);
  Rng again(21);
  const auto before = p.to_vector();
  const auto after = a.weights.to_vector();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i] == (again.random() >= 0.4 ? before[i] * (1 / 0.6) : 0));
  }
  CHECK(rng.next_uint64() == again.next_uint64());
  CHECK_AGREES(a.output, matmul(a.weights, x[2]), 1e-15);
  CHECK_NUMBERS(a.logsumexp, logsumexp(a.scores, -1).to_vector(), 1e-14, 1e-14);
}

TEST_CASE("heads as column blocks are attention of each block") {
  Rng rng(16);
  const Tensor q = normals(rng, {2, 5, 6});
  const Tensor k = normals(rng, {2, 7, 6});
  const Tensor v = normals(rng, {2, 7, 9});
  const Attention a = scaled_dot_product_attention(q, k, v, {.heads = 3});
  CHECK(a.weights.shape() == Shape{2, 3, 5, 7});
  CHECK(a.logsumexp.shape() == Shape{2, 3, 5});
  for (std::int64_t h = 0; h < 3; ++h) {
    const Attention one = scaled_dot_product_attention(
        narrow(q, -1, 2 * h, 2), narrow(k, -1, 2 * h, 2), narrow(v, -1, 3 * h, 3));
    CHECK_AGREES(select(a.weights, 1, h), one.weights, 1e-15);
    CHECK_AGREES(narrow(a.output, -1, 3 * h, 3), one.output, 1e-15);
  }
}

TEST_CASE("mask_scores selects, and its gradient has exact zeros") {
  const Tensor x = leaf(tensor(std::vector<double>{1, kNaN, kInf, 4}, {2, 2}, kDouble));
  const Mask mask = Mask::keep(flags({{true, false}, {false, true}}));
  const Tensor y = mask_scores(x, mask);
  CHECK_NUMBERS(y, (std::vector<double>{1, -kInf, -kInf, 4}), 0, 0);
  const Tensor g = grad(y, x, {.grad_outputs = {full({2, 2}, kInf, kDouble)}})[0];
  CHECK_NUMBERS(g, (std::vector<double>{kInf, 0, 0, kInf}), 0, 0);
  CHECK_NUMBERS(mask_scores(x, mask, 7), (std::vector<double>{1, 7, 7, 4}), 0, 0);
}

TEST_CASE("the anomaly guard trusts masked scores and names what breaks") {
  const auto x = qkv(17);
  const AnomalyGuard guard;
  for (const bool need_weights : {true, false}) {
    const Attention a = scaled_dot_product_attention(
        x[0], x[1], x[2],
        {.mask = Mask::causal() & Mask::sliding_window(2, 0), .need_weights = need_weights});
    sum(a.output).backward();
  }
  std::string message;
  try {
    scaled_dot_product_attention(mul(x[0], 1e200), mul(x[1], 1e200), x[2]);
  } catch (const ValueError& error) {
    message = error.what();
  }
  CHECK(message.find("[matmul] made ") != std::string::npos);
}
