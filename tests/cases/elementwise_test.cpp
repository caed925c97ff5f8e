// Hard cases of elementwise ops: kinks, infinite slopes, branches not taken, extreme inputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/index.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

namespace {

using Unary = std::function<Tensor(const Tensor&)>;

double rounding(DType dtype) { return dtype == DType::float64 ? 1e-15 : 1e-6; }

}  // namespace

TEST_CASE("WHR-001 the branch not taken sends nothing back") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const auto f = [](const Tensor& x) { return where(x > 0, sqrt(x), x * 3); };
    const auto [y, gx] = evaluate(f, numbers({-1.0, -9.0, 4.0}, dtype));
    CHECK_NUMBERS(y, {-3.0, -27.0, 2.0});
    CHECK_NUMBERS(gx, {3.0, 3.0, 0.25}, rounding(dtype));
    const Tensor h =
        second(f, numbers({-1.0, -9.0, 4.0}, dtype), scalar(1.0), numbers({1.0, 1.0, 1.0}));
    CHECK_NUMBERS(h, {0.0, 0.0, -1.0 / 32}, rounding(dtype));
  }
}

TEST_CASE("WHR-001 siblings: every op whose slope is infinite or NaN there") {
  const LeakGuard guard;
  const Tensor x = numbers({-1.0, 0.0});
  const auto check = [&](const char* name, const Unary& f) {
    CAPTURE(name);
    for (const DType dtype : kFloats) {
      const Unary guarded = [&](const Tensor& t) {
        return where(tensor({false, false}), f(t), t * 2);
      };
      const auto [y, gx] = evaluate(guarded, to(x, dtype));
      CHECK_NUMBERS(y, {-2.0, 0.0});
      CHECK_NUMBERS(gx, {2.0, 2.0});
      CHECK_NUMBERS(second(guarded, to(x, dtype), scalar(1.0), numbers({1.0, 1.0})), {0.0, 0.0});
      // The same by masking the result.
      const Unary filled = [&](const Tensor& t) {
        return masked_fill(f(t), tensor({true, true}), 7) + t;
      };
      const auto masked = evaluate(filled, to(x, dtype));
      CHECK_NUMBERS(masked.output, {6.0, 7.0});
      CHECK_NUMBERS(masked.gradient, {1.0, 1.0});
    }
  };
  check("sqrt", [](const Tensor& t) { return sqrt(t); });
  check("rsqrt", [](const Tensor& t) { return rsqrt(t); });
  check("log", [](const Tensor& t) { return log(t); });
  check("log1p", [](const Tensor& t) { return log1p(t); });
  check("div", [](const Tensor& t) { return 1 / t; });
  check("div by itself", [](const Tensor& t) { return t / t; });
  check("pow", [](const Tensor& t) { return pow(t, 0.5); });
  check("pow, negative", [](const Tensor& t) { return pow(t, -1.5); });
  check("pow, tensor exponent", [](const Tensor& t) { return pow(t, t); });
  check("exp of a large number", [](const Tensor& t) { return exp(t * -1000); });
  check("norm", [](const Tensor& t) { return norm(t * 0) + t; });
}

TEST_CASE("WHR-004 masked_fill with -Inf leaves the others alone") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const double value : {-kInf, kInf, kNaN, -1e30}) {
      const auto f = [&](const Tensor& x) { return masked_fill(x, tensor({false, true}), value); };
      const auto [y, gx] = evaluate(f, numbers({3.0, 5.0}, dtype), numbers({2.0, 9.0}));
      CHECK(y.to_vector()[0] == 3);
      CHECK_NUMBERS(y, numbers({3.0, value}), 1e-6);
      CHECK_NUMBERS(gx, {2.0, 0.0});
    }
    // What is hidden may be anything.
    const Tensor x = numbers({kNaN, 1.0}, dtype);
    CHECK_NUMBERS(masked_fill(x, tensor({true, false}), 0), {0.0, 1.0});
    CHECK_NUMBERS(where(tensor({true, false}), 0, x), {0.0, 1.0});
  }
}

