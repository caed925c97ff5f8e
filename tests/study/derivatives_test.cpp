// Derivatives against closed forms.
#include "softtape/study/derivatives.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"

using namespace softtape;
using test_support::kDouble;
using test_support::random;

namespace {

void check_close(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  const auto a = got.to_vector();
  const auto b = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("vjp and jvp of a matrix product are products with its factors") {
  const Tensor a = random(1, {2, 3});
  const Tensor b = random(2, {3, 4});
  const Tensor gy = random(3, {2, 4});
  const auto product = [](const Tensor& x, const Tensor& y) { return matmul(x, y); };
  const auto gradients = vjp(product, {a, b}, gy);
  check_close(gradients[0], matmul(gy, b, {.transpose_b = true}));
  check_close(gradients[1], matmul(a, gy, {.transpose_a = true}));
  const Tensor ta = random(4, {2, 3});
  const Tensor tb = random(5, {3, 4});
  check_close(jvp(product, {a, b}, {ta, tb}), matmul(ta, b) + matmul(a, tb));
  check_close(jvp(product, {a, b}, {ta, Tensor()}), matmul(ta, b));
}

TEST_CASE("jacobian of softmax is diag(p) - p p^T, exact zeros elsewhere") {
  const Tensor x = tensor({1.0, 2.0, 3.0}, kDouble);
  const Tensor p = softmax(x);
  const Tensor j = jacobian([](const Tensor& t) { return softmax(t); }, x);
  REQUIRE(j.shape() == Shape{3, 3});
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 3; ++c) {
      const double pr = p.data<double>()[r];
      const double pc = p.data<double>()[c];
      CHECK(j.data<double>()[r * 3 + c] ==
            doctest::Approx((r == c ? pr : 0) - pr * pc).epsilon(1e-12));
    }
  }
  // The first row, from 50-digit arithmetic.
  CHECK(j.data<double>()[0] == doctest::Approx(0.08192506906499322).epsilon(1e-13));
  CHECK(j.data<double>()[1] == doctest::Approx(-0.022033044520174298).epsilon(1e-13));
  CHECK(j.data<double>()[2] == doctest::Approx(-0.059892024544818935).epsilon(1e-13));

  const Tensor rows = jacobian([](const Tensor& t) { return softmax(t); }, random(6, {2, 3}));
  REQUIRE(rows.shape() == Shape{2, 3, 2, 3});
  CHECK(rows.data<double>()[3] == 0);  // row 0 does not move with row 1
  CHECK(rows.data<double>()[0] != 0);
}

TEST_CASE("jacobian shapes: one number in, one number out, a float32 function, an empty output") {
  CHECK(jacobian(softtape::sin, scalar(0.0, kDouble)).item() == 1);
  CHECK(jacobian([](const Tensor& t) { return sum(t); }, ones({2, 2})).shape() == Shape{2, 2});
  CHECK(jacobian(softtape::exp, ones({2})).dtype() == DType::float32);
  CHECK(jacobian(softtape::exp, zeros({0}, kDouble)).shape() == Shape{0, 0});
}

TEST_CASE("hessian and hvp of a cubic form") {
  // f = sum x^3 / 6 + x0 x1: H = diag(x) + [[0, 1], [1, 0]]
  const auto f = [](const Tensor& x) {
    return sum(x * x * x) / 6 +
           sum(x * tensor({1.0, 0.0}, kDouble)) * sum(x * tensor({0.0, 1.0}, kDouble));
  };
  const Tensor x = tensor({2.0, -3.0}, kDouble);
  check_close(hessian(f, x), tensor({{2.0, 1.0}, {1.0, -3.0}}, kDouble));
  check_close(hvp(f, x, tensor({1.0, 10.0}, kDouble)), tensor({12.0, -29.0}, kDouble));
}

