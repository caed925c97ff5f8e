// An op of a user's own: forward over spans, a rule in public ops, checked to second order.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/study/gradcheck.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

const OpInfo kCube{"cube", [](Vjp& r) { r.set(0, r.gy() * 3 * square(r.x(0))); }, saves_inputs};

Tensor cube(const Tensor& x) {
  Tensor y = empty_like(x);
  visit_float(x.dtype(), "cube", [&](auto zero) {
    using T = decltype(zero);
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i] * in[i];
  });
  return record(kCube, std::move(y), {x});
}

// x^n for any input count and with an attribute: the sum of the inputs' powers.
const OpInfo kPowerSum{"power_sum",
                       [](Vjp& r) {
                         const double n = r.attributes<double>();
                         for (int i = 0; i < r.arity(); ++i) {
                           if (r.needs(i)) r.set(i, r.gy() * n * pow(r.x(i), n - 1));
                         }
                       },
                       saves_inputs};
Tensor power_sum(std::span<const Tensor> inputs, double n) {
  Tensor y = zeros_like(inputs[0]);
  for (const Tensor& x : inputs) {
    const auto out = y.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += std::pow(x.data<double>()[i], n);
  }
  return record(kPowerSum, std::move(y), inputs, n);
}

// For each way in which a rule can be wrong.
Tensor wrong_with(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  y.copy_(x.detach());
  return record(op, std::move(y), {x});
}
const OpInfo kUnsavedInput{"unsaved_input", [](Vjp& r) { r.set(0, r.x(0)); }};
const OpInfo kUnsavedOutput{"unsaved_output", [](Vjp& r) { r.set(0, r.y()); }};
const OpInfo kWrongShape{"wrong_shape", [](Vjp& r) { r.set(0, sum(r.gy())); }};
const OpInfo kWrongDtype{"wrong_dtype", [](Vjp& r) { r.set(0, to(r.gy(), DType::float32)); }};
const OpInfo kWrongPlace{"wrong_place", [](Vjp& r) { r.set(1, r.gy()); }};
const OpInfo kNegativePlace{"negative_place", [](Vjp& r) { r.set(r.needs(-1) ? 0 : 1, r.gy()); }};
const OpInfo kThrows{"throws", [](Vjp&) { throw ValueError("[throws] on purpose"); }};
const OpInfo kSilent{"silent", [](Vjp&) {}};

std::vector<int> seen_needs;
const OpInfo kLooks{"looks",
                    [](Vjp& r) {
                      seen_needs = {r.needs(0), r.needs(1)};
                      CHECK(r.x_shape(1) == Shape{});
                      CHECK(r.x_dtype(1) == DType::int64);
                      CHECK_FALSE(r.recording());
                      CHECK_NUMBERS(r.y(), {1.0, 2.0});
                      r.set(0, r.gy());
                      r.set(1, Tensor());
                    },
                    saves_output};
const OpInfo kAsks{"asks", [](Vjp& r) {
                     seen_needs = {r.needs(0), r.needs(1)};
                     r.set(0, r.gy());
                     r.set(1, r.gy());
                   }};

}  // namespace

TEST_CASE("an op of one's own has gradients to second order") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, -2.0, 0.5});
  CHECK_NUMBERS(cube(x), {1.0, -8.0, 0.125});
  CHECK_NUMBERS(grad(sum(cube(x)), x)[0], {3.0, 12.0, 0.75});
  const GradcheckReport report = gradcheck(cube, {x}, {.order = 2});
  CHECK_MESSAGE(report.passed, to_string(report));
  CHECK(report.op == "cube");
  CHECK(report.comparisons > 0);
  const Tensor single = leaf({2.0}, DType::float32);
  CHECK_NUMBERS(grad(cube(single), single)[0], {12.0});
  CHECK_THROWS_SAYING(DtypeError, "cube", "int64", cube(tensor({1})));
}

TEST_CASE("an op of one's own takes attributes and any number of inputs") {
  const LeakGuard guard;
  for (const int count : {1, 3, 4, 8, 40}) {
    std::vector<Tensor> x;
    for (int i = 0; i < count; ++i) x.push_back(leaf({0.5 + i, 1.0}));
    const Tensor y = sum(power_sum(x, 3));
    const auto g = grad(y, x);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double v = 0.5 + static_cast<double>(i);
      CHECK_NUMBERS(g[i], {3 * v * v, 3.0}, 1e-14);
    }
  }
  const auto f = [](std::span<const Tensor> x) { return power_sum(x, 2.5); };
  const auto report = gradcheck(
      f, {numbers({0.7, 1.2}), numbers({0.4, 3.0}), numbers({1.0, 1.5}), numbers({2.0, 0.9})},
      {.order = 2});
  CHECK_MESSAGE(report.passed, to_string(report));
}

