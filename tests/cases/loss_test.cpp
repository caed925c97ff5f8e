// Hard cases of losses, normalisation, dropout, random numbers and the gradient checker.
#include "softtape/ops/loss.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/normalize.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

namespace {

double loss_tolerance(DType dtype, double rtol = 1e-12) {
  return dtype == DType::float64 ? rtol : 1e-6;
}

// Loss and gradient, in both float types, by cross_entropy and by nll_loss of log_softmax.
void check_loss(const NestedNumbers& logits, const Tensor& target, CrossEntropyOptions options,
                double loss, const NestedNumbers& gradient, double rtol = 1e-12,
                bool composed = true) {
  for (const DType dtype : kFloats) {
    CAPTURE(to_string(dtype));
    const Tensor x = numbers(logits, dtype);
    const double t = loss_tolerance(dtype, rtol);
    const auto [y, gx] =
        evaluate([&](const Tensor& z) { return cross_entropy(z, target, options); }, x);
    CHECK_NUMBERS(y, loss, t);
    CHECK_NUMBERS(gx, gradient, t, t / 100);
    if (!composed) continue;
    const auto [l, gl] = evaluate(
        [&](const Tensor& z) {
          return nll_loss(log_softmax(z), target, {.ignore_index = options.ignore_index});
        },
        x);
    CHECK_NUMBERS(l, loss, t);
    CHECK_NUMBERS(gl, gradient, t, t);
  }
}

}  // namespace

TEST_CASE("CE-001 equal huge logits cost ln 3") {
  const LeakGuard guard;
  const double huge = 3e12;
  const double third = 0.3333333333333333;
  check_loss({{huge, huge, huge}}, tensor({0}), {}, 1.0986122886681098,
             {{-2 * third, third, third}}, 1e-15);
  check_loss({{-huge, -huge, -huge}}, tensor({2}), {}, 1.0986122886681098,
             {{third, third, -2 * third}}, 1e-15);
}

TEST_CASE("CE-004 a target at -Inf costs +Inf, with a finite gradient") {
  const LeakGuard guard;
  check_loss({{0.0, -kInf, 1.0}}, tensor({1}), {}, kInf,
             {{0.2689414213699951, -1.0, 0.7310585786300049}});
  // A class at -Inf that is not the target costs nothing.
  check_loss({{0.0, -kInf, 1.0}}, tensor({2}), {}, 0.31326168751822286,
             {{0.2689414213699951, 0.0, -0.2689414213699951}});
}

TEST_CASE("CE-005 the mean is over targets that are not ignored") {
  const LeakGuard guard;
  const Tensor target = tensor({2, -1, 0});
  check_loss({{0.5, -0.25, 1.0}, {2.0, 0.0, -1.0}, {0.1, 0.2, 0.3}}, target, {.ignore_index = -1},
             0.9200622253208643,
             {{0.16020055451330653, 0.0756733836826496, -0.23587393819595612},
              {0.0, 0.0, 0.0},
              {-0.34969519732213633, 0.1661124967666736, 0.18358270055546272}});
  CHECK(cross_entropy_count(target, -1) == 2);
  for (const DType dtype : kFloats) {
    // An ignored row may hold anything.
    const auto [y, gx] =
        evaluate([&](const Tensor& z) { return cross_entropy(z, target, {.ignore_index = -1}); },
                 numbers({{0.5, -0.25, 1.0}, {kNaN, kInf, -kInf}, {0.1, 0.2, 0.3}}, dtype));
    CHECK_NUMBERS(y, 0.9200622253208643, loss_tolerance(dtype));
    CHECK_NUMBERS(gx[1], {0.0, 0.0, 0.0});
    // All ignored: loss 0, gradient 0.
    const auto none = evaluate(
        [&](const Tensor& z) {
          return cross_entropy(z, tensor({-1, -1}), {.ignore_index = -1});
        },
        numbers({{0.5, 2.0}, {1.0, 3.0}}, dtype));
    CHECK(none.output.item() == 0);
    CHECK_NUMBERS(none.gradient, {{0.0, 0.0}, {0.0, 0.0}});
  }
}

TEST_CASE("CE-007 a label out of range is refused") {
  const LeakGuard guard;
  const Tensor x = leaf({{1.0, 2.0, 3.0}});
  for (const std::int64_t bad : {3, -1, -100}) {
    const Tensor target = tensor(std::vector<std::int64_t>{bad});
    CHECK_THROWS_SAYING(ValueError, "cross_entropy", std::to_string(bad), cross_entropy(x, target));
    CHECK_THROWS_SAYING(ValueError, "nll_loss", std::to_string(bad), nll_loss(x, target));
    CHECK_THROWS_AS(cross_entropy(x, target, {.ignore_index = 7}), ValueError);
    CHECK_THROWS_AS(gather(x, 1, reshape(target, {1, 1})), ValueError);
    CHECK_THROWS_AS(one_hot(target, 3), ValueError);
  }
  CHECK_THROWS_AS(cross_entropy(x, tensor({1.0})), DtypeError);
}

