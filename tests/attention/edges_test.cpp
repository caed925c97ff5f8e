// Where attention breaks elsewhere: rows that see nothing, no keys, huge scores, NaN and Inf, the
// future. Values, gradients and second derivatives, on every path.
#include <functional>

#include "attention/support.hpp"

using namespace attention_test;

namespace {

struct Path {
  std::string name;
  std::function<Attention(const std::vector<Tensor>&, const Mask&)> attend;
};

AttentionOptions options_of(const Mask& mask, bool need_weights) {
  return {.mask = mask, .need_weights = need_weights};
}

// Every softmax attention there is, as a function of q, k, v and a mask.
std::vector<Path> paths(DType dtype = DType::float64) {
  std::vector<Path> all;
  for (const bool need_weights : {true, false}) {
    all.push_back(
        {need_weights ? "composed" : "fused", [=](const std::vector<Tensor>& x, const Mask& mask) {
           return scaled_dot_product_attention(x[0], x[1], x[2], options_of(mask, need_weights));
         }});
  }
  all.push_back({"soft cap", [](const std::vector<Tensor>& x, const Mask& mask) {
                   AttentionOptions options = options_of(mask, true);
                   options.soft_cap = 5;
                   return scaled_dot_product_attention(x[0], x[1], x[2], options);
                 }});
  all.push_back({"qk norm", [](const std::vector<Tensor>& x, const Mask& mask) {
                   AttentionOptions options = options_of(mask, false);
                   options.qk_norm = true;
                   return scaled_dot_product_attention(x[0], x[1], x[2], options);
                 }});
  all.push_back({"bias", [](const std::vector<Tensor>& x, const Mask& mask) {
                   AttentionOptions options = options_of(mask, false);
                   options.bias = full({1, 1}, 0.5, {.dtype = x[0].dtype()});
                   return scaled_dot_product_attention(x[0], x[1], x[2], options);
                 }});
  all.push_back({"dropout", [](const std::vector<Tensor>& x, const Mask& mask) {
                   Rng rng(5);
                   AttentionOptions options = options_of(mask, true);
                   options.dropout = 0.2;
                   options.rng = &rng;
                   return scaled_dot_product_attention(x[0], x[1], x[2], options);
                 }});
  all.push_back({"additive", [dtype](const std::vector<Tensor>& x, const Mask& mask) {
                   Rng rng(6);
                   const std::int64_t dk = x[0].dim(-1);
                   const AdditiveWeights w{normals(rng, {dk, 3}, dtype),
                                           normals(rng, {dk, 3}, dtype), normals(rng, {3}, dtype)};
                   return additive_attention(x[0], x[1], x[2], w, {.mask = mask});
                 }});
  return all;
}

// Output, gradients, and second derivatives along the inputs themselves.
struct Derivatives {
  Attention a;
  std::vector<Tensor> first, second;
};
Derivatives derivatives(const Path& path, const std::vector<Tensor>& inputs, const Mask& mask,
                        const Tensor& gy) {
  Derivatives d;
  {
    const std::vector<Tensor> x = leaves(inputs);
    d.a = path.attend(x, mask);
    d.first = gradients(d.a.output, x, gy);
  }
  const std::vector<Tensor> x = leaves(inputs);
  std::vector<Tensor> ones_of;
  for (const Tensor& t : inputs) ones_of.push_back(ones_like(t));
  d.second = second(gradients(path.attend(x, mask).output, x, gy, true), x, ones_of);
  return d;
}

bool finite(const Tensor& x) { return all(isfinite(x)).item() == 1; }

}  // namespace

