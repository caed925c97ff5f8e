// What gradcheck does at kinks, in float32, with inputs in use, and when it is misused.
#include <doctest/doctest.h>

#include <cmath>

#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "study/planted.hpp"

using namespace softtape;
using namespace planted;
using Kind = GradcheckFailure::Kind;

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
