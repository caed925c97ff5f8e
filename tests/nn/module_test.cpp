// Module: names, state, hooks, conversion, and what a refused load leaves alone.
#include "softtape/nn/module.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "softtape/graph/grad.hpp"
#include "softtape/nn/dropout.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/nn/sequential.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

namespace {

// A parameter, a buffer, a stream and a child.
struct Sample : Module {
  explicit Sample(Rng& rng) : inner(2, 1, rng), stream(rng.spawn(1).front()) {
    register_parameter("scale", scale);
    register_buffer("table", table);
    register_stream("stream", stream);
    register_module("inner", inner);
  }
  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;

  Tensor scale = ones({2});
  Tensor table = tensor({3, 4});
  Linear inner;
  Rng stream;
};

std::vector<std::string> names(const State& state) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : state) found.push_back(name);
  return found;
}

State cloned(const State& state) {
  State copy;
  for (const auto& [name, tensor] : state) copy.emplace_back(name, tensor.clone());
  return copy;
}

bool same_state(const State& a, const State& b) {
  if (names(a) != names(b)) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!test_support::same_bits(a[i].second, b[i].second)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("module: names come depth first, own entries before children") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  Sample outer(rng);
  using Names = std::vector<std::string>;
  CHECK(names(outer.named_parameters()) == Names{"scale", "inner.weight", "inner.bias"});
  CHECK(names(outer.state()) == Names{"scale", "table", "stream", "inner.weight", "inner.bias"});
  CHECK(outer.parameter_count() == 5);
  CHECK(outer.parameters().size() == 3);
  CHECK(outer.inner.weight.name() == "inner.weight");
  CHECK(outer.scale.requires_grad());
  CHECK_FALSE(outer.table.requires_grad());
  CHECK(outer.named_parameters()[1].second.is_same(outer.inner.weight));
}

TEST_CASE("module: a shared parameter is trained once and saved under both names") {
  Rng rng(1);
  Sequential net;
  auto& first = net.emplace<Linear>(2, 2, rng);
  auto& second = net.emplace<Linear>(2, 2, rng);
  second.weight = first.weight;
  CHECK(net.named_parameters().size() == 3);
  CHECK(net.state().size() == 4);
  net.to(DType::float64);
  CHECK(second.weight.is_same(first.weight));
  CHECK(second.weight.dtype() == DType::float64);
}

TEST_CASE("module: names must be new, plain and of what exists") {
  Rng rng(1);
  Sample m(rng);
  Tensor whole = tensor({1, 2});
  Tensor undefined;
  Tensor fresh = ones({1});
  Tensor trained = ones({1}, {.requires_grad = true});
  CHECK_THROWS_SAYING(ValueError, "register_parameter", "without dots",
                      m.register_parameter("", fresh));
  CHECK_THROWS_SAYING(ValueError, "register_parameter", "without dots",
                      m.register_parameter("a.b", fresh));
  CHECK_THROWS_SAYING(ValueError, "register_parameter", "new in its module",
                      m.register_parameter("table", fresh));
  CHECK_THROWS_SAYING(ValueError, "register_module", "new in its module",
                      m.register_module("scale", m.inner));
  CHECK_THROWS_SAYING(ValueError, "register_module", "another module, once",
                      m.register_module("again", m.inner));
  CHECK_THROWS_SAYING(ValueError, "register_module", "another module, once",
                      m.register_module("self", m));
  CHECK_THROWS_SAYING(DtypeError, "register_parameter", "int64",
                      m.register_parameter("whole", whole));
  CHECK_THROWS_SAYING(GraphError, "register_parameter", "undefined",
                      m.register_parameter("none", undefined));
  CHECK_THROWS_SAYING(GraphError, "register_buffer", "constant",
                      m.register_buffer("trained", trained));
  CHECK(m.state().size() == 5);
}

TEST_CASE("module: state goes into another module bit for bit, streams included") {
  const test_support::LeakGuard leaks;
  Rng rng(1), other(2);
  Sample a(rng), b(other);
  a.stream.random();
  b.load_state(a.state());
  CHECK(same_state(a.state(), b.state()));
  CHECK(a.stream.random() == b.stream.random());
  CHECK(b.scale.requires_grad());
}

