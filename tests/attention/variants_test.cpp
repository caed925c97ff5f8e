// Additive and linear attention: what they compute, options, the linear form against the quadratic.
#include "attention/support.hpp"

using namespace attention_test;

namespace {

std::vector<Tensor> inputs(std::uint64_t seed, const Shape& q, const Shape& k, const Shape& v) {
  Rng rng(seed);
  return leaves({normals(rng, q), normals(rng, k), normals(rng, v)});
}

}  // namespace

TEST_CASE("linear attention equals its quadratic form, gradients and second derivatives too") {
  struct Sizes {
    Shape q, k, v;
    bool causal;
  };
  std::vector<Sizes> all{{{5, 3}, {9, 3}, {9, 4}, false},
                         {{2, 3, 5, 2}, {2, 3, 4, 2}, {2, 3, 4, 1}, false},
                         {{2, 5, 2}, {4, 2}, {3, 1, 4, 1}, false},
                         {{2, 70, 2}, {70, 2}, {3, 1, 70, 1}, true}};
  for (const std::int64_t n : {1, 2, 63, 64, 65, 127, 128, 129, 200}) {
    all.push_back({{n, 3}, {n, 3}, {n, 2}, true});
  }
  for (const Sizes& s : all) {
    CAPTURE(to_string(s.q));
    std::vector<Tensor> outputs;
    std::vector<std::vector<Tensor>> first, twice;
    for (const bool need_weights : {false, true}) {
      const auto x = inputs(1, s.q, s.k, s.v);
      const Attention a =
          linear_attention(x[0], x[1], x[2], {.causal = s.causal, .need_weights = need_weights});
      Rng rng(2);
      const Tensor gy = normals(rng, a.output.shape());
      std::vector<Tensor> directions;
      for (const Tensor& t : x) directions.push_back(normals(rng, t.shape()));
      outputs.push_back(a.output);
      first.push_back(gradients(a.output, x, gy, true));
      twice.push_back(second(first.back(), x, directions));
      CHECK(a.weights.defined() == need_weights);
      CHECK_FALSE(a.logsumexp.defined());
    }
    CHECK_AGREES(outputs[0], outputs[1], 1e-12);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK_AGREES(first[0][i], first[1][i], 1e-12);
      CHECK_AGREES(twice[0][i], twice[1][i], 1e-12);
    }
  }
}

TEST_CASE("linear attention is the recurrence of its source") {
  // S_i = S_(i-1) + phi(k_i) v_i^T, z_i = z_(i-1) + phi(k_i), o_i = phi(q_i) S_i / phi(q_i) z_i.
  const auto x = inputs(3, {70, 3}, {70, 3}, {70, 2});
  const auto phi = [](double t) { return t > 0 ? t + 1 : std::exp(t); };
  const auto q = x[0].to_vector(), k = x[1].to_vector(), v = x[2].to_vector();
  double state[3][2] = {};
  double z[3] = {};
  std::vector<double> want;
  for (std::size_t i = 0; i < 70; ++i) {
    double out[2] = {};
    double total = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      z[d] += phi(k[3 * i + d]);
      total += phi(q[3 * i + d]) * z[d];
      for (std::size_t e = 0; e < 2; ++e) {
        state[d][e] += phi(k[3 * i + d]) * v[2 * i + e];
        out[e] += phi(q[3 * i + d]) * state[d][e];
      }
    }
    want.insert(want.end(), {out[0] / total, out[1] / total});
  }
  CHECK_NUMBERS(linear_attention(x[0], x[1], x[2], {.causal = true}).output, want, 1e-12, 1e-14);
}

TEST_CASE("the weights of linear attention are rows that sum to 1") {
  const auto x = inputs(4, {6, 3}, {6, 3}, {6, 2});
  const Attention a = linear_attention(x[0], x[1], x[2], {.causal = true, .need_weights = true});
  CHECK_NUMBERS(sum(a.weights, -1), std::vector<double>(6, 1.0), 1e-15, 0);
  CHECK(all_zero(triu(a.weights, 1)));
  CHECK_AGREES(a.output, matmul(a.weights, x[2]), 1e-15);
  // gP = gO v^T, open to inspection as in any attention.
  const auto g = grad(a.output, {a.weights, a.raw_scores}, {.grad_outputs = {ones_like(a.output)}});
  CHECK_AGREES(g[0], matmul(ones_like(a.output), x[2].detach(), {.transpose_b = true}), 1e-15);
  CHECK(all_zero(triu(g[1], 1)));
}