TEST_CASE("ELM-001 the slope of sqrt at 0 is infinite, and 0 times it is 0") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor upstream = numbers({1.0, 0.0});
    const Tensor zero = numbers({0.0, 0.0}, dtype);
    const auto [y, gx] = evaluate([](const Tensor& x) { return sqrt(x); }, zero, upstream);
    CHECK_NUMBERS(y, {0.0, 0.0});
    CHECK_NUMBERS(gx, {kInf, 0.0});
    const auto slope = [&](const Unary& f) { return evaluate(f, zero, upstream).gradient; };
    CHECK_NUMBERS(slope([](const Tensor& x) { return log(x); }), {kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return rsqrt(x); }), {-kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return pow(x, 0.5); }), {kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return 1 / x; }), {-kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return log1p(x - 1); }), {kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return pow(x, -1); }), {-kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return pow(x, x * 0 + 0.5); }), {kInf, 0.0});
    CHECK_NUMBERS(slope([](const Tensor& x) { return exp(x + 1000); }), {kInf, 0.0});
    CHECK_NUMBERS(
        second([](const Tensor& x) { return sqrt(x); }, zero, upstream, numbers({0.0, 1.0})),
        {0.0, 0.0});
  }
}

TEST_CASE("ELM-004 a negative base with a fractional exponent is NaN, value and slope") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const Unary& f : {Unary([](const Tensor& x) { return pow(x, 0.5); }),
                           Unary([](const Tensor& x) { return pow(x, full_like(x, 0.5)); })}) {
      const auto [y, gx] = evaluate(f, numbers({-2.0, 4.0}, dtype));
      CHECK_NUMBERS(y, {kNaN, 2.0});
      CHECK_NUMBERS(gx, {kNaN, 0.25}, rounding(dtype));
    }
    // A whole exponent is no trouble.
    const auto [y, gx] =
        evaluate([](const Tensor& x) { return pow(x, 3); }, numbers({-2.0}, dtype));
    CHECK_NUMBERS(y, {-8.0});
    CHECK_NUMBERS(gx, {12.0});
  }
}

TEST_CASE("ELM-006 the slope of a power at base 0, by exponent") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor n = numbers({3.0, 1.0, 0.5, -1.0}, dtype);
    const auto [y, gx] =
        evaluate([&](const Tensor& x) { return pow(x, n); }, numbers({0.0, 0.0, 0.0, 0.0}, dtype));
    CHECK_NUMBERS(y, {0.0, 0.0, 0.0, kInf});
    CHECK_NUMBERS(gx, {0.0, 1.0, kInf, -kInf});
    const auto slope = [&](double exponent) {
      return evaluate([&](const Tensor& x) { return pow(x, exponent); }, numbers(0.0, dtype))
          .gradient.item();
    };
    CHECK(slope(3) == 0);
    CHECK(slope(1) == 1);
    CHECK(slope(0.5) == kInf);
    CHECK(slope(-1) == -kInf);
    CHECK(slope(0) == 0);
    CHECK(slope(2) == 0);
  }
}

TEST_CASE("ELM-007 the slope of abs at 0 is 0, and so are its kin's") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor x = numbers({0.0, -0.0, -2.0, 2.0}, dtype);
    CHECK_NUMBERS(evaluate([](const Tensor& t) { return abs(t); }, x).gradient,
                  {0.0, 0.0, -1.0, 1.0});
    CHECK_NUMBERS(evaluate([](const Tensor& t) { return relu(t); }, x).gradient,
                  {0.0, 0.0, 0.0, 1.0});
    CHECK_NUMBERS(evaluate([](const Tensor& t) { return sign(t); }, x).gradient, zeros({4}));
    CHECK_NUMBERS(evaluate([](const Tensor& t) { return clamp(t, 0, 2); }, x).gradient,
                  {1.0, 1.0, 0.0, 1.0});
    CHECK_NUMBERS(evaluate([](const Tensor& t) { return norm(t * 0); }, x).gradient, zeros({4}));
    CHECK(evaluate([](const Tensor& t) { return norm(t); }, numbers({0.0, 0.0}, dtype))
              .gradient.to_vector() == std::vector<double>{0, 0});
    CHECK(
        evaluate([](const Tensor& t) { return norm(t, {}, {.p = 1}); }, numbers({0.0, 3.0}, dtype))
            .gradient.to_vector() == std::vector<double>{0, 1});
    CHECK_NUMBERS(second([](const Tensor& t) { return abs(t); }, x, scalar(1.0),
                         numbers({1.0, 1.0, 1.0, 1.0})),
                  zeros({4}));
  }
}

