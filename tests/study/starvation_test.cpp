// starvation(), score statistics and the audit of the scale: right numbers, a graph that is still
// usable, no .grad touched, refusals.
#include "softtape/study/starvation.hpp"

#include <cmath>

#include "ops/support.hpp"
#include "softtape/attention/linear.hpp"
#include "softtape/nn/self_attention.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::contains;
using test_support::kDouble;
using test_support::kInf;
using test_support::kNaN;
using test_support::numbers;

namespace {

// Unit-variance queries and keys, a loss that is a mean over B * T rows.
struct Run {
  Tensor q, k, v;
  Attention attended;
  Tensor loss;
};
Run run(const AttentionOptions& options, DType dtype = DType::float64, std::int64_t dk = 64) {
  Rng rng(0);
  const auto leaf = [&](const Shape& shape) {
    return to(randn(rng, shape, kDouble), dtype).detach().requires_grad_();
  };
  const std::int64_t heads = std::max<std::int64_t>(1, options.heads);
  Run r{leaf({3, 12, heads * dk}), leaf({3, 12, heads * dk}), leaf({3, 12, heads * 4}), {}, {}};
  r.attended = scaled_dot_product_attention(r.q, r.k, r.v, options);
  r.loss = mean(sum(square(r.attended.output), -1));
  return r;
}

}  // namespace

TEST_CASE("starvation: every number is that of its probe on the gradients") {
  const Run r = run({.mask = Mask::causal(), .scale = Scale::none()});
  const Starvation found = starvation(r.loss, r.attended);
  CHECK(found.samples == 36);  // the loss is a mean over 3 x 12 rows
  CHECK(found.rows == 36);
  CHECK(found.visible == 3 * 78);
  const auto g = grad(mul(r.loss, 36.0), {r.attended.weights, r.attended.scores});
  CHECK_NUMBERS(found.gweights, g[0], 1e-10, 0);
  CHECK_NUMBERS(found.gscores, g[1], 1e-10, 0);
  const Tensor& p = r.attended.weights;
  CHECK(found.entropy.mean == doctest::Approx(mean(entropy(p)).item()));
  CHECK(found.effective_keys.median == summarize(effective_keys(p)).median);
  CHECK(found.max_weight.mean == doctest::Approx(mean(max(p, -1)).item()));
  CHECK(found.jacobian.median == summarize(jacobian_frobenius_norm(p)).median);
  CHECK(found.row_gradient.median == doctest::Approx(summarize(norm(g[1], -1)).median));
  const DeadKeyOptions options{.mask = Mask::causal()};
  CHECK(found.dead_keys == dead_keys(g[1], options));
  CHECK(found.dead_keys > 0.3);
  CHECK(found.dead_relative == dead_keys_relative(g[1], g[0], options));
  CHECK(found.starved_rows == starved_rows(g[1], options));
  CHECK(found.scores.row_std == score_statistics(r.attended.scores).row_std);

  const Run scaled = run({.mask = Mask::causal()});
  const Starvation soft = starvation(scaled.loss, scaled.attended);
  CHECK(soft.dead_keys == doctest::Approx(3.0 / (3 * 78)));  // rows that see one key
  CHECK(soft.starved_rows == 0);
  CHECK(soft.row_gradient.median > 3 * found.row_gradient.median);
}

TEST_CASE("starvation: the factor that makes a loss one of a sample") {
  const Run r = run({.scale = Scale::none()});
  const Starvation one = starvation(r.loss, r.attended, {.samples = 1});
  const Starvation three = starvation(r.loss, r.attended, {.samples = 3});
  CHECK(three.row_gradient.mean == doctest::Approx(3 * one.row_gradient.mean));
  CHECK(three.dead_relative == one.dead_relative);
  CHECK(one.dead_keys >= three.dead_keys);
  CHECK(starvation(r.loss, r.attended).samples == 36);
  CHECK(starvation(r.loss, r.attended, {.threshold = 1e3}).dead_keys == 1);
}