TEST_CASE("module: a refused load changes nothing") {
  Rng rng(1), other(2);
  Sample m(rng), from(other);
  const State before = cloned(m.state());
  const State good = cloned(from.state());
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    State state = good;
    for (auto& entry : state) {
      if (entry.first == name) entry.second = tensor;
    }
    return state;
  };
  State missing(good.begin(), good.end() - 1);
  State unknown = good;
  unknown.emplace_back("extra", ones({1}));
  State doubled = good;
  doubled.push_back(good[0]);

  CHECK_THROWS_SAYING(ValueError, "load_state", "missing [inner.bias]", m.load_state(missing));
  CHECK_THROWS_SAYING(ValueError, "load_state", "unknown [extra]", m.load_state(unknown));
  CHECK_THROWS_SAYING(ValueError, "load_state", "\"scale\" is doubled", m.load_state(doubled));
  CHECK_THROWS_SAYING(ShapeError, "load_state", "inner.bias is (1,) here, (2,) there",
                      m.load_state(with("inner.bias", ones({2}))));
  CHECK_THROWS_SAYING(DtypeError, "load_state", "inner.bias is float32 here, float64 there",
                      m.load_state(with("inner.bias", ones({1}, {.dtype = DType::float64}))));
  CHECK_THROWS_SAYING(GraphError, "load_state", "inner.bias is an undefined",
                      m.load_state(with("inner.bias", Tensor())));
  CHECK_THROWS_SAYING(ValueError, "rng_from_tensor", "not the state of a generator",
                      m.load_state(with("stream", tensor({1, 2, 3}))));
  // Not strict forgives names alone.
  CHECK_THROWS_SAYING(ShapeError, "load_state", "shapes must be equal",
                      m.load_state(with("inner.bias", ones({2})), false));
  CHECK(same_state(m.state(), before));
}

TEST_CASE("module: not strict takes what is on both sides and returns the rest") {
  Rng rng(1);
  Sample m(rng);
  const State some{{"scale", tensor({5.0f, 6.0f})}, {"extra", ones({1})}};
  const auto left = m.load_state(some, false);
  CHECK(left == std::vector<std::string>{"table", "stream", "inner.weight", "inner.bias", "extra"});
  CHECK_NUMBERS(m.scale, {5, 6});
}

TEST_CASE("module: a corrupt generator state is refused") {
  Rng rng(3);
  rng.integers(0, 5);
  rng.spawn(2);
  const Rng child = rng.spawn(1).front();
  for (const Rng& one : {rng, child, Rng({1, 2, 3, 4, 5, 6})}) {
    CHECK(rng_from_tensor(rng_to_tensor(one)).state() == one.state());
  }
  const auto good = rng_to_tensor(child).to_vector<std::int64_t>();
  const auto refused = [&](std::size_t at, std::int64_t value) {
    auto numbers = good;
    numbers[at] = value;
    CHECK_THROWS_AS(rng_from_tensor(tensor(numbers)), ValueError);
  };
  refused(3, 2);                                         // the increment must be odd
  refused(4, 2);                                         // a flag
  refused(5, -1);                                        // 32 bits
  refused(7, 0);                                         // the pool
  refused(8, 1000);                                      // a length
  refused(8, std::numeric_limits<std::int64_t>::max());  // a length
  for (std::size_t n = 0; n < good.size(); ++n) {
    CHECK_THROWS_AS(rng_from_tensor(tensor(
                        std::vector(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)))),
                    ValueError);
  }
  CHECK_THROWS_SAYING(ValueError, "rng_from_tensor", "int64", rng_from_tensor(ones({12})));
  CHECK_THROWS_SAYING(ValueError, "rng_from_tensor", "int64", rng_from_tensor(Tensor()));
  CHECK_THROWS_SAYING(ValueError, "rng_from_tensor", "one axis",
                      rng_from_tensor(scalar(std::int64_t{1})));
}

TEST_CASE("module: train and eval reach all children, late ones too") {
  Rng rng(1);
  Sequential net;
  net.eval();
  auto& drop = net.emplace<Dropout>(0.5, rng);
  CHECK_FALSE(drop.training());
  const Tensor x = ones({64});
  CHECK(drop(x).is_same(x));
  net.train();
  CHECK(drop.training());
  CHECK_FALSE(equal(drop(x), x));
}