TEST_CASE("attributes and inputs are gone after the pass") {
  const LeakGuard guard;
  const auto witness = std::make_shared<int>(0);
  const Tensor x = leaf({1.0});
  struct Attribute {
    std::shared_ptr<int> held;
  };
  static const OpInfo kHolds{"holds", [](Vjp& r) { r.set(0, r.gy()); }};
  {
    Tensor y = record(kHolds, numbers({1.0}), {x}, Attribute{witness});
    CHECK(witness.use_count() == 2);
    sum(y).backward();
    CHECK(witness.use_count() == 1);
    y = record(kHolds, numbers({1.0}), {x}, Attribute{witness});
    CHECK(witness.use_count() == 2);
  }
  CHECK(witness.use_count() == 1);
  const NoGrad no_grad;
  const Tensor y = record(kHolds, numbers({1.0}), {x}, Attribute{witness});
  CHECK(witness.use_count() == 1);
}

TEST_CASE("rules that are wrong are refused by name") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const auto pass = [&](const OpInfo& op) {
    wrong_with(op, x).backward({.gradient = numbers({1.0, 1.0})});
    return 0;
  };
  CHECK_THROWS_SAYING(GraphError, "unsaved_input", "OpInfo::saves", pass(kUnsavedInput));
  CHECK_THROWS_SAYING(GraphError, "unsaved_output", "OpInfo::saves", pass(kUnsavedOutput));
  CHECK_THROWS_SAYING(ShapeError, "wrong_shape", "(2,)", pass(kWrongShape));
  CHECK_THROWS_SAYING(DtypeError, "wrong_dtype", "float32", pass(kWrongDtype));
  CHECK_THROWS_SAYING(GraphError, "wrong_place", "input 1 of 1", pass(kWrongPlace));
  CHECK_THROWS_SAYING(GraphError, "negative_place", "input -1 of 1", pass(kNegativePlace));
  CHECK_THROWS_SAYING(ValueError, "throws", "on purpose", pass(kThrows));
  CHECK_FALSE(x.grad().defined());
  CHECK(grad_enabled());
}

TEST_CASE("a rule that sets nothing means a zero gradient") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = sum(wrong_with(kSilent, x));
  CHECK_FALSE(grad(y, x, {.retain_graph = true, .allow_unused = true})[0].defined());
  CHECK_NUMBERS(grad(y + sum(x), x)[0], {1.0, 1.0});
}

TEST_CASE("a rule sees what it needs to know") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  Tensor y = empty_like(x);
  y.copy_(x.detach());
  y = record(kLooks, std::move(y), {x, scalar(3)});
  sum(y).backward();
  CHECK(seen_needs == std::vector<int>{1, 0});
}

TEST_CASE("a rule is asked only for the inputs of grad()") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor z = leaf({3.0, 4.0});
  const auto both = [&] { return sum(record(kAsks, x.detach().clone(), {x, z * 1})); };
  CHECK_NUMBERS(grad(both(), x)[0], {1.0, 1.0});
  CHECK(seen_needs == std::vector<int>{1, 0});
  CHECK_NUMBERS(grad(both(), z)[0], {1.0, 1.0});
  CHECK(seen_needs == std::vector<int>{0, 1});
  both().backward();
  CHECK(seen_needs == std::vector<int>{1, 1});
}

TEST_CASE("record takes a fresh result and defined inputs") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  CHECK_THROWS_SAYING(GraphError, "cube", "fresh tensor", record(kCube, x, {x}));
  CHECK_THROWS_SAYING(GraphError, "cube", "fresh tensor", record(kCube, x * 2, {x}));
  CHECK_THROWS_SAYING(GraphError, "cube", "undefined", record(kCube, Tensor(), {x}));
  CHECK_THROWS_SAYING(GraphError, "cube", "undefined",
                      record(kCube, numbers({1.0}), {x, Tensor()}));
  // Without recording any result goes through.
  const NoGrad no_grad;
  CHECK(record(kCube, x, {x}).is_same(x));
}

TEST_CASE("every op is registered once, with a name of its own") {
  bool found = false;
  for (const OpInfo* op : all_ops()) {
    CHECK((op->vjp != nullptr));
    found = found || op == &kCube;
    for (const OpInfo* other : all_ops()) {
      CHECK((op == other || std::string(op->name) != other->name));
    }
  }
  CHECK(found);
}
