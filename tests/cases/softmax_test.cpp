// Hard cases of softmax, log_softmax and logsumexp. Numbers were computed with 50 digits.
#include "softtape/ops/softmax.hpp"

#include <doctest/doctest.h>

#include "cases/evaluate.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

namespace {

Tensor soft(const Tensor& x, int axis) { return softmax(x, axis); }
Tensor log_soft(const Tensor& x, int axis) { return log_softmax(x, axis); }
Tensor lse(const Tensor& x, int axis) { return logsumexp(x, axis, {.keepdim = true}); }

}  // namespace

TEST_CASE("ATT-003 a row of -Inf has zero weights and zero gradient") {
  const LeakGuard guard;
  check_rows(
      soft, {{-kInf, -kInf, -kInf}, {0.0, 1.0, 2.0}}, {{1.0, -2.0, 0.5}, {1.0, 0.0, 0.0}},
      {{0.0, 0.0, 0.0}, {0.09003057317038046, 0.24472847105479764, 0.6652409557748219}},
      {{0.0, 0.0, 0.0}, {0.08192506906499322, -0.022033044520174298, -0.059892024544818935}});
}

TEST_CASE("ATT-003 siblings: one column, many columns, log_softmax, second derivative") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const std::int64_t m : {1, 2, 15, 16, 17, 33, 100}) {
      CAPTURE(m);
      const Tensor x = full({2, m}, -kInf, {.dtype = dtype});
      const auto [p, gx] = evaluate([](const Tensor& t) { return softmax(t); }, x);
      CHECK(same_bits(p, zeros_like(x)));
      CHECK(same_bits(gx, zeros_like(x)));
      const Tensor h =
          second([](const Tensor& t) { return softmax(t); }, x, scalar(1.0), ones({2, m}));
      CHECK(same_bits(h, zeros_like(x)));
      const auto [l, gl] = evaluate([](const Tensor& t) { return log_softmax(t); }, x);
      CHECK(same_bits(l, x));
      CHECK(all_finite(gl));
      // The same by a mask over genuine scores.
      const Mask nothing = Mask::masked_out(full({2, m}, 1, {.dtype = DType::boolean}));
      const auto masked = evaluate([&](const Tensor& t) { return softmax(t, {.mask = nothing}); },
                                   full({2, m}, 5, {.dtype = dtype}));
      CHECK(same_bits(masked.output, zeros_like(x)));
      CHECK(same_bits(masked.gradient, zeros_like(x)));
      const auto log_masked =
          evaluate([&](const Tensor& t) { return log_softmax(t, {.mask = nothing}); },
                   full({2, m}, 5, {.dtype = dtype}));
      CHECK(same_bits(log_masked.output, x));
      CHECK(same_bits(log_masked.gradient, zeros_like(x)));
    }
  }
}

TEST_CASE("ATT-004 one -Inf score has exactly no weight and no gradient") {
  const LeakGuard guard;
  check_rows(soft, {{0.5, -kInf, -1.25}}, {{0.7, 5.0, -0.3}},
             {{0.8519528019683106, 0.0, 0.14804719803168948}},
             {{0.12612922518665518, 0.0, -0.12612922518665518}});
  for (const DType dtype : kFloats) {
    const Tensor x = numbers({{0.5, -kInf, -1.25}}, dtype);
    for (const double upstream : {5.0, kInf, kNaN}) {
      const auto [p, gx] =
          evaluate([](const Tensor& t) { return softmax(t); }, x, numbers({{0.7, upstream, -0.3}}));
      CHECK(p.to_vector()[1] == 0);
      CHECK(gx.to_vector()[1] == 0);
      CHECK_NUMBERS(gx, {{0.12612922518665518, 0.0, -0.12612922518665518}}, 1e-6);
    }
    const Tensor h = second([](const Tensor& t) { return softmax(t); }, x,
                            numbers({{0.7, 5.0, -0.3}}), numbers({{1.0, 7.0, 2.0}}));
    CHECK(all_finite(h));
    CHECK(h.to_vector()[1] == 0);
  }
}