TEST_CASE("CE-010 the fused loss is the composed one") {
  const LeakGuard guard;
  check_loss(
      {{0.7, -0.2, 0.1, 1.5}}, tensor({3}), {}, 0.6305318500313727,
      {{0.23918167962594591, 0.09724401410170581, 0.13126568891923265, -0.46769138264688437}});
  for (const DType dtype : kFloats) {
    const auto [y, gx] =
        evaluate([](const Tensor& z) { return neg(select(select(log(softmax(z)), 0, 0), 0, 3)); },
                 numbers({{0.7, -0.2, 0.1, 1.5}}, dtype));
    CHECK_NUMBERS(y, 0.6305318500313727, loss_tolerance(dtype));
    CHECK_NUMBERS(
        gx, {{0.23918167962594591, 0.09724401410170581, 0.13126568891923265, -0.46769138264688437}},
        loss_tolerance(dtype));
  }
  const auto loss = [](const Tensor& z) { return cross_entropy(z, tensor({3, 0})); };
  const GradcheckReport report =
      gradcheck(loss, numbers({{0.7, -0.2, 0.1, 1.5}, {0.3, 2.0, -1.0, 0.0}}), {.order = 2});
  CHECK_MESSAGE(report.passed, to_string(report));
}

TEST_CASE("CE-011 cross entropy takes logits") {
  const LeakGuard guard;
  const Tensor logits = numbers({{2.0, 0.0}});
  CHECK_NUMBERS(cross_entropy(logits, tensor({0})), 0.1269280110429725, 1e-12);
  CHECK_NUMBERS(cross_entropy(softmax(logits), tensor({0})), 0.38316597879371506, 1e-12);
}

TEST_CASE("CE-014 label smoothing is uniform over all classes") {
  const LeakGuard guard;
  check_loss({{1.0, -0.5, 0.25}}, tensor({0}), {.label_smoothing = 0.1}, 0.6029757438553098,
             {{-0.3435356696765207, 0.09826831381358102, 0.24526735586293968}}, 1e-12, false);
  for (const DType dtype : kFloats) {
    const Tensor x = numbers({{1.0, -kInf, 0.25}}, dtype);
    const auto [y, gx] = evaluate(
        [](const Tensor& z) { return cross_entropy(z, tensor({0}), {.label_smoothing = 0.1}); }, x);
    CHECK(y.item() == kInf);
    CHECK(all_finite(gx));
  }
  for (const double bad : {-0.1, 1.1, kNaN}) {
    CHECK_THROWS_AS(cross_entropy(numbers({{1.0, 2.0}}), tensor({0}), {.label_smoothing = bad}),
                    ValueError);
  }
}

TEST_CASE("NRM-001 layer norm of a constant row is its bias") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const double constant : {5.0, 0.0, -3e6}) {
      const Tensor x = full({1, 4}, constant, {.dtype = dtype, .requires_grad = true});
      const Tensor gamma = leaf({1.0, 2.0, 1.0, 1.0}, dtype);
      const Tensor beta = leaf({0.1, 0.2, 0.3, 0.4}, dtype);
      const Tensor y = layer_norm(x, gamma, beta, {.eps = 1e-5});
      CHECK(same_bits(y, reshape(beta.detach(), {1, 4})));
      const auto g =
          grad(y, {x, gamma, beta}, {.grad_outputs = {numbers({{1.0, 0.0, 0.0, 0.0}}, dtype)}});
      CHECK_NUMBERS(
          g[0], {{237.17082451262843, -79.05694150420948, -79.05694150420948, -79.05694150420948}},
          loss_tolerance(dtype, 1e-10));
      CHECK_NUMBERS(g[1], {0.0, 0.0, 0.0, 0.0});
      CHECK_NUMBERS(g[2], {1.0, 0.0, 0.0, 0.0});
    }
  }
}

TEST_CASE("NRM-001 sibling: large offsets cost no digits") {
  const LeakGuard guard;
  const NestedNumbers row{{1.0, 2.0, 4.0, 7.0}};
  for (const DType dtype : kFloats) {
    const Tensor near = numbers(row, dtype);
    const Tensor far = near + (dtype == DType::float64 ? 1e12 : 1e6);
    const auto f = [](const Tensor& t) { return layer_norm(t); };
    const Tensor u = numbers({{1.0, -2.0, 0.5, 3.0}});
    const auto a = evaluate(f, near, u);
    const auto b = evaluate(f, far, u);
    CHECK_NUMBERS(b.output, a.output, loss_tolerance(dtype));
    CHECK_NUMBERS(b.gradient, a.gradient, 10 * loss_tolerance(dtype));
    CHECK_NUMBERS(var(far, -1), var(near, -1), loss_tolerance(dtype));
  }
}