TEST_CASE("module: EvalMode gives every module the mode back that it had itself") {
  Rng rng(1);
  Sequential net, alone;
  auto& inner = net.emplace<Sequential>();
  auto& frozen = inner.emplace<Dropout>(0.5, rng);
  auto& drop = net.emplace<Dropout>(0.5, rng);
  auto& loud = alone.emplace<Dropout>(0.5, rng);
  inner.eval();
  alone.eval();
  loud.train();
  const std::vector<Module*> all{&net, &inner, &frozen, &drop, &alone, &loud};
  const auto modes = [&] {
    std::vector<bool> training;
    for (const Module* module : all) training.push_back(module->training());
    return training;
  };
  const std::vector<bool> before{true, false, false, true, false, true};
  REQUIRE(modes() == before);
  {
    const EvalMode guard({&loud, &net, &alone, &inner});
    CHECK(modes() == std::vector<bool>(6));
    const EvalMode again(net);
    CHECK(modes() == std::vector<bool>(6));
  }
  CHECK(modes() == before);
  const auto fail = [&] {
    const EvalMode guard(net);
    throw ValueError("a bad day");
  };
  CHECK_THROWS_AS(fail(), ValueError);
  CHECK(modes() == before);
}

TEST_CASE("module: to converts in place and makes recorded graphs refuse") {
  Rng rng(1);
  Linear m(2, 1, rng);
  const Tensor weight = m.weight;
  const Tensor x = ones({1, 2}, {.requires_grad = true});
  const Tensor y = sum(m(x));
  y.backward({.retain_graph = true});
  CHECK(weight.grad().defined());
  m.to(DType::float64);
  CHECK(weight.is_same(m.weight));
  CHECK(weight.dtype() == DType::float64);
  CHECK_FALSE(weight.grad().defined());
  CHECK_THROWS_AS(y.backward(), Error);
  CHECK_THROWS_AS(m(x), DtypeError);
  CHECK(m(to(x, DType::float64)).dtype() == DType::float64);
  CHECK_THROWS_SAYING(DtypeError, "to", "int64", m.to(DType::int64));
}

TEST_CASE("module: zero_grad forgets every gradient") {
  Rng rng(1);
  Linear m(2, 1, rng);
  sum(m(ones({1, 2}))).backward();
  CHECK(m.bias.grad().defined());
  m.zero_grad();
  CHECK_FALSE(m.weight.grad().defined());
  CHECK_FALSE(m.bias.grad().defined());
}

TEST_CASE("module: forward hooks see and replace the output") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  Linear m(2, 1, rng);
  const Tensor x = ones({1, 2});
  const Tensor plain = m(x);
  int calls = 0;
  const int watch = m.register_forward_hook([&](const Module& module, const Tensor& output) {
    CHECK(&module == &m);
    CHECK(equal(output, plain));
    ++calls;
    return Tensor();
  });
  const int twice =
      m.register_forward_hook([](const Module&, const Tensor& output) { return mul(output, 2); });
  CHECK(equal(m(x), mul(plain, 2)));
  m.remove_hook(twice);
  CHECK(equal(m(x), plain));
  m.remove_hook(watch);
  m(x);
  CHECK(calls == 2);
  CHECK_THROWS_SAYING(ValueError, "register_forward_hook", "empty",
                      m.register_forward_hook(nullptr));
}

TEST_CASE("module: backward hooks see the gradient of each output alone") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  Dropout identity(0, rng);  // returns its very input
  const Tensor x = tensor({1.0f, 2.0f}, {.requires_grad = true});
  std::vector<Tensor> seen;
  identity.register_backward_hook([&](const Tensor& gradient) {
    seen.push_back(gradient.clone());
    return mul(gradient, 10);
  });
  const Tensor y = mul(identity(x), 3) + mul(x, 5);
  sum(y).backward();
  REQUIRE(seen.size() == 1);
  CHECK_NUMBERS(seen[0], {3, 3});
  CHECK_NUMBERS(x.grad(), {35, 35});
  {
    const NoGrad guard;
    CHECK(identity(x).is_same(x));
  }
  CHECK_THROWS_SAYING(ValueError, "register_backward_hook", "empty",
                      identity.register_backward_hook(nullptr));
}

TEST_CASE("parameters: several modules as one list, none twice") {
  Rng rng(1);
  Linear a(2, 1, rng), b(2, 1, {.bias = false}, rng);
  CHECK(names(parameters(a, b)) == std::vector<std::string>{"0.weight", "0.bias", "1.weight"});
  CHECK_THROWS_SAYING(ValueError, "parameters", "1.weight is 0.weight again", parameters(a, a));
  b.weight = a.weight;
  CHECK_THROWS_SAYING(ValueError, "parameters", "1.weight is 0.weight again", parameters(a, b));
}