TEST_CASE("ATT-006 logsumexp over what is kept") {
  const LeakGuard guard;
  const Tensor hidden = tensor({{false, false, true}});
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::float64 ? 1e-12 : 1e-6;
    const auto [y, gx] =
        evaluate([&](const Tensor& x) { return logsumexp(masked_fill(x, hidden, -kInf), -1); },
                 numbers({{5.0, 4.0, 10000.0}}, dtype));
    CHECK_NUMBERS(y, {5.313261687518223}, tolerance);
    CHECK_NUMBERS(gx, {{0.7310585786300049, 0.2689414213699951, 0.0}}, tolerance);
    CHECK(gx.to_vector()[2] == 0);
  }
}

TEST_CASE("ATT-010 a fill value cannot win against genuine scores") {
  const LeakGuard guard;
  const Mask keep = Mask::keep(tensor({{true, false}}));
  for (const DType dtype : kFloats) {
    for (const double low : {-200000.0, -1e9, -1e30, 3.0}) {
      const auto [p, gx] = evaluate([&](const Tensor& x) { return softmax(x, {.mask = keep}); },
                                    numbers({{low, 3.0}}, dtype), numbers({{1.0, 2.0}}));
      CHECK_NUMBERS(p, {{1.0, 0.0}});
      CHECK_NUMBERS(gx, {{0.0, 0.0}});
    }
  }
}

TEST_CASE("ATT-012 a hidden key has exactly no weight, however low the kept one is") {
  const LeakGuard guard;
  const Tensor visible = tensor({{true, false}, {false, true}});
  for (const DType dtype : kFloats) {
    const Tensor x = numbers({{-40.0, -39.0}, {2.0, 1.0}}, dtype);
    CHECK_NUMBERS(softmax(x, {.mask = Mask::keep(visible)}), {{1.0, 0.0}, {0.0, 1.0}});
    CHECK_NUMBERS(softmax(x, {.mask = Mask::masked_out(logical_not(visible))}),
                  {{1.0, 0.0}, {0.0, 1.0}});
    CHECK_NUMBERS(log_softmax(x, {.mask = Mask::keep(visible)}), {{0.0, -kInf}, {-kInf, 0.0}});
    // Even a +Inf or a NaN under the mask has no effect.
    const Tensor bad = numbers({{-40.0, kInf}, {kNaN, 1.0}}, dtype);
    const auto [p, gx] =
        evaluate([&](const Tensor& t) { return softmax(t, {.mask = Mask::keep(visible)}); }, bad);
    CHECK_NUMBERS(p, {{1.0, 0.0}, {0.0, 1.0}});
    CHECK_NUMBERS(gx, {{0.0, 0.0}, {0.0, 0.0}});
  }
}

TEST_CASE("SMX-001 rows sum to one") {
  const LeakGuard guard;
  check_rows(soft, {{1.0, 2.0, 3.0}, {0.0, 0.0, 1.0}}, {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}},
             {{0.09003057317038046, 0.24472847105479764, 0.6652409557748219},
              {0.21194155761708544, 0.21194155761708544, 0.5761168847658291}},
             {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}});
}

TEST_CASE("SMX-003 the whole Jacobian, not its diagonal") {
  const LeakGuard guard;
  check_rows(soft, {{1.0, 2.0, 3.0}}, {{1.0, 0.0, 0.0}},
             {{0.09003057317038046, 0.24472847105479764, 0.6652409557748219}},
             {{0.08192506906499322, -0.022033044520174298, -0.059892024544818935}});
}

TEST_CASE("SMX-006 log_softmax with a probability that underflows") {
  const LeakGuard guard;
  check_rows(log_soft, {{-500.0, 300.0, 450.0}}, {{1.0, 0.0, 0.0}}, {{-950.0, -150.0, 0.0}},
             {{1.0, -7.175095973164411e-66, -1.0}}, 1e-12, 1e-60);
}

