// Tests of the tester: planted wrong rules must fail and say where, right ones must pass, and the
// inputs must come back as they were.
#include "softtape/study/gradcheck.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "softtape/graph/op.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"

using namespace softtape;
using Kind = GradcheckFailure::Kind;

namespace {

const TensorOptions kDouble{.dtype = DType::float64};

Tensor random(std::uint64_t seed, const Shape& shape) {
  Rng rng(seed);
  return randn(rng, shape, kDouble);
}

// An op of one's own: x^3, with whatever rule it is given.
Tensor cubed(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  visit_float(x.dtype(), op.name, [&](auto zero) {
    using T = decltype(zero);
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i] * in[i];
  });
  return record(op, std::move(y), {x});
}

// For second-order errors: 3 x^2 with a rule of its own.
Tensor slope_of_cube(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  const auto in = x.data<double>();
  const auto out = y.mutable_data<double>();
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = 3 * in[i] * in[i];
  return record(op, std::move(y), {x});
}

Tensor detached_slope(const Tensor& x) { return mul(3, square(x.detach())); }

const OpInfo kCube{"cube", [](Vjp& r) { r.set(0, r.gy() * 3 * square(r.x(0))); }, saves_inputs};
const OpInfo kFactor{"cube_factor", [](Vjp& r) { r.set(0, r.gy() * 3.003 * square(r.x(0))); },
                     saves_inputs};
