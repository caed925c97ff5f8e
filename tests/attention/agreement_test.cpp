// The composed and the fused path are one function: outputs, logsumexp and all gradients over a
// grid of shapes around tile edges, masks, scales, biases, heads and dtypes.
#include <cstring>

#include "attention/support.hpp"

using namespace attention_test;

namespace {

struct Problem {
  std::string name;
  Shape q, k, v;
  AttentionOptions options;
  Shape bias = {};  // rank 0: none
  bool learned = false;
};

Mask random_mask(const Shape& shape, std::uint64_t seed) {
  Rng rng(seed);
  return Mask::keep(gt(rand(rng, shape, kDouble), 0.4));
}

// n and m from 0 and 1 to 200, around multiples of the tiles' 16, 32 and 64.
std::vector<Problem> shapes() {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {0, 0},   {0, 3},    {3, 0},     {1, 1},     {1, 200},  {200, 1},  {2, 17},
      {15, 16}, {16, 16},  {17, 15},   {31, 33},   {33, 64},  {63, 65},  {64, 64},
      {65, 63}, {97, 128}, {127, 129}, {128, 127}, {129, 64}, {200, 200}};
  std::vector<Problem> all;
  for (const auto& [n, m] : sizes) {
    const std::string name = fmt::format("{} x {}", n, m);
    const std::int64_t dk = 1 + (n + m) % 9;
    const std::int64_t dv = 1 + (n + 2 * m) % 11;
    all.push_back({name, {n, dk}, {m, dk}, {m, dv}, {}});
    all.push_back({name + ", lower right",
                   {n, dk},
                   {m, dk},
                   {m, dv},
                   {.mask = Mask::causal(Align::lower_right)}});
    all.push_back({name + ", upper left and tensor",
                   {2, n, dk},
                   {2, m, dk},
                   {2, m, dv},
                   {.mask = Mask::causal(Align::upper_left) & random_mask({n, m}, 5)}});
    if (n == m) {
      all.push_back({name + ", causal", {n, 16}, {m, 16}, {m, 16}, {.mask = Mask::causal()}});
    }
  }
  return all;
}

std::vector<Problem> settings() {
  const Shape q{2, 3, 37, 8}, k{2, 3, 70, 8}, v{2, 3, 70, 5};
  const Shape qh{2, 37, 12}, kh{2, 70, 12}, vh{2, 70, 15};
  std::vector<Problem> all{
      {"plain", q, k, v, {}},
      {"dv > dk", {20, 3}, {33, 3}, {33, 40}, {}},
      {"dk = 1, dv = 1", {20, 1}, {33, 1}, {33, 1}, {}},
      {"dk = 80", {20, 80}, {33, 80}, {33, 72}, {}},
      {"scale none", q, k, v, {.scale = Scale::none()}},
      {"scale inv_dk", q, k, v, {.scale = Scale::inv_dk()}},
      {"scale 0", q, k, v, {.scale = Scale::value(0)}},
      {"scale -2", q, k, v, {.scale = Scale::value(-2)}},
      {"learned scale", q, k, v, {}, {}, true},
      {"qk norm", q, k, v, {.qk_norm = true}},
      {"qk norm and heads", qh, kh, vh, {.qk_norm = true, .heads = 3}},
      {"padding", q, k, v, {.mask = Mask::key_padding({70, 3})}},
      {"padding to nothing", q, k, v, {.mask = Mask::key_padding({0, 65})}},
      {"window", q, k, v, {.mask = Mask::sliding_window(9, 2)}},
      {"window and causal",
       q,
       k,
       v,
       {.mask = Mask::sliding_window(40, 5) & Mask::causal(Align::lower_right)}},
      {"mask per head", q, k, v, {.mask = random_mask({3, 1, 70}, 1)}},
      {"mask per sequence", q, k, v, {.mask = random_mask({2, 1, 37, 70}, 2)}},
      {"mask of one key", q, k, v, {.mask = random_mask({37, 1}, 3)}},
      {"bias (n, m)", q, k, v, {}, {37, 70}},
      {"bias per head", q, k, v, {}, {3, 1, 70}},
      {"bias per sequence", q, k, v, {}, {2, 1, 37, 1}},
      {"bias of all", q, k, v, {.mask = Mask::sliding_window(9, 20)}, {2, 3, 37, 70}},
      {"bias (1,)", q, k, v, {}, {1}},
      {"bias and causal", q, k, v, {.mask = Mask::causal(Align::lower_right)}, {3, 37, 70}},
      {"bias over two batch axes",
       {2, 3, 2, 5, 4},
       {2, 3, 2, 6, 4},
       {2, 3, 2, 6, 4},
       {},
       {3, 1, 5, 6}},
      {"broadcast keys", q, {70, 8}, {70, 5}, {}},
      {"broadcast queries", {37, 8}, k, v, {}},
      {"broadcast everywhere", {2, 1, 9, 4}, {3, 11, 4}, {1, 1, 11, 2}, {}},
      {"heads", qh, kh, vh, {.heads = 3}},
      {"one head as heads", qh, kh, vh, {.heads = 1}},
      {"heads, no batch", {37, 12}, {70, 12}, {70, 15}, {.heads = 3}},
      {"heads, padding and bias",
       qh,
       kh,
       vh,
       {.mask = Mask::key_padding({60, 9}), .heads = 3},
       {3, 1, 70}},
      {"heads, broadcast keys", qh, {70, 12}, {70, 15}, {.heads = 3}},
      {"heads, causal", {130, 8}, {130, 8}, {130, 8}, {.mask = Mask::causal(), .heads = 2}},
      {"empty batch", {0, 5, 4}, {0, 6, 4}, {0, 6, 3}, {}},
      {"no width of values", {5, 4}, {6, 4}, {6, 0}, {}},
  };
  return all;
}