TEST_CASE("hvp is the hessian times a vector, also for an input with axes") {
  const auto f = [](const Tensor& t) { return sum(square(softmax(t)) * exp(t)); };
  const Tensor x = random(7, {2, 3});
  const Tensor v = random(8, {2, 3});
  const Tensor h = hessian(f, x);
  REQUIRE(h.shape() == Shape{2, 3, 2, 3});
  const auto hv = hvp(f, x, v).to_vector();
  for (std::size_t i = 0; i < 6; ++i) {
    double expected = 0;
    for (std::size_t j = 0; j < 6; ++j) {
      expected += h.data<double>()[i * 6 + j] * v.data<double>()[j];
      CHECK(h.data<double>()[i * 6 + j] ==
            doctest::Approx(h.data<double>()[j * 6 + i]).epsilon(1e-12));
    }
    CHECK(hv[i] == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("derivatives of what does not depend on x, or only linearly, are zeros") {
  const Tensor x = random(9, {2});
  const auto constant = [](const Tensor&) { return scalar(3.0, kDouble); };
  const auto linear = [](const Tensor& t) { return sum(t) * 2; };
  const std::vector<double> none(2, 0.0);
  CHECK(vjp(constant, {x}, scalar(1.0, kDouble))[0].to_vector() == none);
  CHECK(jvp(constant, {x}, {x}).item() == 0);
  CHECK(jacobian(constant, x).to_vector() == none);
  CHECK(hessian(linear, x).to_vector() == std::vector<double>(4, 0.0));
  CHECK(hessian(constant, x).to_vector() == std::vector<double>(4, 0.0));
  CHECK(hvp(linear, x, x).to_vector() == none);
  CHECK(vjp([](const Tensor& a, const Tensor&) { return a * 1; }, {x, x}, x)[1].to_vector() ==
        none);
}

TEST_CASE("derivatives work under NoGrad, on inputs with graphs, and leave nothing behind") {
  Tensor leaf = random(10, {3});
  leaf.requires_grad_();
  const Tensor x = exp(leaf);
  const GraphStats before = graph_stats();
  {
    const NoGrad mode;
    const auto f = [](const Tensor& t) { return sum(t * t * t); };
    const Tensor h = hessian(f, x);
    CHECK_FALSE(h.requires_grad());
    CHECK_FALSE(hvp(f, x, x).requires_grad());
    CHECK_FALSE(jvp(f, {x}, {x}).requires_grad());
    CHECK_FALSE(vjp(f, {x}, scalar(1.0, kDouble))[0].requires_grad());
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(h.data<double>()[i * 4] == doctest::Approx(6 * x.data<double>()[i]));
    }
  }
  CHECK(graph_stats().live_nodes == before.live_nodes);
  CHECK(graph_stats().live_bytes == before.live_bytes);
  CHECK_FALSE(leaf.grad().defined());
  CHECK(x.requires_grad());
}

TEST_CASE("derivatives pass integers and booleans through") {
  const Tensor x = random(11, {3});
  const Tensor flags = tensor({true, false, true});
  const auto f = [](const Tensor& t, const Tensor& c) { return where(c, t * t, 0); };
  const auto gradients = vjp(f, {x, flags}, ones({3}, kDouble));
  CHECK(gradients[0].to_vector()[1] == 0);
  CHECK_FALSE(gradients[1].defined());
  CHECK(jvp(f, {x, flags}, {x, Tensor()}).to_vector()[0] ==
        doctest::Approx(2 * x.to_vector()[0] * x.to_vector()[0]));
}

TEST_CASE("derivatives refuse what does not fit, by type and tag") {
  const Tensor x = random(12, {2, 3});
  const auto f = [](const Tensor& t) { return t * t; };
  const auto total = [](const Tensor& t) { return sum(t * t); };
  using doctest::Contains;
  CHECK_THROWS_WITH_AS(vjp(f, {x}, random(1, {3})), Contains("[vjp] gy must have shape (2, 3)"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(vjp(f, {x}, ones({2, 3})), Contains("[vjp] gy must be float64"), DtypeError);
  CHECK_THROWS_WITH_AS(vjp(f, {x}, Tensor()), Contains("[vjp] gy is an undefined"), GraphError);
  CHECK_THROWS_WITH_AS(vjp(f, {Tensor()}, x), Contains("[vjp] input 0 is an undefined"),
                       GraphError);
  CHECK_THROWS_WITH_AS(vjp(f, std::vector<Tensor>{}, x), Contains("[vjp] needs at least one"),
                       ValueError);
  CHECK_THROWS_WITH_AS(vjp(f, {x, x}, x), Contains("[vjp] the function cannot be called with 2"),
                       ValueError);
  CHECK_THROWS_WITH_AS(jvp(f, {x}, {x, x}), Contains("[jvp] needs one tangent per input"),
                       ValueError);
  CHECK_THROWS_WITH_AS(jvp(f, {x}, {random(1, {3, 2})}),
                       Contains("[jvp] tangent 0 must have shape (2, 3): got (3, 2)"), ShapeError);
  CHECK_THROWS_WITH_AS(jacobian(f, arange(3)), Contains("[jacobian] x must be float"), DtypeError);
  CHECK_THROWS_WITH_AS(jacobian([](const Tensor& t) { return t > 0; }, x),
                       Contains("[jacobian] the result must be float"), DtypeError);
  CHECK_THROWS_WITH_AS(jacobian(f, ones({1, 1, 1, 1})),
                       Contains("[jacobian] the result has the axes"), ShapeError);
  CHECK_THROWS_WITH_AS(hessian(f, x), Contains("[hessian] the function must return one number"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(hessian(total, ones({1, 1, 1, 1})), Contains("[hessian]"), ShapeError);
  CHECK_THROWS_WITH_AS(hessian(total, Tensor()), Contains("[hessian] x is an undefined"),
                       GraphError);
  CHECK_THROWS_WITH_AS(hvp(total, x, random(1, {6})), Contains("[hvp] v must have shape (2, 3)"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(hvp(f, x, x), Contains("[hvp] the function must return one number"),
                       ShapeError);
}
