// The lesson: its demo as NumPy computes it, its three exercises, and what it says about softmax.
#include "attention/support.hpp"
#include "golden/attention_golden.hpp"

using namespace attention_test;

TEST_CASE("the lesson's demo gives NumPy's numbers") {
  Rng rng(0);
  const Tensor x = normal(rng, 0, 1, {5, 8}, kDouble);
  const Tensor wq = normal(rng, 0, 0.1, {8, 4}, kDouble);
  const Tensor wk = normal(rng, 0, 0.1, {8, 4}, kDouble);
  const Tensor wv = normal(rng, 0, 0.1, {8, 4}, kDouble);
  for (const bool need_weights : {true, false}) {
    const Attention a =
        scaled_dot_product_attention(matmul(x, wq), matmul(x, wk), matmul(x, wv),
                                     {.mask = Mask::causal(), .need_weights = need_weights});
    CHECK(a.output.shape() == Shape{5, 4});
    CHECK_NUMBERS(a.output, golden::attention::demo.output, 1e-13, 1e-15);
    if (!need_weights) continue;
    CHECK_NUMBERS(a.weights, golden::attention::demo.weights, 1e-13, 0);
    // As the lesson prints it: rounded to three digits, rows that sum to 1.
    CHECK(std::round(a.weights[1].to_vector()[1] * 1000) ==
          std::round(golden::attention::demo.weights[6] * 1000));
    CHECK_NUMBERS(sum(a.weights, -1), std::vector<double>(5, 1.0), 1e-15, 0);
  }
}

TEST_CASE("exercise 1: two keys by hand") {
  const Tensor q = mat({{1, 0}});
  const Tensor kv = mat({{1, 0}, {0, 1}});
  const Attention a = scaled_dot_product_attention(q, kv, kv);
  CHECK_NUMBERS(a.raw_scores, (std::vector<double>{1, 0}), 0, 0);
  CHECK_NUMBERS(a.scores, (std::vector<double>{0.707106781186547524, 0}), 1e-15, 0);
  const std::vector<double> want{0.669761549326656, 0.330238450673344};
  CHECK_NUMBERS(a.weights, want, 1e-14, 0);
  CHECK_NUMBERS(a.output, want, 1e-14, 0);
}

TEST_CASE("exercise 2: a gap of 8 without scaling and with it, and what the loser hears") {
  // q . k1 - q . k2 = 8 at dk = 64: one key along q, one orthogonal to it.
  std::vector<double> along(64, 0);
  along[0] = 8;
  const Tensor q = tensor(along, {1, 64}, kDouble);
  std::vector<double> two(128, 0);
  two[0] = 1;
  const Tensor k = tensor(two, {2, 64}, kDouble);
  const Tensor v = mat({{1, 0}, {0, 1}});
  struct Want {
    Scale scale;
    double winner, loser_slope;
  };
  const Want wants[] = {{Scale::none(), 0.999664649869534, 3.352376707564706e-04},
                        {Scale::inv_sqrt_dk(), 0.731058578630005, 1.966119332414818e-01}};
  for (const Want& want : wants) {
    CAPTURE(want.scale.name());
    const Tensor key = leaf(k);
    const Attention a = scaled_dot_product_attention(q, key, v, {.scale = want.scale});
    CHECK(a.weights.to_vector()[0] == doctest::Approx(want.winner).epsilon(1e-13));
    // d p_loser / d s_loser = p (1 - p)
    const Tensor slope = grad(sum(select(a.weights, -1, 1)), a.scores)[0];
    CHECK(slope.to_vector()[1] == doctest::Approx(want.loser_slope).epsilon(1e-12));
  }
}

TEST_CASE("exercise 3: rows sum to 1 and the strictly upper triangle is exactly zero") {
  Rng rng(0);
  const Tensor q = normals(rng, {6, 8});
  const Tensor k = normals(rng, {6, 8});
  const Tensor v = normals(rng, {6, 8});
  const Tensor future = logical_not(tril(ones({6, 6}, {.dtype = DType::boolean})));
  for (const Mask& mask : {Mask::causal(), Mask::masked_out(future)}) {
    const Attention a = scaled_dot_product_attention(q, k, v, {.mask = mask});
    CHECK_NUMBERS(a.output, golden::attention::exercise_3.output, 1e-13, 1e-15);
    CHECK_NUMBERS(a.weights, golden::attention::exercise_3.weights, 1e-13, 0);
    CHECK_NUMBERS(sum(a.weights, -1), std::vector<double>(6, 1.0), 1e-15, 0);
    CHECK(all_zero(triu(a.weights, 1)));
    const Attention fused =
        scaled_dot_product_attention(q, k, v, {.mask = mask, .need_weights = false});
    CHECK_NUMBERS(fused.output, golden::attention::exercise_3.output, 1e-13, 1e-15);
  }
}

TEST_CASE("scaling does not change which key wins, only whether the loser is heard") {
  Rng rng(3);
  const Tensor q = normals(rng, {50, 64});
  const Tensor k = normals(rng, {16, 64});
  const Tensor v = normals(rng, {16, 4});
  const Attention scaled = scaled_dot_product_attention(q, k, v);
  const Attention unscaled = scaled_dot_product_attention(q, k, v, {.scale = Scale::none()});
  CHECK_SAME(argmax(scaled.weights, -1), argmax(unscaled.weights, -1));
  const double gentle = mean(max(scaled.weights, -1)).item();
  const double harsh = mean(max(unscaled.weights, -1)).item();
  CHECK(gentle < 0.5);
  CHECK(harsh > 0.75);
}