struct Outcome {
  Attention a;
  std::vector<Tensor> gradients;
};

std::vector<Tensor> inputs_of(const Problem& p, DType dtype) {
  Rng rng(7);
  std::vector<Tensor> x{normals(rng, p.q), normals(rng, p.k), normals(rng, p.v)};
  if (p.bias.rank() > 0) x.push_back(normals(rng, p.bias));
  if (p.learned) x.push_back(full({1}, 0.4, kDouble));
  for (Tensor& t : x) t = to(t, dtype);
  return x;
}

Outcome run(const Problem& p, const std::vector<Tensor>& inputs, bool fused) {
  const std::vector<Tensor> x = leaves(inputs);
  AttentionOptions options = p.options;
  options.need_weights = !fused;
  if (p.bias.rank() > 0) options.bias = x[3];
  if (p.learned) options.scale = Scale::learned(x.back());
  Outcome result;
  result.a = scaled_dot_product_attention(x[0], x[1], x[2], options);
  Rng rng(8);
  const Tensor gy = normals(rng, result.a.output.shape(), x[0].dtype());
  result.gradients = gradients(result.a.output, x, gy);
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.data<double>();
  const auto y = b.data<double>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

void check_agreement(const Problem& p) {
  CAPTURE(p.name);
  // float64: 1e-12 of the largest number. float32: 2e-5, from rounding of scores and sums.
  for (const DType dtype : {DType::float64, DType::float32}) {
    CAPTURE(to_string(dtype));
    const double bound = dtype == DType::float64 ? 1e-12 : 2e-5;
    const std::vector<Tensor> x = inputs_of(p, dtype);
    const Outcome composed = run(p, x, false);
    const Outcome fused = run(p, x, true);
    CHECK(fused.a.output.shape() == composed.a.output.shape());
    CHECK(fused.a.logsumexp.shape() == composed.a.logsumexp.shape());
    CHECK_AGREES(fused.a.output, composed.a.output, bound);
    CHECK_NUMBERS(fused.a.logsumexp, composed.a.logsumexp.to_vector(), bound, bound);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CAPTURE(i);
      CHECK_AGREES(fused.gradients[i], composed.gradients[i], bound);
    }
    CHECK_FALSE(fused.a.weights.defined());
    CHECK_FALSE(fused.a.scores.defined());
    CHECK_FALSE(fused.a.raw_scores.defined());
    // logsumexp is that of the scores, and the weights are exp(scores - logsumexp).
    CHECK_NUMBERS(composed.a.logsumexp, logsumexp(composed.a.scores, -1).to_vector(), bound, bound);
  }
}

}  // namespace

TEST_CASE("both paths agree for every number of queries and keys") {
  for (const Problem& p : shapes()) check_agreement(p);
}