TEST_CASE("memory of causal linear attention grows with n, not n squared") {
  const auto bytes = [](std::int64_t n) {
    const auto x = inputs(5, {n, 8}, {n, 8}, {n, 8});
    const std::int64_t before = graph_stats().live_bytes;
    const Tensor output = linear_attention(x[0], x[1], x[2], {.causal = true}).output;
    return static_cast<double>(graph_stats().live_bytes - before);
  };
  const double ratio = bytes(4096) / bytes(1024);
  CHECK(ratio > 3.5);
  CHECK(ratio < 4.5);
}

TEST_CASE("elu + 1 keeps its precision in the tail, and its slope meets at 0") {
  const Tensor x = leaf(tensor(std::vector<double>{-800, -50, -1, 0, 2, kInf}, kDouble));
  const Tensor y = elu_plus_one(x);
  CHECK_NUMBERS(y, (std::vector<double>{0, std::exp(-50), std::exp(-1), 1, 3, kInf}), 1e-15, 0);
  CHECK_NUMBERS(grad(sum(y), x)[0], (std::vector<double>{0, std::exp(-50), std::exp(-1), 1, 1, 1}),
                1e-15, 0);
}

TEST_CASE("a query without features has zero output and no NaN in its gradients") {
  const Tensor q = leaf(tensor(std::vector<double>{-800, 1}, {2, 1}, kDouble));
  const Tensor k = leaf(mat({{1}, {2}}));
  const Tensor v = leaf(mat({{3}, {4}}));
  for (const bool need_weights : {true, false}) {
    const Attention a = linear_attention(q, k, v, {.need_weights = need_weights});
    CHECK(a.output.to_vector()[0] == 0);
    for (const Tensor& g : gradients(a.output, {q, k, v}, ones_like(a.output))) {
      CHECK_FALSE(any_nan(g));
    }
  }
}

TEST_CASE("additive attention by hand") {
  // One hidden unit, so the score is u tanh(q w + k x).
  const Tensor q = mat({{1}, {-2}});
  const Tensor k = mat({{0.5}, {1}, {-1}});
  const Tensor v = mat({{1}, {10}, {100}});
  const Attention a =
      additive_attention(q, k, v, {mat({{0.3}}), mat({{0.7}}), full({1}, 2, kDouble)});
  for (std::size_t i = 0; i < 2; ++i) {
    double total = 0;
    double out = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const double s = 2 * std::tanh(q.to_vector()[i] * 0.3 + k.to_vector()[j] * 0.7);
      CHECK(a.raw_scores.to_vector()[3 * i + j] == doctest::Approx(s).epsilon(1e-14));
      total += std::exp(s);
      out += std::exp(s) * v.to_vector()[j];
    }
    CHECK(a.output.to_vector()[i] == doctest::Approx(out / total).epsilon(1e-13));
    CHECK(a.logsumexp.to_vector()[i] == doctest::Approx(std::log(total)).epsilon(1e-13));
  }
}

TEST_CASE("additive attention: batches, widths that differ, options") {
  Rng rng(6);
  const Tensor q = normals(rng, {2, 1, 4, 3});
  const Tensor k = normals(rng, {3, 5, 2});
  const Tensor v = normals(rng, {3, 5, 6});
  const AdditiveWeights w{normals(rng, {3, 7}), normals(rng, {2, 7}), normals(rng, {7})};
  const Attention a = additive_attention(q, k, v, w, {.mask = Mask::causal(Align::lower_right)});
  CHECK(a.output.shape() == Shape{2, 3, 4, 6});
  CHECK(a.weights.shape() == Shape{2, 3, 4, 5});
  CHECK(a.logsumexp.shape() == Shape{2, 3, 4});
  CHECK(all_zero(triu(a.weights, 2)));
  const Attention one =
      additive_attention(q[1][0], k[2], v[2], w, {.mask = Mask::causal(Align::lower_right)});
  CHECK_AGREES(a.output[1][2], one.output, 1e-14);
  // Scores cannot leave the sum of |score|.
  const double bound = sum(abs(w.score)).item();
  for (const double s : additive_attention(mul(q, 1e6), k, v, w).raw_scores.to_vector()) {
    CHECK(std::abs(s) <= bound * (1 + 1e-12));
  }
  const Tensor bias = normals(rng, {4, 5});
  const Attention shifted = additive_attention(q, k, v, w, {.bias = bias});
  CHECK_SAME(shifted.scores, add(shifted.raw_scores, bias));
  Rng draws(1);
  const Attention dropped =
      additive_attention(q, k, v, w, {.dropout = 1, .rng = &draws, .need_weights = false});
  CHECK(all_zero(dropped.output));
  CHECK_FALSE(dropped.weights.defined());
}
