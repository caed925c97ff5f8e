// Tests of the tester: planted wrong rules must fail and say where, right ones must pass.
#include <doctest/doctest.h>

#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "study/planted.hpp"

using namespace softtape;
using namespace planted;
using Kind = GradcheckFailure::Kind;

namespace {

// For second-order errors: 3 x^2 with a rule of its own.
Tensor slope_of_cube(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  const auto in = x.data<double>();
  const auto out = y.mutable_data<double>();
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = 3 * in[i] * in[i];
  return record(op, std::move(y), {x});
}

Tensor detached_slope(const Tensor& x) { return mul(3, square(x.detach())); }

const OpInfo kFactor{"cube_factor", [](Vjp& r) { r.set(0, r.gy() * 3.003 * square(r.x(0))); },
                     saves_inputs};
const OpInfo kSecondOnly{"cube_detached", [](Vjp& r) { r.set(0, r.gy() * detached_slope(r.x(0))); },
                         saves_inputs};
const OpInfo kWrongSlope{"slope_factor", [](Vjp& r) { r.set(0, r.gy() * 6.006 * r.x(0)); },
                         saves_inputs};
const OpInfo kSecondFactor{"cube_second_factor",
                           [](Vjp& r) { r.set(0, r.gy() * slope_of_cube(kWrongSlope, r.x(0))); },
                           saves_inputs};
const OpInfo kForgotten{"cube_forgotten", [](Vjp&) {}, saves_inputs};
const OpInfo kThrows{"cube_throws", [](Vjp& r) { r.set(0, r.x(0)); }};
const OpInfo kOneElement{"cube_one_element",
                         [](Vjp& r) {
                           Tensor slope = mul(3, square(r.x(0))).detach();
                           const NoGrad mode;
                           slope.mutable_data<double>()[77] *= 1.001;
                           r.set(0, r.gy() * slope);
                         },
                         saves_inputs};

// y = a b^T from an op whose rule forgets a transpose. Square, so that all shapes agree.
const OpInfo kProduct{"product",
                      [](Vjp& r) {
                        r.set(0, matmul(r.gy(), r.x(1), {.transpose_b = true}));
                        r.set(1, matmul(r.gy(), r.x(0), {.transpose_a = true}));
                      },
                      saves_inputs};
Tensor product(const Tensor& a, const Tensor& b) {
  const NoGrad mode;
  Tensor y = matmul(a.detach(), b.detach(), {.transpose_b = true});
  const EnableGrad again;
  return record(kProduct, std::move(y), {a, b});
}

// y = a + row, whose rule does not sum the gradient back to the row.
const OpInfo kAddRow{"add_row", [](Vjp& r) {
                       r.set(0, r.gy());
                       r.set(1, r.gy());
                     }};
// The same, but with the mean where the sum should be: the shape is right.
const OpInfo kAddRowMean{"add_row_mean", [](Vjp& r) {
                           r.set(0, r.gy());
                           r.set(1, mean(r.gy(), 0));
                         }};
Tensor add_row(const OpInfo& op, const Tensor& a, const Tensor& row) {
  return record(op, add(a.detach(), row.detach()), {a, row});
}

// y = softmax(x) whose rule lacks the term of the row sum: every plain sum of y would hide it.
const OpInfo kSoftmaxTerm{"softmax_without_sum", [](Vjp& r) { r.set(0, r.gy() * r.y()); },
                          saves_output};

}  // namespace

TEST_CASE("gradcheck passes right rules to second order") {
  const auto cube = [](const Tensor& x) { return cubed(kCube, x); };
  const GradcheckReport report = gradcheck(cube, {random(1, {2, 3})}, {.order = 2});
  CHECK_MESSAGE(report.passed, text(report));
  CHECK(report.op == "cube");
  CHECK(report.comparisons == (6 + 2) + 2 * (6 + 2));  // x; then x and gy; two directions each
  CHECK(report.max_rel_error < 1e-9);
  CHECK(contains(text(report), "gradcheck passed: cube, order 2, 24 derivatives"));
}

TEST_CASE("gradcheck takes ops, lambdas of several tensors and functions of a span") {
  const Tensor a = random(2, {3, 4});
  const Tensor b = random(3, {4, 2});
  CHECK(gradcheck(softtape::tanh, {a}, {.order = 2}));
  CHECK(gradcheck([](TensorArg x, TensorArg y) { return matmul(x, y); }, {a, b}, {.order = 2}));
  CHECK(gradcheck([](const auto& x, const auto& y) { return exp(x) * y; }, {a, a}, {.order = 2}));
  CHECK(gradcheck([](std::span<const Tensor> x) { return x[0] * x[1] * x[2]; }, {a, a, a}));
  auto counter = [calls = 0](const Tensor& x) mutable {
    ++calls;
    return x * x;
  };
  CHECK(gradcheck(counter, {a}));
  CHECK_THROWS_WITH_AS(
      gradcheck([](const Tensor& x) { return x; }, {a, b}),
      doctest::Contains("[gradcheck] the function cannot be called with 2 tensors"), ValueError);
}