TEST_CASE("SMX-009 a +Inf score gives NaN, so divergence is seen") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    CHECK_NUMBERS(softmax(numbers({{1.0, kInf, 0.0}}, dtype)), {{kNaN, kNaN, kNaN}});
    CHECK_NUMBERS(softmax(numbers({{1.0, kInf, 0.0}, {0.0, 0.0, -kInf}}, dtype)),
                  {{kNaN, kNaN, kNaN}, {0.5, 0.5, 0.0}});
    CHECK_NUMBERS(log_softmax(numbers({{1.0, kInf}}, dtype)), {{kNaN, kNaN}});
    // In every place of rows of every kernel.
    for (const std::int64_t m : {2, 16, 17, 40}) {
      for (std::int64_t at = 0; at < m; ++at) {
        Tensor x = zeros({m}, {.dtype = dtype});
        visit_float(dtype, "test", [&](auto zero) {
          x.mutable_data<decltype(zero)>()[static_cast<std::size_t>(at)] =
              static_cast<decltype(zero)>(kInf);
        });
        CHECK(sum(to(isnan(softmax(x)), DType::int64)).item() == static_cast<double>(m));
      }
    }
  }
}

TEST_CASE("SMX-010 a NaN poisons its own row alone") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor x = numbers({{kNaN, 1.0}, {0.0, 0.0}}, dtype);
    const auto [p, gx] =
        evaluate([](const Tensor& t) { return softmax(t); }, x, numbers({{1.0, 2.0}, {1.0, 2.0}}));
    CHECK_NUMBERS(p, {{kNaN, kNaN}, {0.5, 0.5}});
    CHECK_NUMBERS(gx, {{kNaN, kNaN}, {-0.25, 0.25}});
    CHECK_NUMBERS(log_softmax(x), {{kNaN, kNaN}, {-0.6931471805599453, -0.6931471805599453}}, 1e-7);
    CHECK_NUMBERS(logsumexp(x, -1), {kNaN, 0.6931471805599453}, 1e-7);
    for (const std::int64_t m : {2, 16, 17, 40}) {
      for (std::int64_t at = 0; at < m; ++at) {
        const Tensor nan = where(eq(arange(m), at), kNaN, zeros({m}, {.dtype = dtype}));
        CHECK(sum(to(isnan(softmax(nan)), DType::int64)).item() == static_cast<double>(m));
      }
    }
  }
}

TEST_CASE("SMX-011 large scores do not overflow") {
  const LeakGuard guard;
  check_rows(soft, {{100.0, 99.0, 98.0}}, {{0.0, 0.0, 0.0}},
             {{0.6652409557748219, 0.24472847105479764, 0.09003057317038046}}, {{0.0, 0.0, 0.0}});
  for (const DType dtype : kFloats) {
    const double most = dtype == DType::float32 ? 3e38 : 1.7e308;
    CHECK_NUMBERS(softmax(numbers({{most, most, -most}}, dtype)), {{0.5, 0.5, 0.0}});
    CHECK_NUMBERS(softmax(numbers({{-most, -most}}, dtype)), {{0.5, 0.5}});
  }
}

TEST_CASE("SMX-012 one score: weight 1, gradient 0") {
  const LeakGuard guard;
  check_rows(soft, {{7.0}, {-700.0}}, {{3.0}, {-2.0}}, {{1.0}, {1.0}}, {{0.0}, {0.0}}, 0, 0);
  check_rows(log_soft, {{7.0}, {-700.0}}, {{3.0}, {-2.0}}, {{0.0}, {0.0}}, {{0.0}, {0.0}}, 0, 0);
}

