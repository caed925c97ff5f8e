// Handed cases of layers and training: optimisers, clipping, schedules, initialisers, positions.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/init.hpp"
#include "softtape/nn/multi_head_attention.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/clip.hpp"
#include "softtape/optim/schedule.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/constants.hpp"

using namespace softtape;
using test_support::kNaN;

namespace {

Tensor parameter(double value) {
  return full({}, value, {.dtype = DType::float64, .requires_grad = true});
}

// The parameter after each update with these gradients.
std::vector<double> trajectory(const std::function<void(Tensor&, std::vector<double>&)>& run) {
  Tensor p = parameter(1);
  std::vector<double> out;
  run(p, out);
  return out;
}

void step(Optimizer& optimizer, Tensor& p, double gradient) {
  p.set_grad(full({}, gradient, {.dtype = DType::float64}));
  optimizer.step();
}

bool close(double a, double b, double rtol) { return std::abs(a - b) <= rtol * std::abs(b); }

}  // namespace

TEST_CASE("OPT-001: the first Adam step has the size of the rate") {
  const auto p = trajectory([](Tensor& x, std::vector<double>& out) {
    Adam adam({x}, {.lr = 1e-3});
    step(adam, x, 0.1);
    out.push_back(x.item());
  });
  CHECK(close(p[0], 0.9990000001, 1e-14));
}

TEST_CASE("OPT-004: AdamW decays the weight, Adam its gradient") {
  Tensor decoupled = parameter(2), coupled = parameter(2);
  AdamW adamw({decoupled}, {.lr = 0.1, .weight_decay = 0.1});
  step(adamw, decoupled, 0);
  Adam adam({coupled}, {.lr = 0.1, .weight_decay = 0.1});
  step(adam, coupled, 0);
  CHECK(close(decoupled.item(), 1.98, 1e-13));
  CHECK(close(coupled.item(), 1.9000000049999997, 1e-13));
}

TEST_CASE("OPT-006: momentum is v = mu v + g, without dampening") {
  const auto p = trajectory([](Tensor& x, std::vector<double>& out) {
    SGD sgd({x}, {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 3; ++i) {
      step(sgd, x, 1);
      out.push_back(x.item());
    }
  });
  CHECK(close(p[0], 0.9, 1e-14));
  CHECK(close(p[1], 0.71, 1e-14));
  CHECK(close(p[2], 0.43899999999999995, 1e-14));
}

TEST_CASE("OPT-012: hyper-parameters out of range are refused at construction") {
  Tensor x = parameter(1);
  for (const double lr : {-1.0, kNaN}) {
    CHECK_THROWS_AS(SGD({x}, {.lr = lr}), ValueError);
    CHECK_THROWS_AS(Adam({x}, {.lr = lr}), ValueError);
    CHECK_THROWS_AS(AdamW({x}, {.lr = lr}), ValueError);
  }
  CHECK_THROWS_AS(Adam({x}, {.beta1 = 1}), ValueError);
  CHECK_THROWS_AS(Adam({x}, {.beta2 = -0.1}), ValueError);
  CHECK_THROWS_AS(Adam({x}, {.eps = -1}), ValueError);
  CHECK_THROWS_AS(SGD({x}, {.momentum = -0.1}), ValueError);
  CHECK_THROWS_AS(SGD({x}, {.nesterov = true}), ValueError);
}

TEST_CASE("CLP-001: the norm is that of all gradients together, and returned as it was") {
  Tensor a = full({1}, 0.0).requires_grad_(), b = full({1}, 0.0).requires_grad_();
  a.set_grad(full({1}, 3.0));
  b.set_grad(full({1}, 4.0));
  CHECK(close(clip_grad_norm_({a, b}, 1), 5, 3e-7));
  CHECK(close(a.grad()[0].item(), 0.6, 3e-7));
  CHECK(close(b.grad()[0].item(), 0.8, 3e-7));
}

TEST_CASE("CLP-005: a limit that is negative or NaN is refused, gradients stay") {
  Tensor a = full({1}, 0.0).requires_grad_();
  a.set_grad(full({1}, 3.0));
  for (const double limit : {-1.0, kNaN}) {
    CHECK_THROWS_AS(clip_grad_norm_({a}, limit), ValueError);
    CHECK(a.grad()[0].item() == 3);
  }
}

TEST_CASE("SCH-001: warm-up wastes no update on a rate of 0") {
  const Schedule warmup = Schedule::linear_warmup(4);
  const double expected[] = {0.25, 0.5, 0.75, 1, 1, 1};
  for (std::int64_t t = 0; t < 6; ++t) CHECK(close(warmup.lr(1, t), expected[t], 1e-15));
}

TEST_CASE("SCH-004: lengths that cannot be are refused at construction") {
  CHECK_THROWS_AS(Schedule::cosine(0), ValueError);
  CHECK_THROWS_AS(Schedule::linear_warmup(-1), ValueError);
  CHECK_THROWS_AS(Schedule::warmup_cosine({.warmup = 20, .total = 10}), ValueError);
}

TEST_CASE("INI-001: Xavier's bound is sqrt(6 / (in + out)), its deviation sqrt(2 / (in + out))") {
  Rng rng(0), same(0);
  Tensor x = zeros({5, 3}, {.dtype = DType::float64});
  init::xavier_uniform_(x, rng);
  for (const double value : x.to_vector()) {
    CHECK(close(value, same.uniform(-0.8660254037844386, 0.8660254037844386), 1e-14));
  }
  init::xavier_normal_(x, rng);
  for (const double value : x.to_vector()) CHECK(close(value, same.normal(0, 0.5), 1e-15));
}

TEST_CASE("POS-001: sinusoidal positions of an odd width end with a sine") {
  const std::vector<double> row = to(sinusoidal_positions(4, 5), DType::float64)[3].to_vector();
  const double expected[] = {0.1411200080598672, -0.9899924966004454, 0.07528529299888896,
                             0.997162035307237, 0.001892870903091888};
  REQUIRE(row.size() == 5);
  // The table is float32 unless the default is changed.
  const DefaultDtype doubles(DType::float64);
  const std::vector<double> exact = sinusoidal_positions(4, 5)[3].to_vector();
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(close(row[i], expected[i], 1e-6));
    CHECK(close(exact[i], expected[i], 1e-12));
  }
}

TEST_CASE("MHA-002: head counts that cannot be are refused before any division") {
  Rng rng(0);
  CHECK_THROWS_AS(MultiHeadAttention(4, 0, rng), ValueError);
  CHECK_THROWS_AS(MultiHeadAttention(4, 3, rng), ValueError);
  CHECK_THROWS_AS(MultiHeadAttention(0, 1, rng), ValueError);
}