TEST_CASE("starvation: the graph is kept and no gradient is touched") {
  const test_support::LeakGuard leaks;
  Run r = run({.mask = Mask::causal()});
  r.q.set_grad(ones_like(r.q));
  const auto before = graph_stats();
  {
    const Starvation found = starvation(r.loss, r.attended);
    CHECK(!found.gscores.requires_grad());
    const NoGrad guard;
    CHECK(starvation(r.loss, r.attended).dead_keys == found.dead_keys);
  }
  CHECK(graph_stats().live_nodes == before.live_nodes);
  CHECK(equal(r.q.grad(), ones_like(r.q)));
  CHECK(!r.k.grad().defined());
  r.q.zero_grad();
  r.loss.backward();  // the graph was not used up
  const Run again = run({.mask = Mask::causal()});
  CHECK(equal(r.q.grad(), grad(again.loss, again.q)[0]));
}

TEST_CASE("starvation: heads, layers and float32") {
  const Run r =
      run({.mask = Mask::causal(), .scale = Scale::none(), .heads = 4}, DType::float32, 16);
  const Starvation found = starvation(r.loss, r.attended);
  CHECK(found.samples == 36);  // rows of the output, not of its heads
  CHECK(found.rows == 3 * 4 * 12);
  CHECK(found.visible == 3 * 4 * 78);
  CHECK(found.gscores.shape() == Shape{3, 4, 12, 12});

  // One query per sample, as in a lookup: samples are the batch.
  Rng rng(1);
  Tensor q = randn(rng, {5, 1, 8}, kDouble).requires_grad_();
  const Tensor kv = randn(rng, {5, 6, 8}, kDouble);
  const Attention looked_up = scaled_dot_product_attention(q, kv, kv);
  const Starvation lookup = starvation(mean(square(looked_up.output)), looked_up);
  CHECK(lookup.samples == 5);
  CHECK(lookup.visible == 30);

  SelfAttention head(8, 4, 4, {.mask = Mask::causal()}, rng);
  const Attention attended = head.attend(randn(rng, {7, 8}));
  CHECK(starvation(sum(attended.output), attended, {.samples = 1}).rows == 7);
}

TEST_CASE("starvation: float32 rows so saturated that the winner has weight 1") {
  Tensor q = tensor({{20.0}}, {.dtype = DType::float32, .requires_grad = true});
  const Tensor k = tensor({{1.0}, {0.0}}, {.dtype = DType::float32});
  const Tensor v = tensor({{1.0}, {2.0}}, {.dtype = DType::float32});
  const Attention a = scaled_dot_product_attention(q, k, v, {.scale = Scale::none()});
  const Starvation found = starvation(sum(a.output), a);
  CHECK(found.max_weight.max == 1);
  CHECK(found.jacobian.mean == doctest::Approx(2 * 2.0611536e-9).epsilon(1e-5));
  CHECK(found.row_gradient.mean == doctest::Approx(std::sqrt(2.0) * 2.0611536e-9).epsilon(1e-5));
  CHECK(found.dead_keys == 1);  // winner and loser alike: at two keys both starve
  CHECK(found.starved_rows == 1);
  CHECK(found.carrying.mean == doctest::Approx(2).epsilon(1e-6));
}

TEST_CASE("starvation: rows that see nothing, and weights before dropout") {
  const Mask mask = Mask::keep(tensor({{false, false}, {true, true}}));
  Tensor q = test_support::leaf({{1.0, 0.0}, {0.0, 1.0}});
  const Attention a = scaled_dot_product_attention(q, q, q, {.mask = mask});
  const Starvation found = starvation(sum(square(a.output)), a);
  CHECK(found.visible == 2);
  CHECK(found.rows == 2);
  CHECK(found.entropy.min == doctest::Approx(entropy(a.weights[1]).item()));
  const Attention blind = scaled_dot_product_attention(
      q, q, q, {.mask = Mask::masked_out(tensor({{true, true}, {true, true}}))});
  const Starvation none = starvation(sum(square(blind.output)), blind);
  CHECK(none.visible == 0);
  CHECK(none.entropy.max == 0);
  CHECK(none.dead_keys == 0);

  Rng rng(3);
  const Run dropped = run({.dropout = 0.5, .rng = &rng});
  const Starvation under = starvation(dropped.loss, dropped.attended);
  CHECK(under.entropy.mean ==
        doctest::Approx(summarize(entropy(softmax(dropped.attended.scores))).mean));
}