const OpInfo kSign{"cube_sign", [](Vjp& r) { r.set(0, r.gy() * -3 * square(r.x(0))); },
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

std::string text(const GradcheckReport& report) { return fmt::format("{}", report); }
bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

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

TEST_CASE("gradcheck calls a kink a non-differentiable point") {
  // relu at 0: rule 0, central difference 1/2. At 0.01 a step of 1e-6 sees no kink, nor does the
  // default one, which is halved until it fits.
  const Tensor x = tensor({0.0, 0.01}, kDouble);
  for (const std::optional<double> step : {std::optional<double>(), std::optional<double>(1e-6)}) {
    const auto report = gradcheck(softtape::relu, {x}, {.step = step, .directions = 0});
    CAPTURE(text(report));
    REQUIRE(report.failures.size() == 1);
    const GradcheckFailure& f = report.failures[0];
    CHECK(f.kind == Kind::non_differentiable);
    CHECK(f.element == 0);
    CHECK(f.analytic == 0);
    CHECK(std::abs(f.numeric) == doctest::Approx(std::abs(f.slope_jump) / 2).epsilon(1e-6));
    CHECK(contains(text(report), "non-differentiable point"));
  }
  // The central difference of |x| at 0 is 0, as the rule says: still no derivative.
  CHECK(gradcheck(softtape::abs, {scalar(0.0, kDouble)}).failures[0].kind ==
        Kind::non_differentiable);
  // A jump of the value is none either, and a kink close by does not matter.
  CHECK(gradcheck(softtape::sign, {scalar(0.0, kDouble)}).failures[0].kind ==
        Kind::non_differentiable);
  CHECK(gradcheck(softtape::abs, {scalar(1e-5, kDouble)}));
  // A kink of the gradient alone is seen at second order.
  const auto bent = [](const Tensor& t) { return t * abs(t); };
  CHECK(gradcheck(bent, {scalar(0.0, kDouble)}));
  CHECK(gradcheck(bent, {scalar(0.0, kDouble)}, {.order = 2}).failures[0].kind ==
        Kind::non_differentiable);
}

TEST_CASE("gradcheck copes with steep, tiny, huge and infinite values") {
  CHECK(gradcheck(softtape::log, {tensor({0.01, 1e-5, 1e5}, kDouble)}, {.order = 2, .atol = 1e-3}));
  CHECK(gradcheck(softtape::square, {tensor({1e6, -1e-6}, kDouble)}, {.order = 2}));
  const auto at_edge = gradcheck(softtape::sqrt, {tensor({0.0, 1.0}, kDouble)}, {.directions = 0});
  REQUIRE(at_edge.failures.size() == 1);
  CHECK(at_edge.failures[0].kind == Kind::not_finite);
  // Infinities that do not move are constants.
  const auto masked = [](const Tensor& x) { return log_softmax(x, {.mask = Mask::causal()}); };
  CHECK(gradcheck(masked, {random(14, {3, 3})}, {.order = 2}));
}

TEST_CASE("gradcheck wants the same numbers from the same inputs") {
  Rng rng(5);
  const auto noisy = [&](const Tensor& x) { return x * rng.random(); };
  const auto report = gradcheck(noisy, {random(15, {2})});
  REQUIRE(report.failures.size() == 1);
  CHECK(report.failures[0].kind == Kind::not_deterministic);
}

TEST_CASE("gradcheck refuses float32 unless told otherwise, and is then coarse") {
  Rng rng(16);
  const Tensor w = randn(rng, {3, 4}).named("w");
  const Tensor x = randn(rng, {4});
  const Tensor b = randn(rng, {3});
  const auto linear = [](const Tensor& w_, const Tensor& x_, const Tensor& b_) {
    return matmul(w_, x_) + b_;
  };
  CHECK_THROWS_WITH_AS(gradcheck(linear, {w, x, b}),
                       doctest::Contains("[gradcheck] 'w' is float32"), DtypeError);
  CHECK_THROWS_WITH_AS(
      gradcheck([](const Tensor& t) { return to(t, DType::float32); }, {random(1, {2})}),
      doctest::Contains("[gradcheck] the result is float32"), DtypeError);
  const auto report = gradcheck(linear, {w, x, b}, {.order = 2, .allow_float32 = true});
  CHECK_MESSAGE(report.passed, text(report));
  CHECK_FALSE(
      gradcheck([](const Tensor& t) { return cubed(kSign, t); }, {w}, {.allow_float32 = true}));
}

TEST_CASE("gradcheck leaves inputs as they were, bit for bit") {
  Tensor x = random(17, {3, 2}).named("x");
  Tensor plain = random(18, {2});
  Tensor whole = arange(3);
  x.requires_grad_();
  x.set_grad(full({3, 2}, 0.5, kDouble));
  const std::vector<double> before = x.to_vector();
  const std::uint32_t version = x.version();
  const GraphStats stats = graph_stats();
  const auto f = [](const Tensor& a, const Tensor& b, const Tensor& n) {
    return (a * b) * unsqueeze(to(n, DType::float64), 1);
  };
  {
    const NoGrad mode;  // makes no difference
    CHECK(gradcheck(f, {x, plain, whole}, {.order = 2}));
    CHECK_FALSE(gradcheck([](const Tensor& a) { return cubed(kSign, a); }, {x}));
  }
  CHECK(x.to_vector() == before);
  CHECK(x.version() == version);
  CHECK(x.requires_grad());
  CHECK_FALSE(plain.requires_grad());
  CHECK(x.grad().to_vector() == std::vector<double>(6, 0.5));
  CHECK(x.name() == "x");
  CHECK(graph_stats().live_nodes == stats.live_nodes);
  CHECK(graph_stats().live_bytes == stats.live_bytes);
}

TEST_CASE("gradcheck checks the inputs that require a gradient, or all when none does") {
  Tensor x = random(19, {2});
  Tensor w = random(20, {2});
  const auto half_wrong = [](const Tensor& a, const Tensor& b) {
    return cubed(kCube, a) * cubed(kSign, b);
  };
  CHECK_FALSE(gradcheck(half_wrong, {x, w}));
  x.requires_grad_();
  CHECK(gradcheck(half_wrong, {x, w}, {.order = 2}));
  w.requires_grad_();
  const auto report = gradcheck(half_wrong, {x, w}, {.name = "half"});
  CHECK(report.failures[0].input == 1);
  CHECK(report.failures[0].op == "half");
  CHECK(gradcheck(half_wrong, {x, w}).op == "cube, cube_sign, mul");
}

TEST_CASE("gradcheck on graphs within graphs, rank 0 and nothing at all") {
  Tensor parameter = random(21, {2});
  parameter.requires_grad_();
  const auto inner = [&](const Tensor& x) {
    return grad(sum(square(x) * x * parameter), {x}, {.create_graph = true})[0];
  };
  CHECK(gradcheck(inner, {random(22, {2})}, {.order = 2}));
  CHECK_FALSE(parameter.grad().defined());
  CHECK(gradcheck([](const Tensor& x) { return x; }, {scalar(2.0, kDouble)}, {.order = 2}));
  const auto none = gradcheck(softtape::exp, {zeros({0, 3}, kDouble)}, {.order = 2});
  CHECK(none.passed);
  CHECK(none.comparisons == 0);
}

TEST_CASE("gradcheck throws for misuse only") {
  const Tensor x = random(23, {2});
  const auto f = [](const Tensor& t) { return t * t; };
  CHECK_THROWS_WITH_AS(gradcheck(f, std::vector<Tensor>{}), doctest::Contains("[gradcheck]"),
                       ValueError);
  CHECK_THROWS_WITH_AS(gradcheck(f, {Tensor()}),
                       doctest::Contains("[gradcheck] input 0 is an undefined tensor"), GraphError);
  CHECK_THROWS_WITH_AS(gradcheck(f, {arange(3)}),
                       doctest::Contains("[gradcheck] no input is float"), ValueError);
  CHECK_THROWS_WITH_AS(gradcheck([](const Tensor& t) { return t > 0; }, {x}),
                       doctest::Contains("[gradcheck] the result must be float32 or float64"),
                       DtypeError);
  CHECK_THROWS_WITH_AS(gradcheck([](const Tensor&) { return Tensor(); }, {x}),
                       doctest::Contains("[gradcheck] the result is an undefined tensor"),
                       GraphError);
  const double nan = std::nan("");
  for (const GradcheckOptions& bad :
       {GradcheckOptions{.order = 3}, GradcheckOptions{.step = nan}, GradcheckOptions{.step = 0.0},
        GradcheckOptions{.rtol = -1.0}, GradcheckOptions{.atol = HUGE_VAL},
        GradcheckOptions{.max_entries = 0, .directions = 0}, GradcheckOptions{.directions = -1}}) {
    CHECK_THROWS_WITH_AS(gradcheck(f, {x}, bad), doctest::Contains("[gradcheck]"), ValueError);
  }
  // What the function itself throws comes through.
  CHECK_THROWS_AS(gradcheck(
                      [](const Tensor& t) {
                        return matmul(t, t, {}) + zeros({7, 2});
                      },
                      {x}),
                  Error);
}