TEST_CASE("a row that sees nothing: zero weights, output, gradient; its neighbours do not notice") {
  Rng rng(1);
  const std::vector<Tensor> x{normals(rng, {3, 4}), normals(rng, {5, 4}), normals(rng, {5, 2})};
  const Tensor gy = normals(rng, {3, 2});
  const Mask hidden = Mask::masked_out(flags({{false}, {true}, {false}}));
  for (const Path& path : paths()) {
    CAPTURE(path.name);
    const Derivatives d = derivatives(path, x, hidden, gy);
    CHECK(all_zero(d.a.output[1]));
    CHECK(d.a.logsumexp.to_vector()[1] == -kInf);
    if (d.a.weights.defined()) {
      CHECK(all_zero(d.a.weights[1]));
      for (const double s : d.a.scores[1].to_vector()) CHECK(s == -kInf);
    }
    CHECK(all_zero(d.first[0][1]));
    CHECK(all_zero(d.second[0][1]));
    for (const Tensor& g : d.first) CHECK(finite(g));
    for (const Tensor& g : d.second) CHECK(finite(g));
    // The other rows, alone.
    if (path.name == "dropout") continue;
    const std::vector<Tensor> row{slice(x[0], 0, 2), x[1], x[2]};
    const Derivatives alone = derivatives(path, row, {}, slice(gy, 0, 2));
    CHECK_NUMBERS(d.a.output[2], alone.a.output.to_vector(), 1e-14, 1e-15);
    CHECK_NUMBERS(d.first[0][2], alone.first[0].to_vector(), 1e-13, 1e-15);
  }
}

TEST_CASE("no row sees anything, no keys, no queries") {
  Rng rng(2);
  struct Sizes {
    std::int64_t n, m;
    Mask mask;
  };
  const Sizes all[] = {{3, 4, Mask::masked_out(flags({true}))},
                       {3, 4, Mask::key_padding({0})},
                       {3, 0, {}},
                       {0, 4, {}},
                       {0, 0, Mask::causal()}};
  for (const Sizes& s : all) {
    for (const Path& path : paths()) {
      CAPTURE(path.name);
      CAPTURE(s.n);
      CAPTURE(s.m);
      const std::vector<Tensor> x{normals(rng, {s.n, 2}), normals(rng, {s.m, 2}),
                                  normals(rng, {s.m, 3})};
      const Derivatives d = derivatives(path, x, s.mask, normals(rng, {s.n, 3}));
      CHECK(d.a.output.shape() == Shape{s.n, 3});
      CHECK(all_zero(d.a.output));
      CHECK(d.a.logsumexp.shape() == Shape{s.n});
      for (const double l : d.a.logsumexp.to_vector()) CHECK(l == -kInf);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(d.first[i].shape() == x[i].shape());
        CHECK(all_zero(d.first[i]));
        CHECK(all_zero(d.second[i]));
      }
    }
  }
  for (const bool need_weights : {true, false}) {
    const std::vector<Tensor> x =
        leaves({normals(rng, {2, 3, 2}), normals(rng, {0, 2}), normals(rng, {0, 4})});
    const Attention a = linear_attention(x[0], x[1], x[2], {.need_weights = need_weights});
    CHECK(a.output.shape() == Shape{2, 3, 4});
    CHECK(all_zero(a.output));
    for (const Tensor& g : gradients(a.output, x, ones_like(a.output))) CHECK(all_zero(g));
  }
}

TEST_CASE("the future has gradient exactly 0.0 in every causal variant, first and second") {
  // Only rows up to `last` are in the loss.
  const std::int64_t n = 150;
  const std::int64_t last = 40;
  Rng rng(3);
  const std::vector<Tensor> x{normals(rng, {n, 4}), normals(rng, {n, 4}), normals(rng, {n, 3})};
  const Tensor some = normals(rng, {last + 1, 3});
  const Tensor gy = pad(some, {{0, n - last - 1}, {0, 0}});
  std::vector<Path> all = paths();
  for (const bool need_weights : {true, false}) {
    all.push_back({need_weights ? "linear, quadratic form" : "linear",
                   [=](const std::vector<Tensor>& t, const Mask&) {
                     return linear_attention(t[0], t[1], t[2],
                                             {.causal = true, .need_weights = need_weights});
                   }});
  }
  for (const Path& path : all) {
    for (const Mask& mask : {Mask::causal(), Mask::causal() & Mask::sliding_window(50, 0)}) {
      CAPTURE(path.name);
      const Derivatives d = derivatives(path, x, mask, gy);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(all_zero(slice(d.first[i], 0, last + 1)));
        CHECK(all_zero(slice(d.second[i], 0, last + 1)));
        CHECK_FALSE(all_zero(slice(d.first[i], 0, 0, last + 1)));
      }
      // And the value does not depend on the future at all.
      std::vector<Tensor> changed = x;
      for (Tensor& t : changed) {
        t = cat({slice(t, 0, 0, last + 1), mul(slice(t, 0, last + 1), -3)}, 0);
      }
      if (path.name == "dropout") continue;
      CHECK_SAME(slice(path.attend(changed, mask).output, 0, 0, last + 1),
                 slice(path.attend(x, mask).output, 0, 0, last + 1));
    }
  }
}