TEST_CASE("starvation: how it reads") {
  const Run r = run({.mask = Mask::causal(), .scale = Scale::none()});
  const std::string text = fmt::format("{}", starvation(r.loss, r.attended));
  CHECK(text.rfind("starvation: 36 rows, 234 visible pairs, loss times 36\n", 0) == 0);
  for (const char* part :
       {"entropy", "effective keys", "largest weight", "Jacobian |J|_F", "row |dL/ds|", "dead keys",
        "% of rows starved", "beyond sqrt(2 ln 6.5) = 1.935"}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK(text.back() != '\n');
}

TEST_CASE("starvation: refused calls") {
  const Run r = run({});
  const Run fused = run({.need_weights = false});
  Rng rng(2);
  const Tensor x = randn(rng, {4, 3}, kDouble).requires_grad_();
  const Attention linear = linear_attention(x, x, x, {.need_weights = true});
  const Tensor linear_loss = sum(linear.output);
  const Tensor foreign = sum(x);
  const Tensor vector = sum(r.attended.output, -1);
  CHECK_REFUSED(GraphError,
                "[starvation] attention must keep its weights and scores: weights is undefined; "
                "pass {.need_weights = true}",
                starvation(fused.loss, fused.attended));
  CHECK_REFUSED(ValueError, "[starvation] needs attention with a softmax",
                starvation(linear_loss, linear));
  CHECK_REFUSED(ShapeError, "[starvation] the loss must be one number: got shape (3, 12)",
                starvation(vector, r.attended));
  CHECK_REFUSED(GraphError, "[starvation] loss", starvation(Tensor(), r.attended));
  CHECK_REFUSED(GraphError, "[grad] ", starvation(foreign, r.attended));
  CHECK_REFUSED(ValueError, "[starvation] samples must be positive and finite: got 0",
                starvation(r.loss, r.attended, {.samples = 0}));
  CHECK_REFUSED(ValueError, "[starvation] threshold must be positive and finite: got nan",
                starvation(r.loss, r.attended, {.threshold = kNaN}));
  r.loss.backward();
  CHECK_REFUSED(GraphError, "[", starvation(r.loss, r.attended));
}

TEST_CASE("score statistics: of visible scores, over all and within rows") {
  const Tensor s = numbers({{1.0, 3.0, -kInf}, {10.0, 14.0, 12.0}});
  const ScoreStatistics found = score_statistics(s);
  CHECK(found.count == 5);
  CHECK(found.keys == 2.5);
  CHECK(found.mean == 8);
  CHECK(found.std == doctest::Approx(std::sqrt((49 + 25 + 4 + 36 + 16) / 4.0)));
  CHECK(found.row_std == doctest::Approx(std::sqrt((2 + 8) / 3.0)));
  CHECK(found.boundary == doctest::Approx(std::sqrt(2 * std::log(2.5))));
  CHECK(found.saturated());
  const Mask mask = Mask::keep(tensor({{true, true, false}, {true, true, true}}));
  CHECK(score_statistics(numbers({{1.0, 3.0, 99.0}, {10.0, 14.0, 12.0}}), mask).std == found.std);
  CHECK(contains(to_string(found), "saturated"));
  CHECK(!score_statistics(mul(s, 0.1)).saturated());
  const ScoreStatistics one = score_statistics(numbers({{7.0}}));
  CHECK(one.std == 0);
  CHECK(!one.saturated());
  CHECK(score_statistics(numbers({-kInf, -kInf})).count == 0);
  CHECK(std::isnan(score_statistics(numbers({kNaN, 1.0})).std));

  CHECK(saturation_boundary(2) == doctest::Approx(1.1774).epsilon(1e-4));
  CHECK(saturation_boundary(16) == doctest::Approx(2.3548).epsilon(1e-4));
  CHECK(saturation_boundary(128) == doctest::Approx(3.1151).epsilon(1e-4));
  CHECK(saturation_boundary(1) == 0);
  CHECK(predicted_score_std(Scale::inv_sqrt_dk(), 64) == 1);
  CHECK(predicted_score_std(Scale::none(), 64) == 8);
  CHECK(predicted_score_std(Scale::inv_dk(), 64) == 0.125);
  CHECK(predicted_score_std(Scale::value(-2), 4) == 4);
  CHECK_REFUSED(ValueError, "[predicted_score_std] dk must be 1 or more: got 0",
                predicted_score_std(Scale::none(), 0));
  CHECK_REFUSED(ShapeError, "[score_statistics] scores must have rank 1",
                score_statistics(scalar(1.0)));
}

TEST_CASE("scale audit: names the mistake") {
  Rng rng(4);
  const Tensor raw = randn(rng, {2, 10, 50}, kDouble);
  const auto audit = [&](double factor, DType dtype = DType::float64) {
    return scale_audit(to(raw, dtype), to(mul(raw, factor), dtype), {.dk = 64, .d_model = 512});
  };
  CHECK(audit(0.125).right);
  CHECK(audit(0.125, DType::float32).right);
  CHECK(audit(0.125).mistakes.empty());
  CHECK(audit(0.125).factor == doctest::Approx(0.125));
  struct Want {
    double factor;
    const char* words;
  };
  const Want wants[] = {
      {1, "not scaled"},
      {1.0 / 64, "scaled twice: the factor is 1/dk = 1/64"},
      {8, "multiplied by sqrt(dk)"},
      {1 / std::sqrt(512.0), "divided by sqrt(d_model) = sqrt(512)"},
      {1 / 512.0, "divided by d_model = 512"},
      {1 / std::sqrt(512.0 * 64), "scaled twice: by 1/sqrt(d_model)"},
      {1 / std::sqrt(50.0), "wrong axis: divided by the root of the number of keys"},
      {1 / std::sqrt(10.0), "wrong axis: divided by the root of the number of queries"},
      {1 / std::sqrt(8.0), "scaled by dk^(-1/4)"},
      {-0.7, "a factor of its own"}};
  for (const Want& want : wants) {
    CAPTURE(want.words);
    for (const DType dtype : test_support::kFloats) {
      const ScaleAudit found = audit(want.factor, dtype);
      CHECK(!found.right);
      REQUIRE(found.mistakes.size() == 1);
      CHECK(found.mistakes[0].rfind(want.words, 0) == 0);
      CHECK(contains(to_string(found), want.words));
    }
  }
  // A square of scores: the number of keys and of queries are one and the same mistake, twice.
  const Tensor square_raw = randn(rng, {9, 9}, kDouble);
  CHECK(scale_audit(square_raw, mul(square_raw, 1.0 / 3), {.dk = 64}).mistakes.size() == 2);
  // Width and number of keys agree: what is right is right.
  CHECK(scale_audit(square_raw, mul(square_raw, 1.0 / 3), {.dk = 9}).right);
}

TEST_CASE("scale audit: of an attention, with its mask, bias and the axis of its softmax") {
  Rng rng(5);
  const Tensor q = randn(rng, {8, 16}, kDouble);
  const Tensor k = randn(rng, {8, 16}, kDouble);
  Attention a = scaled_dot_product_attention(q, k, k, {.mask = Mask::causal()});
  CHECK(scale_audit(a, {.dk = 16}).right);
  CHECK(scale_audit(a, {.dk = 16}).residual < 1e-14);
  a.weights = softmax(a.raw_scores, 0);
  const ScaleAudit wrong = scale_audit(a, {.dk = 16});
  CHECK(!wrong.right);
  CHECK(contains(to_string(wrong), "wrong axis: weights sum to 1 over the queries"));

  const Tensor bias = mul(randn(rng, {8, 8}, kDouble), 0.05);
  const Attention biased = scaled_dot_product_attention(q, k, k, {.bias = bias});
  CHECK(scale_audit(biased, {.dk = 16}).residual > 1e-3);
  CHECK(contains(to_string(scale_audit(biased, {.dk = 16})), "a bias or a soft cap"));

  const Attention fused = scaled_dot_product_attention(q, k, k, {.need_weights = false});
  CHECK_REFUSED(GraphError, "[scale_audit] attention must keep its weights and scores: raw_scores",
                scale_audit(fused, {.dk = 16}));
  CHECK_REFUSED(ValueError, "[scale_audit] dk, the width of a key, must be 1 or more: got 0",
                scale_audit(a, {}));
  CHECK_REFUSED(ValueError, "[scale_audit] d_model must not be negative",
                scale_audit(a, {.dk = 16, .d_model = -1}));
  CHECK_REFUSED(ShapeError,
                "[scale_audit] shapes must be equal: raw_scores is (8, 16), scores is "
                "(8, 8)",
                scale_audit(q, a.scores, {.dk = 16}));
  const Tensor nothing = zeros({2, 2}, kDouble);
  CHECK_REFUSED(ValueError, "[scale_audit] needs a visible raw score that is not 0",
                scale_audit(nothing, nothing, {.dk = 16}));
}