TEST_CASE("both paths agree for every mask, scale, bias, and place of heads") {
  for (const Problem& p : settings()) check_agreement(p);
}

TEST_CASE("both paths agree to second order") {
  for (Problem p : settings()) {
    if (p.q.numel() > 4000) continue;
    CAPTURE(p.name);
    std::vector<std::vector<Tensor>> results;
    for (const bool fused : {false, true}) {
      const std::vector<Tensor> x = leaves(inputs_of(p, DType::float64));
      AttentionOptions options = p.options;
      options.need_weights = !fused;
      if (p.bias.rank() > 0) options.bias = x[3];
      if (p.learned) options.scale = Scale::learned(x.back());
      const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], options);
      Rng rng(9);
      const Tensor gy = normals(rng, a.output.shape());
      std::vector<Tensor> directions;
      for (const Tensor& t : x) directions.push_back(normals(rng, t.shape()));
      results.push_back(second(gradients(a.output, x, gy, true), x, directions));
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      CAPTURE(i);
      CHECK_AGREES(results[1][i], results[0][i], 1e-12);
    }
  }
}

TEST_CASE("any subset of inputs gets the gradients that all of them get, on both paths") {
  const Problem p{
      "", {2, 19, 6}, {2, 35, 6}, {2, 35, 3}, {.mask = Mask::sliding_window(20, 3)}, {19, 35}};
  const std::vector<Tensor> inputs = inputs_of(p, DType::float64);
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    const Outcome all = run(p, inputs, fused);
    for (unsigned bits = 1; bits < 15; ++bits) {
      CAPTURE(bits);
      std::vector<Tensor> x;
      std::vector<Tensor> wanted;
      std::vector<std::size_t> which;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        x.push_back(inputs[i].detach().clone());
        if (!(bits >> i & 1u)) continue;
        wanted.push_back(x.back().requires_grad_());
        which.push_back(i);
      }
      AttentionOptions options = p.options;
      options.bias = x[3];
      options.need_weights = !fused;
      const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], options);
      Rng rng(8);
      const auto some = gradients(a.output, wanted, normals(rng, a.output.shape()));
      for (std::size_t i = 0; i < some.size(); ++i) {
        CHECK(same_bits(some[i], all.gradients[which[i]]));
      }
    }
  }
}

TEST_CASE("[thread] results are bit-identical at one thread and at two") {
  std::vector<Problem> problems = settings();
  problems.push_back({"long", {200, 64}, {200, 64}, {200, 64}, {.mask = Mask::causal()}});
  for (const Problem& p : problems) {
    CAPTURE(p.name);
    const std::vector<Tensor> x = inputs_of(p, DType::float64);
    for (const bool fused : {false, true}) {
      CAPTURE(fused);
      std::vector<Outcome> outcomes;
      for (const int threads : {1, 2, 2}) {
        const ThreadCount count(threads);
        outcomes.push_back(run(p, x, fused));
      }
      for (const std::size_t other : {1u, 2u}) {
        CHECK(same_bits(outcomes[other].a.output, outcomes[0].a.output));
        CHECK(same_bits(outcomes[other].a.logsumexp, outcomes[0].a.logsumexp));
        for (std::size_t i = 0; i < x.size(); ++i) {
          CHECK(same_bits(outcomes[other].gradients[i], outcomes[0].gradients[i]));
        }
      }
    }
  }
}

TEST_CASE("an input computed from another one is not counted twice when the fused rule records") {
  // k = 2 q inside the graph: the rule must stop at k, not walk on to q.
  Rng rng(4);
  const std::vector<Tensor> numbers{normals(rng, {5, 3}), normals(rng, {5, 2})};
  std::vector<std::vector<Tensor>> results;
  for (const bool need_weights : {true, false}) {
    const std::vector<Tensor> x = leaves(numbers);
    const Tensor k = mul(x[0], 2);
    const Attention a = scaled_dot_product_attention(
        x[0], k, x[1], {.mask = Mask::causal(), .need_weights = need_weights});
    const auto first = gradients(a.output, x, ones_like(a.output), true);
    results.push_back(first);
    results.push_back(second(first, x, numbers));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK_AGREES(results[2][i], results[0][i], 1e-13);
    CHECK_AGREES(results[3][i], results[1][i], 1e-13);
  }
}