TEST_CASE("a hidden key has no effect, whatever it holds") {
  Rng rng(4);
  const Tensor q = normals(rng, {20, 3});
  const Tensor k = normals(rng, {30, 3});
  const Tensor v = normals(rng, {30, 2});
  const Tensor gy = normals(rng, {20, 2});
  for (const double bad : {kNaN, kInf, -kInf, 1e300}) {
    std::vector<double> numbers = k.to_vector();
    for (std::size_t i = 3 * 17; i < numbers.size(); ++i) numbers[i] = bad;
    const Tensor spoilt = tensor(numbers, {30, 3}, kDouble);
    for (const Path& path : paths()) {
      if (path.name == "additive") continue;  // its keys pass a product with uk first
      CAPTURE(path.name);
      CAPTURE(bad);
      const Mask mask = Mask::key_padding({17}) & Mask::sliding_window(12, 20);
      const Derivatives with = derivatives(path, {q, spoilt, v}, mask, gy);
      const Derivatives without = derivatives(path, {q, k, v}, mask, gy);
      CHECK_SAME(with.a.output, without.a.output);
      CHECK_SAME(with.a.logsumexp, without.a.logsumexp);
      CHECK_SAME(with.first[0], without.first[0]);
      CHECK_SAME(with.first[2], without.first[2]);
      // The norm of a spoilt key is differentiated in its own row.
      const std::int64_t rows = path.name == "qk norm" ? 17 : 30;
      const auto top = [&](const Tensor& t) { return slice(t, 0, 0, std::min(rows, t.dim(0))); };
      CHECK_SAME(top(with.first[1]), top(without.first[1]));
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK_AGREES(top(with.second[i]), top(without.second[i]), 1e-13);
      }
    }
  }
}

TEST_CASE("a key that only the future sees has no effect on the past") {
  Rng rng(5);
  const Tensor q = normals(rng, {40, 3});
  const Tensor v = normals(rng, {40, 2});
  std::vector<double> numbers = normals(rng, {40, 3}).to_vector();
  for (std::size_t i = 0; i < 3; ++i) numbers[25 * 3 + i] = kNaN;
  const Tensor k = tensor(numbers, {40, 3}, kDouble);
  for (const bool need_weights : {true, false}) {
    CAPTURE(need_weights);
    const std::vector<Tensor> x = leaves({q, k, v});
    const Attention a =
        scaled_dot_product_attention(x[0], x[1], x[2], options_of(Mask::causal(), need_weights));
    CHECK(finite(slice(a.output, 0, 0, 25)));
    CHECK(any_nan(a.output[25]));
    CHECK(any_nan(a.output[39]));
    const auto g = gradients(a.output, x, ones_like(a.output));
    CHECK(finite(slice(g[0], 0, 0, 25)));
    CHECK(any_nan(g[0][39]));
    CHECK(any_nan(g[1][0]));  // row 39 has no weights, so its keys have no gradient
  }
}