TEST_CASE("ELM-009 ties share the gradient evenly, summing to one") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const auto [y, gx] =
        evaluate([](const Tensor& x) { return max(x); }, numbers({2.0, 5.0, 5.0, 1.0}, dtype));
    CHECK(y.item() == 5);
    CHECK_NUMBERS(gx, {0.0, 0.5, 0.5, 0.0});
    CHECK_NUMBERS(
        evaluate([](const Tensor& x) { return min(x); }, numbers({2.0, 1.0, 3.0, 1.0}, dtype))
            .gradient,
        {0.0, 0.5, 0.0, 0.5});
    const auto rows = evaluate([](const Tensor& x) { return max(x, 1); },
                               numbers({{1.0, 1.0, 1.0, 1.0}, {0.0, 3.0, 1.0, 2.0}}, dtype));
    CHECK_NUMBERS(rows.gradient, {{0.25, 0.25, 0.25, 0.25}, {0.0, 1.0, 0.0, 0.0}});
    CHECK_NUMBERS(
        evaluate([](const Tensor& x) { return maximum(x, 2); }, numbers({1.0, 2.0, 3.0}, dtype))
            .gradient,
        {0.0, 0.5, 1.0});
    CHECK_NUMBERS(
        evaluate([](const Tensor& x) { return minimum(2, x); }, numbers({1.0, 2.0, 3.0}, dtype))
            .gradient,
        {1.0, 0.5, 0.0});
    CHECK_NUMBERS(evaluate([](const Tensor& x) { return norm(x, {}, {.p = kInf}); },
                           numbers({-3.0, 3.0, 1.0}, dtype))
                      .gradient,
                  {-0.5, 0.5, 0.0});
  }
}

TEST_CASE("ELM-011 sigmoid and softplus at extreme inputs") {
  const LeakGuard guard;
  const Tensor x = numbers({-800.0, -40.0, 0.0, 40.0, 800.0});
  const auto s = evaluate([](const Tensor& t) { return sigmoid(t); }, x);
  CHECK_NUMBERS(s.output, {0.0, 4.248354255291589e-18, 0.5, 1.0, 1.0}, 1e-12, 1e-17);
  CHECK_NUMBERS(s.gradient, {0.0, 4.248354255291589e-18, 0.25, 4.248354255291589e-18, 0.0}, 1e-12,
                1e-17);
  const auto p = evaluate([](const Tensor& t) { return softplus(t); }, x);
  CHECK_NUMBERS(p.output, {0.0, 4.248354255291589e-18, 0.6931471805599453, 40.0, 800.0}, 1e-12,
                1e-17);
  CHECK_NUMBERS(p.gradient, {0.0, 4.248354255291589e-18, 0.5, 1.0, 1.0}, 1e-12, 1e-17);
  // The small ones to full relative precision, where they come from the near side.
  CHECK_NUMBERS(slice(s.output, 0, 1, 2), {4.248354255291589e-18}, 1e-12);
  CHECK_NUMBERS(slice(s.gradient, 0, 1, 2), {4.248354255291589e-18}, 1e-12);
  CHECK_NUMBERS(slice(p.output, 0, 1, 2), {4.248354255291589e-18}, 1e-12);
  CHECK_NUMBERS(slice(p.gradient, 0, 1, 2), {4.248354255291589e-18}, 1e-12);
}

