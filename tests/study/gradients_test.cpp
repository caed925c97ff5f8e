// Probes of parameter gradients: norms and update ratios, the attribution of dL/dWq, the gradient
// noise scale, and the top eigenvalue of a Hessian.
#include "softtape/study/gradients.hpp"

#include <cmath>

#include "ops/support.hpp"
#include "softtape/attention/attention.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/optim/sgd.hpp"
#include "softtape/study/derivatives.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::contains;
using test_support::kDouble;
using test_support::kNaN;
using test_support::leaf;
using test_support::numbers;

TEST_CASE("gradient norms by name, and what an optimiser made of them") {
  const test_support::LeakGuard leaks;
  Tensor w = leaf({{3.0, 0.0}, {0.0, 4.0}}).named("w");
  Tensor idle = leaf({2.0}).named("idle");
  sum(mul(w, numbers({{6.0, 0.0}, {8.0, 0.0}}))).backward();
  const std::vector<GradientNorm> norms = gradient_norms({w, idle});
  REQUIRE(norms.size() == 2);
  CHECK(norms[0].name == "w");
  CHECK(norms[0].gradient == 10);
  CHECK(norms[0].parameter == 5);
  CHECK(norms[1].name == "idle");
  CHECK(norms[1].gradient == 0);

  const State before = parameter_snapshot({w, idle});
  SGD(ParameterList{w, idle}, {.lr = 0.01}).step();
  const std::vector<UpdateRatio> ratios = update_ratios(before, {w, idle});
  REQUIRE(ratios.size() == 2);
  CHECK(ratios[0].name == "w");
  CHECK(ratios[0].update == doctest::Approx(0.1));
  CHECK(ratios[0].parameter == 5);
  CHECK(ratios[0].ratio == doctest::Approx(0.02));
  CHECK(ratios[1].ratio == 0);
  CHECK(w.grad().defined());

  Tensor zero = zeros({2}, kDouble).requires_grad_().named("zero");
  const State at_zero = parameter_snapshot({zero});
  {
    const NoGrad guard;
    zero.fill_(1);
  }
  CHECK(update_ratios(at_zero, {zero})[0].ratio == test_support::kInf);
}

TEST_CASE("update ratios: refused calls") {
  const Tensor w = leaf({1.0, 2.0}).named("w");
  const Tensor other = leaf({1.0, 2.0}).named("other");
  const Tensor longer = leaf({1.0, 2.0, 3.0}).named("w");
  const Tensor single = leaf({1.0, 2.0}, DType::float32).named("w");
  const State before = parameter_snapshot({w});
  CHECK_REFUSED(ValueError,
                "[update_ratios] parameters must be the same before and after: other is "
                "only after",
                update_ratios(before, {w, other}));
  const State both = parameter_snapshot({w, other});
  CHECK_REFUSED(ValueError,
                "[update_ratios] parameters must be the same before and after: other is "
                "only before",
                update_ratios(both, {w}));
  CHECK_REFUSED(ShapeError, "[update_ratios] w must keep its shape: (2,) before, (3,) after",
                update_ratios(before, {longer}));
  CHECK_REFUSED(DtypeError, "[update_ratios] ", update_ratios(before, {single}));
}