TEST_CASE("NRM-004 layer norm over one feature") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor x = leaf({{7.0}, {-3.0}}, dtype);
    const Tensor gamma = leaf({2.0}, dtype);
    const Tensor beta = leaf({0.5}, dtype);
    const Tensor y = layer_norm(x, gamma, beta);
    CHECK_NUMBERS(y, {{0.5}, {0.5}});
    const auto g = grad(y, {x, gamma, beta}, {.grad_outputs = {numbers({{1.0}, {4.0}}, dtype)}});
    CHECK_NUMBERS(g[0], {{0.0}, {0.0}});
    CHECK_NUMBERS(g[1], {0.0});
    CHECK_NUMBERS(g[2], {5.0});
  }
}

TEST_CASE("NRM-006 eps must be positive") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor x = leaf({{5.0, 5.0}}, dtype);
    for (const double bad : {0.0, -1e-5, kNaN, kInf}) {
      CHECK_THROWS_SAYING(ValueError, "layer_norm", "eps", layer_norm(x, {}, {}, {.eps = bad}));
      CHECK_THROWS_SAYING(ValueError, "rms_norm", "eps", rms_norm(x, {}, {.eps = bad}));
    }
  }
}

TEST_CASE("DRP-004 dropout of everything is zeros, forward and back") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    Rng rng(1);
    const auto [y, gx] = evaluate([&](const Tensor& x) { return dropout(x, 1, rng); },
                                  numbers({1.0, -2.0, 3.0, kInf, kNaN}, dtype));
    CHECK_NUMBERS(y, zeros({5}));
    CHECK_NUMBERS(gx, zeros({5}));
  }
}

TEST_CASE("DRP-005 a probability outside [0, 1] is refused") {
  const LeakGuard guard;
  Rng rng(1);
  const RngState before = rng.state();
  for (const double bad : {-0.1, 1.5, kNaN, kInf}) {
    for (const bool training : {true, false}) {
      CHECK_THROWS_SAYING(ValueError, "dropout", "",
                          dropout(leaf({1.0}), bad, rng, {.training = training}));
    }
  }
  CHECK(rng.state() == before);
}

TEST_CASE("DRP-007 dropout of nothing, and in evaluation, is the identity to the bit") {
  const LeakGuard guard;
  const Tensor u = numbers({0.25, -3.0, 1e-300});
  for (const bool training : {true, false}) {
    Rng rng(1);
    const RngState before = rng.state();
    const Tensor x = leaf({0.1, -3.5, 1e300});
    const Tensor y = dropout(x, training ? 0.0 : 0.9, rng, {.training = training});
    CHECK(same_bits(y.detach(), x.detach()));
    CHECK(same_bits(grad(y * 1, x, {.grad_outputs = {u}})[0], u));
    CHECK(rng.state() == before);
  }
}

TEST_CASE("RNG-004 uniform numbers never reach 1") {
  const LeakGuard guard;
  Rng rng(4);
  std::vector<double> doubles(1 << 20);
  std::vector<float> floats(1 << 20);
  for (int i = 0; i < 10; ++i) {
    rng.random(std::span<double>(doubles));
    rng.random(std::span<float>(floats));
    CHECK(*std::max_element(doubles.begin(), doubles.end()) < 1.0);
    CHECK(*std::max_element(floats.begin(), floats.end()) < 1.0f);
    CHECK(*std::min_element(doubles.begin(), doubles.end()) >= 0.0);
    rng.uniform(std::span<float>(floats), 0, 1);
    CHECK(*std::max_element(floats.begin(), floats.end()) < 1.0f);
  }
  CHECK(max(rand(rng, {1 << 20}, {.dtype = DType::float32})).item() < 1);
}

TEST_CASE("GRD-001 the checker knows a kink") {
  const LeakGuard guard;
  const auto f = [](const Tensor& x) { return relu(x); };
  const GradcheckReport kink = gradcheck(f, numbers({0.0}));
  CHECK_FALSE(kink.passed);
  REQUIRE(kink.failures.size() >= 1);
  CHECK(kink.failures[0].kind == GradcheckFailure::Kind::non_differentiable);
  CHECK(kink.failures[0].analytic == 0);
  CHECK(std::abs(kink.failures[0].slope_jump) > 0.1);  // times the output's random weight
  CHECK(gradcheck(f, numbers({0.01}), {.step = 1e-6}).passed);
  CHECK_FALSE(gradcheck([](const Tensor& x) { return abs(x); }, numbers({0.0})).passed);
}

TEST_CASE("GRD-003 the checker refuses float32, or uses its steps") {
  const LeakGuard guard;
  Rng rng(2);
  const Tensor w = randn(rng, {3, 4});
  const Tensor x = randn(rng, {2, 3});
  const Tensor b = randn(rng, {4});
  const auto f = [](const Tensor& v, const Tensor& m, const Tensor& c) { return matmul(v, m) + c; };
  CHECK_THROWS_SAYING(DtypeError, "gradcheck", "float32", gradcheck(f, {x, w, b}));
  const GradcheckReport report = gradcheck(f, {x, w, b}, {.allow_float32 = true});
  CHECK_MESSAGE(report.passed, to_string(report));
}
