// create_graph: gradients that can be differentiated again, to third order.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/normalize.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/study/gradcheck.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

// f, f', f'' and f''' of a function of one number.
template <class F>
std::vector<double> derivatives(F f, double at) {
  const Tensor x = leaf(at);
  std::vector<double> values;
  Tensor y = f(x);
  for (int order = 0; order <= 3; ++order) {
    values.push_back(y.item());
    if (order == 3) break;
    y = y.requires_grad() ? grad(y, x, {.create_graph = true, .allow_unused = true})[0] : Tensor();
    if (!y.defined()) y = numbers(0);
  }
  return values;
}

void check_close(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("three derivatives of elementary functions") {
  const LeakGuard guard;
  const double x = 0.7;
  const double e = std::exp(x);
  const double t = std::tanh(x);
  const double s = 1 / (1 + std::exp(-x));
  const double s1 = s * (1 - s);
  check_close(derivatives([](const Tensor& v) { return v * v * v * v; }, x),
              {std::pow(x, 4), 4 * x * x * x, 12 * x * x, 24 * x});
  check_close(derivatives([](const Tensor& v) { return exp(v); }, x), {e, e, e, e});
  check_close(derivatives([](const Tensor& v) { return log(v); }, x),
              {std::log(x), 1 / x, -1 / (x * x), 2 / (x * x * x)});
  check_close(derivatives([](const Tensor& v) { return sin(v); }, x),
              {std::sin(x), std::cos(x), -std::sin(x), -std::cos(x)});
  check_close(derivatives([](const Tensor& v) { return sigmoid(v); }, x),
              {s, s1, s1 * (1 - 2 * s), s1 * (1 - 6 * s + 6 * s * s)});
  const double t1 = 1 - t * t;
  check_close(derivatives([](const Tensor& v) { return tanh(v); }, x),
              {t, t1, -2 * t * t1, t1 * (6 * t * t - 2)});
  check_close(
      derivatives([](const Tensor& v) { return sqrt(v); }, x),
      {std::sqrt(x), 0.5 / std::sqrt(x), -0.25 * std::pow(x, -1.5), 0.375 * std::pow(x, -2.5)});
  check_close(
      derivatives([](const Tensor& v) { return pow(v, 2.5); }, x),
      {std::pow(x, 2.5), 2.5 * std::pow(x, 1.5), 3.75 * std::sqrt(x), 1.875 / std::sqrt(x)});
  check_close(derivatives([](const Tensor& v) { return 1 / v; }, x),
              {1 / x, -1 / (x * x), 2 / (x * x * x), -6 / (x * x * x * x)});
}

TEST_CASE("derivatives that end are zero, or not there") {
  const LeakGuard guard;
  check_close(derivatives([](const Tensor& v) { return v * 3; }, 2), {6, 3, 0, 0});
  check_close(derivatives([](const Tensor& v) { return square(v); }, 2), {4, 4, 2, 0});
  check_close(derivatives([](const Tensor& v) { return relu(v); }, 2), {2, 1, 0, 0});
}

TEST_CASE("the third derivative of softmax is that of its closed form") {
  const LeakGuard guard;
  // softmax(x, 0)[0] is sigmoid(x).
  const double x = 0.7;
  const double s = 1 / (1 + std::exp(-x));
  const double s1 = s * (1 - s);
  const Tensor pick = numbers({1.0, 0.0});
  check_close(derivatives([&](const Tensor& v) { return sum(softmax(v * pick) * pick); }, x),
              {s, s1, s1 * (1 - 2 * s), s1 * (1 - 6 * s + 6 * s * s)});
}

TEST_CASE("mixed second derivatives are symmetric") {
  const LeakGuard guard;
  const Tensor a = leaf({1.0, -0.5});
  const Tensor b = leaf({0.3, 2.0});
  const Tensor y = sum(sin(a * b) + exp(a) * square(b));
  const auto g = grad(y, {a, b}, {.create_graph = true});
  const Tensor u = numbers({1.0, 3.0});
  const Tensor v = numbers({-2.0, 0.5});
  const Tensor ab = grad(sum(g[0] * u), b, {.retain_graph = true})[0];
  const Tensor ba = grad(sum(g[1] * v), a)[0];
  CHECK(sum(ab * v).item() == doctest::Approx(sum(ba * u).item()).epsilon(1e-14));
}

TEST_CASE("a gradient without create_graph is a constant") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  const Tensor y = x * x * x;
  const Tensor first = grad(y, x, {.retain_graph = true})[0];
  CHECK_FALSE(first.requires_grad());
  CHECK_THROWS_SAYING(GraphError, "grad", "needs no gradient", grad(first, x));
  const Tensor again = grad(y, x, {.create_graph = true})[0];
  CHECK(again.requires_grad());
  CHECK(again.item() == first.item());
}

TEST_CASE("create_graph records under NoGrad too, because it was asked for") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  const Tensor y = x * x * x;
  const NoGrad no_grad;
  const Tensor dy = grad(y, x, {.create_graph = true})[0];
  CHECK(dy.requires_grad());
  CHECK(grad(dy, x)[0].item() == 12);
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("gradients flow into grad_outputs") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor v = leaf({1.0, 1.0});
  const Tensor g = grad(square(x), x, {.grad_outputs = {v}, .create_graph = true})[0];
  CHECK_NUMBERS(grad(sum(g * numbers({1.0, 10.0})), v, {.retain_graph = true})[0], {2.0, 40.0});
  CHECK_NUMBERS(grad(sum(g * numbers({1.0, 10.0})), x)[0], {2.0, 20.0});
}

TEST_CASE("a penalty on the gradient trains") {
  const LeakGuard guard;
  Tensor w = leaf({{0.5, -0.3}, {0.2, 0.8}});
  const Tensor x = leaf({{1.0, 2.0}});
  const auto penalised = [&](const Tensor& weights) {
    const Tensor out = sum(tanh(matmul(x, weights)));
    const Tensor g = grad(out, x, {.create_graph = true})[0];
    return out + sum(square(g));
  };
  CHECK(gradcheck(penalised, w).passed);
  penalised(w).backward();
  CHECK(w.grad().defined());
  CHECK(x.grad().defined());  // a leaf below the penalty as well
}

TEST_CASE("second derivatives through an attention head and its loss") {
  const LeakGuard guard;
  Rng rng(7);
  const TensorOptions options{.dtype = DType::float64};
  const Tensor x = randn(rng, {4, 3}, options);
  const Tensor wq = randn(rng, {3, 2}, options);
  const Tensor wk = randn(rng, {3, 2}, options);
  const Tensor wv = randn(rng, {3, 5}, options);
  const Tensor gain = randn(rng, {5}, options);
  const Tensor ids = tensor({0, 4, 2, 1});
  const auto loss = [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g) {
    const Tensor scores = matmul(matmul(x, q), matmul(x, k), {.transpose_b = true});
    const Tensor weights = softmax(scores, {.mask = Mask::causal()});
    return cross_entropy(layer_norm(matmul(weights, matmul(x, v)), g), ids);
  };
  const GradcheckReport report = gradcheck(loss, {wq, wk, wv, gain}, {.order = 2});
  CHECK_MESSAGE(report.passed, to_string(report));
}