TEST_CASE("attribution: five factors whose product is the norm of dL/dWq") {
  // The same queries, keys and values with and without the scale: the Jacobian lets less through,
  // and yet the norm is larger.
  Rng rng(0);
  const std::int64_t d = 32, dk = 256;
  const Tensor x = randn(rng, {16, d}, kDouble);
  const Tensor wk = mul(randn(rng, {d, dk}, kDouble), 1 / std::sqrt(static_cast<double>(d)));
  const Tensor wq = mul(randn(rng, {d, dk}, kDouble), 1 / std::sqrt(static_cast<double>(d)))
                        .detach()
                        .requires_grad_();
  const Tensor k = matmul(x, wk);
  const Tensor v = randn(rng, {16, 8}, kDouble);
  const Tensor target = randn(rng, {16, 8}, kDouble);
  WqAttribution found[2];
  const Scale scales[] = {Scale::inv_sqrt_dk(), Scale::none()};
  for (int i = 0; i < 2; ++i) {
    CAPTURE(i);
    const Attention a = scaled_dot_product_attention(matmul(x, wq), k, v,
                                                     {.mask = Mask::causal(), .scale = scales[i]});
    const auto g = grad(mse_loss(a.output, target), {a.weights, a.scores, wq});
    found[i] = attribute_wq({.gweights = g[0],
                             .gscores = g[1],
                             .k = k,
                             .gwq = g[2],
                             .scale = scales[i].factor(dk),
                             .mask = Mask::causal()});
    CHECK(found[i].product() == doctest::Approx(norm(g[2]).item()).epsilon(1e-12));
    CHECK(found[i].scale == scales[i].factor(dk));
    CHECK(found[i].jacobian < 1);
    CHECK(found[i].upstream ==
          doctest::Approx(norm(where(Mask::causal().visible({16, 16}), g[0], 0)).item()));
    CHECK(contains(fmt::format("{}", found[i]), "|dL/dWq| = "));
  }
  CHECK(found[1].product() > 2 * found[0].product());
  CHECK(found[1].jacobian < found[0].jacobian);
  CHECK(found[1].scale == 16 * found[0].scale);

  const WqAttribution nothing = attribute_wq({.gweights = zeros({2, 3}, kDouble),
                                              .gscores = zeros({2, 3}, kDouble),
                                              .k = zeros({3, 4}, kDouble),
                                              .gwq = zeros({5, 4}, kDouble)});
  CHECK(nothing.product() == 0);
  CHECK_REFUSED(ShapeError, "[attribute_wq] gweights and gscores must have one shape (..., n, m)",
                attribute_wq({.gweights = x, .gscores = k, .k = k, .gwq = k}));
  CHECK_REFUSED(GraphError, "[attribute_wq] gwq", attribute_wq({}));
}

TEST_CASE("noise scale: unbiased estimates of known noise and signal") {
  // g = mu + sigma z in 40 dimensions: tr Cov = 40 sigma^2, |E G|^2 = |mu|^2.
  Rng rng(1);
  const Tensor mu = full({40}, 0.5, kDouble);
  double trace = 0, signal = 0;
  constexpr int kRuns = 200;
  for (int i = 0; i < kRuns; ++i) {
    const Tensor g = add(mu, mul(randn(rng, {8, 40}, kDouble), 3));
    const NoiseScale found = gradient_noise_scale(g);
    trace += found.trace_cov / kRuns;
    signal += found.signal / kRuns;
  }
  CHECK(trace == doctest::Approx(360).epsilon(0.02));
  // |g_mean|^2 alone would be 10 + 360 / 8 = 55.
  CHECK(signal == doctest::Approx(10).epsilon(0.2));

  // Two parameters count together; the two-batch form with b = 1 and B = n is the same estimate.
  const Tensor g = add(mu, randn(rng, {64, 40}, kDouble));
  const Tensor parts[] = {g, mul(g, 2)};
  const NoiseScale one = gradient_noise_scale(parts[0]);
  const NoiseScale two = gradient_noise_scale({parts[0], parts[1]});
  CHECK(two.trace_cov == doctest::Approx(5 * one.trace_cov).epsilon(1e-12));
  CHECK(two.noise_scale == doctest::Approx(one.noise_scale).epsilon(1e-12));
  const double squared = mean(sum(square(g), -1)).item();
  const double of_mean = sum(square(mean(g, 0))).item();
  const NoiseScale batches = gradient_noise_scale({1, squared}, {64, of_mean});
  CHECK(batches.trace_cov == doctest::Approx(one.trace_cov).epsilon(1e-12));
  CHECK(batches.signal == doctest::Approx(one.signal).epsilon(1e-12));
  CHECK(one.noise_scale == doctest::Approx(one.trace_cov / one.signal));

  // Samples that cancel: the signal is below the noise floor.
  const NoiseScale none = gradient_noise_scale(numbers({{1.0}, {-1.0}}));
  CHECK(none.trace_cov == 2);
  CHECK(none.signal == -1);
  CHECK(none.noise_scale == test_support::kInf);
  CHECK(gradient_noise_scale(numbers({{2.0}, {2.0}})).noise_scale == 0);
}

TEST_CASE("noise scale: refused calls") {
  const Tensor one = numbers({{1.0, 2.0}});
  const Tensor two = numbers({{1.0}, {2.0}});
  CHECK_REFUSED(ValueError, "[gradient_noise_scale] needs two samples or more: got 1",
                gradient_noise_scale(one));
  CHECK_REFUSED(ShapeError,
                "[gradient_noise_scale] tensors must have one row per sample: (1, 2) "
                "after 2 samples",
                gradient_noise_scale({two, one}));
  CHECK_REFUSED(ValueError, "[gradient_noise_scale] needs one tensor",
                gradient_noise_scale(std::vector<Tensor>{}));
  CHECK_REFUSED(ValueError,
                "[gradient_noise_scale] batches must be 1 <= small < large: got 8 and 8",
                gradient_noise_scale({8, 1}, {8, 1}));
  CHECK_REFUSED(ValueError, "[gradient_noise_scale] squared norms must be finite",
                gradient_noise_scale({1, kNaN}, {8, 1}));
}