TEST_CASE("ELM-011 siblings: no activation overflows, to second order, in either type") {
  const LeakGuard guard;
  const auto check = [](const char* name, const Unary& f, double far_left, double far_right) {
    CAPTURE(name);
    for (const DType dtype : kFloats) {
      const double most = dtype == DType::float64 ? 1e300 : 1e37;
      const Tensor x = numbers({-most, -800.0, -90.0, -40.0, 0.0, 40.0, 90.0, 800.0, most}, dtype);
      const auto [y, gx] = evaluate(f, x);
      CHECK(all_finite(y));
      CHECK(all_finite(gx));
      CHECK(gx.to_vector().front() == doctest::Approx(far_left));
      CHECK(gx.to_vector().back() == doctest::Approx(far_right));
      CHECK(all_finite(second(f, x, scalar(1.0), ones({9}))));
    }
  };
  check(
      "sigmoid", [](const Tensor& t) { return sigmoid(t); }, 0, 0);
  check(
      "tanh", [](const Tensor& t) { return tanh(t); }, 0, 0);
  check(
      "softplus", [](const Tensor& t) { return softplus(t); }, 0, 1);
  check(
      "relu", [](const Tensor& t) { return relu(t); }, 0, 1);
  check(
      "silu", [](const Tensor& t) { return silu(t); }, 0, 1);
  check(
      "gelu", [](const Tensor& t) { return gelu(t); }, 0, 1);
  check(
      "gelu_tanh", [](const Tensor& t) { return gelu(t, Gelu::tanh); }, 0, 1);
  check(
      "erf", [](const Tensor& t) { return erf(t); }, 0, 0);
}

TEST_CASE("activations of infinities are their limits") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor ends = numbers({-kInf, kInf}, dtype);
    CHECK_NUMBERS(sigmoid(ends), {0.0, 1.0});
    CHECK_NUMBERS(tanh(ends), {-1.0, 1.0});
    CHECK_NUMBERS(erf(ends), {-1.0, 1.0});
    CHECK_NUMBERS(softplus(ends), {0.0, kInf});
    CHECK_NUMBERS(relu(ends), {0.0, kInf});
    CHECK_NUMBERS(exp(ends), {0.0, kInf});
    CHECK_NUMBERS(expm1(ends), {-1.0, kInf});
    for (const Unary& f : {Unary([](const Tensor& t) { return relu(t); }),
                           Unary([](const Tensor& t) { return softplus(t); }),
                           Unary([](const Tensor& t) { return sigmoid(t); }),
                           Unary([](const Tensor& t) { return tanh(t); }),
                           Unary([](const Tensor& t) { return exp(t); })}) {
      CHECK_NUMBERS(f(numbers({kNaN}, dtype)), {kNaN});
    }
  }
}

TEST_CASE("gelu in float32 and its slope keep their precision into the tail") {
  const Tensor x = linspace(-12.5, 12.5, 5001, {.dtype = DType::float32});
  const auto [y, gx] = evaluate([](const Tensor& t) { return gelu(t); }, x);
  const std::vector<double> at = x.to_vector();
  const std::vector<double> values = y.to_vector();
  const std::vector<double> slopes = gx.to_vector();
  double value_error = 0;
  double slope_error = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double cdf = std::erfc(-at[i] / std::sqrt(2.0)) / 2;
    const double bell = at[i] * std::exp(-at[i] * at[i] / 2) / std::sqrt(2 * std::acos(-1.0));
    if (at[i] != 0) {
      value_error = std::max(value_error, std::abs(values[i] / (at[i] * cdf) - 1));
    }
    slope_error =
        std::max(slope_error, std::abs(slopes[i] - (cdf + bell)) / (cdf + std::abs(bell)));
  }
  CHECK(value_error < 1e-6);
  CHECK(slope_error < 1e-6);
}