TEST_CASE("a NaN query poisons its own row alone; a row that sees nothing may hold it") {
  Rng rng(6);
  std::vector<double> numbers = normals(rng, {6, 3}).to_vector();
  numbers[3 * 2] = kNaN;
  const Tensor q = tensor(numbers, {6, 3}, kDouble);
  const Tensor k = normals(rng, {7, 3});
  const Tensor v = normals(rng, {7, 2});
  for (const bool need_weights : {true, false}) {
    CAPTURE(need_weights);
    const Attention a = scaled_dot_product_attention(q, k, v, options_of({}, need_weights));
    for (std::int64_t i = 0; i < 6; ++i) CHECK(any_nan(a.output[i]) == (i == 2));

    const Mask mask =
        Mask::masked_out(flags({{false}, {false}, {true}, {false}, {false}, {false}}));
    const std::vector<Tensor> x = leaves({q, k, v});
    const Attention hidden =
        scaled_dot_product_attention(x[0], x[1], x[2], options_of(mask, need_weights));
    CHECK(all_zero(hidden.output[2]));
    for (const Tensor& g : gradients(hidden.output, x, ones_like(hidden.output))) CHECK(finite(g));
  }
}

TEST_CASE("NaN in a hidden value: IEEE on the composed path, never read on the fused one") {
  const Tensor q = mat({{1, 0.5}});
  const Tensor k = mat({{0.5, 1}, {-1, 2}});
  const Tensor v = tensor(std::vector<double>{1, 2, kNaN, -1}, {2, 2}, kDouble);
  const Mask mask = Mask::keep(flags({{true, false}}));
  CHECK(std::isnan(scaled_dot_product_attention(q, k, v, {.mask = mask}).output.to_vector()[0]));
  CHECK(scaled_dot_product_attention(q, k, v, {.mask = mask}).output.to_vector()[1] == 2);
  const Attention fused =
      scaled_dot_product_attention(q, k, v, {.mask = mask, .need_weights = false});
  CHECK_NUMBERS(fused.output, (std::vector<double>{1, 2}), 0, 0);
}

TEST_CASE("an infinite score: +Inf gives NaN so that divergence is seen, -Inf gives weight 0") {
  const Tensor k = mat({{1}, {0.5}});
  const Tensor v = mat({{1}, {2}});
  for (const bool need_weights : {true, false}) {
    CAPTURE(need_weights);
    const AttentionOptions options = options_of({}, need_weights);
    const Tensor up = full({1, 1}, kInf, kDouble);
    CHECK(any_nan(scaled_dot_product_attention(up, k, v, options).output));
    AttentionOptions shut = options;
    shut.bias = tensor(std::vector<double>{-kInf, 0}, {1, 2}, kDouble);
    CHECK(scaled_dot_product_attention(mat({{3}}), k, v, shut).output.item() == 2);
    // A row that is -Inf throughout is a row that sees nothing.
    shut.bias = full({1, 2}, -kInf, kDouble);
    const std::vector<Tensor> x = leaves({mat({{3}}), k, v});
    const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], shut);
    CHECK(a.output.item() == 0);
    CHECK(a.logsumexp.item() == -kInf);
    for (const Tensor& g : gradients(a.output, x, ones({1, 1}, kDouble))) CHECK(all_zero(g));
  }
}

TEST_CASE("scores of 1e30 are one-hot or tied, never NaN") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor q = to(mat({{1e15}, {-1e15}, {0}}), dtype);
    const Tensor k = to(mat({{1e15}, {-1e15}, {1e15}}), dtype);
    const Tensor v = to(mat({{1}, {2}, {4}}), dtype);
    for (const bool need_weights : {true, false}) {
      CAPTURE(to_string(dtype));
      CAPTURE(need_weights);
      const std::vector<Tensor> x = leaves({q, k, v});
      AttentionOptions options = options_of({}, need_weights);
      options.scale = Scale::none();
      const Attention a = scaled_dot_product_attention(x[0], x[1], x[2], options);
      CHECK_NUMBERS(a.output, (std::vector<double>{2.5, 2, 7.0 / 3}), 1e-6, 0);
      CHECK(a.logsumexp.to_vector()[0] == doctest::Approx(1e30).epsilon(1e-6));
      for (const Tensor& g : gradients(a.output, x, ones_like(a.output))) CHECK(finite(g));
      if (dtype == DType::float32) continue;  // 1e45 does not fit
      const std::vector<Tensor> y = leaves({q, k, v});
      const auto first = gradients(scaled_dot_product_attention(y[0], y[1], y[2], options).output,
                                   y, ones_like(a.output), true);
      for (const Tensor& g : second(first, y, {ones_like(q), ones_like(k), ones_like(v)})) {
        CHECK_FALSE(any_nan(g));
      }
    }
  }
}