TEST_CASE("top Hessian eigenvalue: of quadratic forms, negative ones too") {
  // f = x A x / 2 with A = Q diag Q^T for a rotation Q.
  const double c = 0.6, s = 0.8;
  for (const double top : {5.0, -5.0}) {
    CAPTURE(top);
    const double other = 2;
    const Tensor a = numbers({{c * c * top + s * s * other, c * s * (top - other)},
                              {c * s * (top - other), s * s * top + c * c * other}});
    const auto f = [&](const Tensor& x) { return mul(sum(mul(x, matmul(a, x))), 0.5); };
    const TopEigenvalue found = top_hessian_eigenvalue(f, numbers({0.3, -0.2}));
    CHECK(found.converged);
    CHECK(found.value == doctest::Approx(top).epsilon(1e-10));
    CHECK(found.residual <= 1e-6 * 5);
    const std::vector<double> v = found.vector.to_vector();
    CHECK(std::abs(v[0] * c + v[1] * s) == doctest::Approx(1).epsilon(1e-10));
  }
  // Through attention, at any rank: against the whole Hessian's norm along the found vector.
  Rng rng(2);
  const Tensor k = randn(rng, {5, 3}, kDouble);
  const auto f = [&](const Tensor& q) {
    return mean(square(scaled_dot_product_attention(q, k, k).output));
  };
  const Tensor q = randn(rng, {2, 3}, kDouble);
  const TopEigenvalue found = top_hessian_eigenvalue(f, q, {.max_iterations = 2000});
  REQUIRE(found.converged);
  const Tensor h = reshape(softtape::hessian(f, q), {6, 6});
  const Tensor v = reshape(found.vector, {6});
  CHECK_NUMBERS(matmul(h, v), mul(v, found.value), 0, 2e-6 * std::abs(found.value));
  for (int i = 0; i < 50; ++i) {
    const Tensor u = randn(rng, {6}, kDouble);
    const double rayleigh = sum(mul(u, matmul(h, u))).item() / sum(square(u)).item();
    CHECK(std::abs(rayleigh) <= std::abs(found.value) * (1 + 1e-9));
  }
}

TEST_CASE("top Hessian eigenvalue: edges and refused calls") {
  const auto linear = [](const Tensor& x) { return sum(x); };
  const TopEigenvalue flat = top_hessian_eigenvalue(linear, numbers({1.0, 2.0}));
  CHECK(flat.value == 0);
  CHECK(flat.converged);
  CHECK(flat.iterations == 1);
  const auto square_of = [](const Tensor& x) { return sum(square(x)); };
  const TopEigenvalue single =
      top_hessian_eigenvalue(square_of, numbers({1.0, 2.0}, DType::float32), {.tolerance = 1e-5});
  CHECK(single.converged);
  CHECK(single.value == doctest::Approx(2).epsilon(1e-5));
  const auto mixed = [](const Tensor& x) { return sum(mul(square(x), numbers({1.0, -1.0}))); };
  CHECK(!top_hessian_eigenvalue(mixed, numbers({1.0, 2.0}), {.max_iterations = 5}).converged);

  const Tensor x = leaf({1.0, 2.0});
  CHECK(top_hessian_eigenvalue(square_of, x).value == doctest::Approx(2));
  CHECK(!x.grad().defined());
  CHECK_REFUSED(ValueError, "[top_hessian_eigenvalue] max_iterations must be 1 or more: got 0",
                top_hessian_eigenvalue(square_of, x, {.max_iterations = 0}));
  CHECK_REFUSED(ValueError, "[top_hessian_eigenvalue] tolerance",
                top_hessian_eigenvalue(square_of, x, {.tolerance = kNaN}));
  CHECK_REFUSED(ValueError, "[top_hessian_eigenvalue] needs numbers",
                top_hessian_eigenvalue(square_of, zeros({0}, kDouble)));
  const auto cube = [](const Tensor& t) { return sum(mul(square(t), t)); };
  CHECK_REFUSED(ValueError, "[top_hessian_eigenvalue] the Hessian must be finite at x",
                top_hessian_eigenvalue(cube, numbers({kNaN, 1.0})));
}
