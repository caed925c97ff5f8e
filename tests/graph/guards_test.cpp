// NoGrad and EnableGrad, and the anomaly guard.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "softtape/graph/grad.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

// What the ValueError of a call says.
template <class F>
std::string anomaly(F f) {
  try {
    f();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Finite values with a rule that is not.
const OpInfo kBadRule{"bad_rule", [](Vjp& r) { r.set(0, r.gy() * kNaN); }};
Tensor bad_rule(TensorArg x) {
  Tensor y = empty_like(x);
  y.copy_(x->detach());
  return record(kBadRule, std::move(y), {*x});
}

}  // namespace

TEST_CASE("NoGrad computes values only, for its scope") {
  const LeakGuard guard;
  const Tensor x = leaf(3.0);
  {
    const NoGrad no_grad;
    CHECK_FALSE(grad_enabled());
    const Tensor y = square(x);
    CHECK(y.item() == 9);
    CHECK_FALSE(y.requires_grad());
    CHECK(y.is_leaf());
  }
  CHECK(grad_enabled());
  CHECK(square(x).requires_grad());
}

TEST_CASE("guards nest") {
  const LeakGuard guard;
  {
    const NoGrad a;
    {
      const NoGrad b;
      {
        const EnableGrad c;
        CHECK(grad_enabled());
        {
          const GradMode d(false);
          CHECK_FALSE(grad_enabled());
        }
        CHECK(grad_enabled());
      }
      CHECK_FALSE(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
}

TEST_CASE("guards are left by exceptions too") {
  const LeakGuard guard;
  const Tensor x = leaf(3.0);
  for (int i = 0; i < 2; ++i) {
    try {
      const NoGrad outer;
      const NoGrad inner;
      if (i == 0) throw std::runtime_error("inside");
      x + numbers({1.0, 2.0}, DType::float32);  // a refused op
    } catch (const std::exception&) {
    }
    CHECK(grad_enabled());
  }
  square(x).backward();
  CHECK(x.grad().item() == 6);
}

TEST_CASE("the mode belongs to the thread [thread]") {
  const NoGrad no_grad;
  bool other = false;
  std::thread([&] { other = grad_enabled(); }).join();
  CHECK(other);
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("the anomaly guard names op, input, range and line of the forward call") {
  const LeakGuard guard;
  const AnomalyGuard anomalies;
  Tensor x = leaf({4.0, -0.25, 9.0}).named("energies");
  const int line = __LINE__ + 1;
  const std::string message = anomaly([&] { sqrt(x); });
  CHECK_MESSAGE(message.rfind("[sqrt] made NaN from finite inputs", 0) == 0, message);
  CHECK(contains(message, fmt::format("guards_test.cpp:{}", line)));
  CHECK(contains(message, "'energies' (3,) in [-0.25, 9]"));
  const std::string overflow = anomaly([&] { exp(x * 1000); });
  CHECK_MESSAGE(contains(overflow, "[exp] made Inf"), overflow);
  CHECK(contains(overflow, "input 0 (3,) in [-250, 9000]"));
  const std::string pole = anomaly([&] { numbers({1.0, 2.0}) / numbers({0.0, 1.0}); });
  CHECK_MESSAGE(contains(pole, "[div] made Inf"), pole);
  CHECK(contains(pole, "input 1 (2,) in [0, 1]"));
}

TEST_CASE("the anomaly guard names the first op, not the ones after it") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 0.0});
  // Without a guard the infinity goes all the way.
  CHECK_FALSE(isfinite(sum(log(x) * 2)).data<bool>()[0]);
  const AnomalyGuard anomalies;
  CHECK(contains(anomaly([&] { sum(log(x) * 2); }), "[log] made Inf"));
  // What came in infinite is not made here.
  const Tensor given = numbers({1.0, kInf, kNaN});
  CHECK(anomaly([&] { sum(given * 2 + 1); }) == "nothing was thrown");
}

TEST_CASE("a NaN made from infinities is made here") {
  const LeakGuard guard;
  const Tensor scores = masked_fill(leaf({1.0, 2.0}), tensor({true, true}), -kInf);
  const AnomalyGuard anomalies;
  // The usual accident: a fully masked row, shifted by its maximum.
  const std::string message = anomaly([&] { scores - max(scores); });
  CHECK_MESSAGE(message.rfind("[sub] made NaN", 0) == 0, message);
  CHECK(contains(message, "-inf"));
  CHECK(contains(anomaly([&] { scores * 0; }), "[mul] made NaN"));
}

TEST_CASE("masked infinities are trusted") {
  const LeakGuard guard;
  const AnomalyGuard anomalies;
  Tensor x = leaf({{1.0, 2.0}, {3.0, 4.0}});
  const Tensor hidden = tensor({{false, true}, {true, true}});
  CHECK(anomaly([&] { sum(softmax(masked_fill(x, hidden, -kInf))).backward(); }) ==
        "nothing was thrown");
  CHECK(anomaly([&] { sum(softmax(where(hidden, -kInf, x)) * x).backward(); }) ==
        "nothing was thrown");
  CHECK(anomaly([&] {
          sum(where(hidden, 0, log_softmax(x, {.mask = Mask::masked_out(hidden)}))).backward();
        }) == "nothing was thrown");
  CHECK(anomaly([&] {
          sum(softmax(pad(x, {{0, 0}, {0, 1}}, -kInf))).backward();
        }) == "nothing was thrown");
  CHECK(anomaly([&] {
          sum(logsumexp(masked_fill(x, tensor({{false, true}}), -kInf), -1)).backward();
        }) == "nothing was thrown");
  CHECK(isfinite(x.grad()).data<bool>()[0]);
}

TEST_CASE("the anomaly guard names the rule that made a NaN, and the line of its forward call") {
  const LeakGuard guard;
  const AnomalyGuard anomalies;
  Tensor x = leaf({1.0, 2.0}).named("theta");
  const int line = __LINE__ + 1;
  const Tensor y = sum(bad_rule(x) * 3);
  const std::string message = anomaly([&] { y.backward(); });
  CHECK_MESSAGE(message.rfind("[bad_rule] its rule made NaN", 0) == 0, message);
  CHECK(contains(message, "input 0 'theta' (2,)"));
  CHECK(contains(message, fmt::format("guards_test.cpp:{}", line)));
  CHECK(contains(message, "upstream in [3, 3]"));
  CHECK_FALSE(x.grad().defined());
  // The infinite slope of sqrt at 0.
  const Tensor z = sum(sqrt(x - x));
  CHECK(contains(anomaly([&] { grad(z, x); }), "[sqrt] its rule made Inf"));
}

TEST_CASE("the anomaly guard also looks at second derivatives and at sums of gradients") {
  const LeakGuard guard;
  const AnomalyGuard anomalies;
  const Tensor x = leaf(0.0);
  const Tensor dy = grad(pow(x, 1.5), x, {.create_graph = true})[0];
  CHECK(contains(anomaly([&] { grad(dy, x); }), "its rule made Inf"));
  const Tensor w = leaf(1.0, DType::float32);
  const Tensor y = w * 2e38 - (2 - w) * 2e38;
  CHECK(contains(anomaly([&] { y.backward(); }), "Inf"));
}

TEST_CASE("an anomaly guard ends with its scope, and nests") {
  const LeakGuard guard;
  const Tensor x = leaf(-1.0);
  {
    const AnomalyGuard outer;
    { const AnomalyGuard inner; }
    CHECK_THROWS_AS(sqrt(x), ValueError);
  }
  CHECK(isnan(sqrt(x)).data<bool>()[0]);
  Tensor y;
  {
    const AnomalyGuard forward;
    y = bad_rule(x);
  }
  CHECK(isnan(grad(y, x, {.retain_graph = true})[0]).data<bool>()[0]);
  // A forward pass without a guard has left no line.
  const Tensor z = bad_rule(x);
  const AnomalyGuard backward;
  CHECK(contains(anomaly([&] { grad(z, x); }), "forward call not under the guard"));
}

TEST_CASE("a refused anomaly leaves the graph usable") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, -1.0});
  const Tensor h = x * 2;
  {
    const AnomalyGuard anomalies;
    CHECK_THROWS_AS(sqrt(h), ValueError);
  }
  CHECK_NUMBERS(grad(sum(h), x)[0], {2.0, 2.0});
}