TEST_CASE("gradcheck finds planted wrong first-order rules") {
  const Tensor x = random(4, {2, 3}).named("weights");
  struct Plant {
    const OpInfo& op;
    double ratio;  // analytic over numeric
  };
  for (const Plant& plant : {Plant{kFactor, 1.001}, Plant{kSign, -1.0}}) {
    const auto report = gradcheck([&](const Tensor& t) { return cubed(plant.op, t); }, {x});
    CAPTURE(text(report));
    REQUIRE_FALSE(report.passed);
    REQUIRE(report.failures.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
      const GradcheckFailure& f = report.failures[i];
      CHECK(f.kind == Kind::mismatch);
      CHECK(f.op == plant.op.name);
      CHECK(f.order == 1);
      CHECK(f.input == 0);
      CHECK(f.element == static_cast<std::int64_t>(i));
      CHECK(f.analytic / f.numeric == doctest::Approx(plant.ratio).epsilon(1e-7));
      CHECK(f.rel_error > 0.9e-3);
      CHECK(f.abs_error > f.tolerance);
      CHECK(f.step > 0);
      CHECK(f.seed == 0);
    }
    CHECK(contains(text(report), "FAILED"));
    CHECK(
        contains(text(report), std::string(plant.op.name) + ": order 1 at 'weights'[0, 2]: wrong"));
  }
}

TEST_CASE("gradcheck finds a forgotten transpose, term and sum") {
  const Tensor a = random(5, {3, 3});
  const Tensor b = random(6, {3, 3});
  const auto transposed = gradcheck(product, {a, b});
  CHECK_FALSE(transposed.passed);
  CHECK(transposed.failures.front().input == 0);
  CHECK(transposed.failures.back().input == 0);  // the rule of b is right

  const auto term = gradcheck(
      [](const Tensor& x) { return record(kSoftmaxTerm, softmax(x.detach()), {x}); }, {a});
  CHECK_FALSE(term.passed);
  CHECK(term.failures.size() == 9);

  const Tensor row = random(7, {3}).named("row");
  const auto mean_back = gradcheck(
      [](const Tensor& x, const Tensor& r) { return add_row(kAddRowMean, x, r); }, {a, row});
  CHECK_FALSE(mean_back.passed);
  CHECK(mean_back.failures.size() == 3);
  CHECK(mean_back.failures[0].input_name == "'row'");
}

TEST_CASE("gradcheck reports rules that throw, with the order") {
  const auto unsummed =
      gradcheck([](const Tensor& x, const Tensor& r) { return add_row(kAddRow, x, r); },
                {random(8, {2, 3}), random(9, {3})}, {.order = 2});
  REQUIRE(unsummed.failures.size() == 1);
  CHECK(unsummed.failures[0].kind == Kind::error);
  CHECK(
      contains(text(unsummed),
               "the rule threw: [add_row] its rule gave input 1 of shape (3,) a gradient of shape "
               "(2, 3)"));
  const auto unsaved =
      gradcheck([](const Tensor& x) { return cubed(kThrows, x); }, {random(8, {2})});
  CHECK(contains(text(unsaved), "[cube_throws] its rule asks for input 0"));
}

TEST_CASE("gradcheck finds errors that only the second order has") {
  const Tensor x = random(10, {4});
  for (const OpInfo* op : {&kSecondOnly, &kSecondFactor}) {
    const auto f = [&](const Tensor& t) { return cubed(*op, t); };
    CHECK(gradcheck(f, {x}).passed);
    const auto report = gradcheck(f, {x}, {.order = 2});
    CAPTURE(text(report));
    REQUIRE(report.failures.size() ==
            4);  // d gradient / d x, all of it; d gradient / d gy is right
    CHECK(report.failures[0].order == 2);
    CHECK(report.failures[0].input == 0);
    CHECK(report.failures[0].kind == (op == &kSecondOnly ? Kind::not_connected : Kind::mismatch));
  }
}

TEST_CASE("gradcheck tells a missing connection from a wrong number") {
  const Tensor x = random(11, {3});
  const auto forgotten = gradcheck([](const Tensor& t) { return cubed(kForgotten, t); }, {x});
  CHECK(forgotten.failures.size() == 3);
  CHECK(forgotten.failures[0].kind == Kind::not_connected);
  const auto detached = gradcheck([](const Tensor& t) { return exp(t.detach()); }, {x});
  CHECK(detached.failures[0].kind == Kind::not_connected);
  CHECK(contains(text(detached), "no gradient arrives, but the function depends on it"));
  // An input that plays no part needs no connection, and no gradient.
  CHECK(gradcheck([](const Tensor& t, const Tensor&) { return exp(t); }, {x, x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return sign(t); }, {x}, {.order = 2}));
}

TEST_CASE("gradcheck finds a gradient that has a graph nobody asked for") {
  static Tensor captured;
  static const OpInfo captures{"captures", [](Vjp& r) { r.set(0, captured); }};
  captured = full({2}, 1.0, {.dtype = DType::float64, .requires_grad = true});
  const auto report =
      gradcheck([](const Tensor& x) { return record(captures, x.detach().clone(), {x}); },
                {random(12, {2})}, {.seed = 3});
  CHECK(report.failures[0].kind == Kind::needless_graph);
  CHECK(report.failures[0].seed == 3);
  captured = Tensor();
}

TEST_CASE("gradcheck follows a random direction to the number that is wrong") {
  const auto f = [](const Tensor& t) { return cubed(kOneElement, t); };
  Rng rng(13);
  const Tensor x = uniform(rng, 0.5, 1.5, {10, 20}, kDouble);
  const auto report = gradcheck(f, {x});
  CAPTURE(text(report));
  REQUIRE_FALSE(report.passed);
  CHECK(report.failures[0].element == 77);
  CHECK(contains(text(report), "at input 0[3, 17]: wrong"));
  CHECK(gradcheck([](const Tensor& t) { return cubed(kCube, t); }, {x}));
}