TEST_CASE("equal scores get bit-equal weights wherever they stand") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const std::int64_t m : {2, 3, 7, 16, 17, 31, 100}) {
      const Tensor q = to(mat({{0.37}}), dtype);
      const Tensor k = full({m, 1}, 1.3, {.dtype = dtype});
      const auto w = scaled_dot_product_attention(q, k, k).weights.to_vector();
      for (const double p : w) CHECK(p == w[0]);
    }
  }
}

TEST_CASE("attention: key padding with heads, and no keys at all, gives zeros") {
  // Rows without keys once read the lengths of sequences that are not there.
  const Tensor q = ones({2, 3, 8}, {.dtype = DType::float64, .requires_grad = true});
  const Tensor none = zeros({2, 0, 8}, {.dtype = DType::float64});
  for (const bool need_weights : {true, false}) {
    const Attention a = scaled_dot_product_attention(
        q, none, none,
        {.mask = Mask::key_padding({0, 0}), .heads = 4, .need_weights = need_weights});
    CHECK(a.output.shape() == Shape{2, 3, 8});
    for (const double x : a.output.to_vector()) CHECK(x == 0);
    for (const double x : grad(sum(a.output), q)[0].to_vector()) CHECK(x == 0);
  }
}

TEST_CASE("attention: a mask keeps its own copy of the caller's tensor") {
  Rng rng(3);
  const Tensor x = randn(rng, {3, 4}, {.dtype = DType::float64, .requires_grad = true});
  for (const bool need_weights : {true, false}) {
    Tensor visible = tril(ones({3, 3})) > 0;
    const auto loss = [&] {
      return sum(square(scaled_dot_product_attention(
                            x, x, x, {.mask = Mask::keep(visible), .need_weights = need_weights})
                            .output));
    };
    const Tensor expected = grad(loss(), x)[0];
    const Tensor changed = loss();
    visible.fill_(1);
    CHECK(equal(grad(changed, x)[0], expected));
  }
}

TEST_CASE("attention: values with more leading axes than queries give the same on both paths") {
  Rng rng(4);
  const Tensor q = randn(rng, {3, 2}, {.dtype = DType::float64});
  const Tensor v = randn(rng, {2, 3, 2}, {.dtype = DType::float64});
  for (const Mask& mask : {Mask::causal(), Mask::key_padding({1, 2})}) {
    const Attention a = scaled_dot_product_attention(q, q, v, {.mask = mask});
    const Attention b =
        scaled_dot_product_attention(q, q, v, {.mask = mask, .need_weights = false});
    CHECK(a.weights.shape() == Shape{2, 3, 3});
    CHECK(a.logsumexp.shape() == b.logsumexp.shape());
    CHECK(allclose(a.output, b.output, {.rtol = 1e-12}));
  }
}

TEST_CASE("attention: a NaN in a value row that nothing sees stays out of second derivatives") {
  const Tensor q = ones({3, 2}, {.dtype = DType::float64, .requires_grad = true});
  const Tensor v =
      tensor({{1.0, 2.0}, {0.5, -1.0}, {std::nan(""), std::nan("")}}, {.dtype = DType::float64});
  const Mask mask = Mask::keep(tensor({true, true, false}));
  const Attention a = scaled_dot_product_attention(q, q, v, {.mask = mask, .need_weights = false});
  const Tensor g = grad(sum(square(a.output)), q, {.create_graph = true})[0];
  for (const double x : grad(sum(square(g)), q)[0].to_vector()) CHECK(std::isfinite(x));
}

TEST_CASE("attention: a soft cap that float32 cannot hold is refused") {
  const Tensor x = ones({2, 2});
  for (const double cap : {1e39, 1e-39}) {
    CHECK_THROWS_AS(scaled_dot_product_attention(x, x, x, {.soft_cap = cap}), ValueError);
  }
}