TEST_CASE("SMX-014 softmax keeps the graph connected") {
  const LeakGuard guard;
  const Tensor x = leaf({{0.4, -0.6, 1.5}});
  const Tensor loss = sum(square(softmax(x)));
  CHECK(loss.item() == doctest::Approx(0.5315440700483216).epsilon(1e-13));
  loss.backward();
  CHECK_NUMBERS(x.grad(), {{-0.13852471581401077, -0.07529173854586164, 0.2138164543598724}},
                1e-12);
  const auto squares = [](const Tensor& t) { return sum(square(softmax(t))); };
  const GradcheckReport report = gradcheck(squares, x, {.order = 2});
  CHECK_MESSAGE(report.passed, to_string(report));
}

TEST_CASE("SMX-016 the axis counts from the end, forward and backward") {
  const LeakGuard guard;
  check_rows(soft, {{1.0, 2.0, 3.0}}, {{0.0, 1.0, 0.0}},
             {{0.09003057317038046, 0.24472847105479764, 0.6652409557748219}},
             {{-0.022033044520174298, 0.1848364465099787, -0.16280340198980442}});
  const Tensor x = leaf({{1.0, 2.0, 3.0}});
  const auto gradient = [&](int axis, auto f) {
    return grad(f(x, axis), x, {.grad_outputs = {numbers({{0.0, 1.0, 0.0}})}})[0];
  };
  CHECK(same_bits(gradient(-1, soft), gradient(1, soft)));
  CHECK(same_bits(gradient(-1, log_soft), gradient(1, log_soft)));
  for (const int bad : {2, -3}) {
    CHECK_THROWS_SAYING(ShapeError, "softmax", "axis", softmax(x, bad));
    CHECK_THROWS_SAYING(ShapeError, "log_softmax", "axis", log_softmax(x, bad));
    CHECK_THROWS_SAYING(ShapeError, "logsumexp", "axis", logsumexp(x, bad));
  }
}

TEST_CASE("EMP-001 softmax of nothing is nothing, with a gradient of its shape") {
  const LeakGuard guard;
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0}, Shape{2, 0, 4}}) {
    const Tensor x = zeros(shape, {.requires_grad = true});
    for (const Tensor& y : {softmax(x), log_softmax(x), softmax(x, 0)}) {
      CHECK(y.shape() == shape);
      CHECK(grad(y, x, {.grad_outputs = {ones(shape)}})[0].shape() == shape);
    }
  }
}

TEST_CASE("ELM-013 logsumexp of only -Inf is -Inf with zero gradient") {
  const LeakGuard guard;
  check_rows(lse, {{-kInf, -kInf}, {0.0, 0.0}}, {{1.0}, {1.0}}, {{-kInf}, {0.6931471805599453}},
             {{0.0, 0.0}, {0.5, 0.5}});
  const Tensor h = second([](const Tensor& t) { return logsumexp(t); }, numbers({-kInf, -kInf}),
                          scalar(1.0), numbers({1.0, 2.0}));
  CHECK_NUMBERS(h, {0.0, 0.0});
  // Over several axes and over one of many.
  const Tensor x = full({3, 4}, -kInf, {.requires_grad = true});
  CHECK_NUMBERS(grad(sum(logsumexp(x, {0, 1})), x)[0], zeros({3, 4}));
  CHECK_NUMBERS(grad(sum(logsumexp(x, 0)), x)[0], zeros({3, 4}));
}

TEST_CASE("ELM-015 logsumexp is shifted") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::float64 ? 1e-15 : 1e-7;
    CHECK_NUMBERS(logsumexp(numbers({1000.0, 1000.0}, dtype)), 1000.6931471805599, tolerance);
    CHECK_NUMBERS(logsumexp(numbers({-1000.0, -1001.0}, dtype)), -999.6867383124818, tolerance);
    CHECK_NUMBERS(logsumexp(numbers({7.0}, dtype)), 7.0);
    CHECK_NUMBERS(logsumexp(numbers({kInf, 1.0}, dtype)), kInf);
  }
}
