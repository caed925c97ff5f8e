// Optimisers: the handed cases, PyTorch's trajectories, groups, state, refusals.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "golden/nn_golden.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::kInf;
using test_support::kNaN;
using test_support::leaf;
using test_support::numbers;

namespace {

State cloned(const State& state) {
  State copy;
  for (const auto& [name, tensor] : state) copy.emplace_back(name, tensor.clone());
  return copy;
}

std::vector<std::string> names(const State& state) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : state) found.push_back(name);
  return found;
}

}  // namespace

TEST_CASE("Adam: the first step is lr g / (|g| + eps)") {
  Tensor p = leaf(1.0);
  Adam optimizer({p}, {.lr = 1e-3});
  p.set_grad(numbers(0.1));
  optimizer.step();
  CHECK_NUMBERS(p, 0.9990000001, 1e-14);
}

TEST_CASE("AdamW decays the parameter, Adam the gradient") {
  Tensor p = leaf(2.0), q = leaf(2.0);
  AdamW decoupled({p}, {.lr = 0.1, .weight_decay = 0.1});
  Adam coupled({q}, {.lr = 0.1, .weight_decay = 0.1});
  p.set_grad(numbers(0.0));
  q.set_grad(numbers(0.0));
  decoupled.step();
  coupled.step();
  CHECK_NUMBERS(p, 1.98, 1e-13);
  CHECK_NUMBERS(q, 1.9000000049999997, 1e-13);
}

TEST_CASE("SGD: momentum without dampening") {
  Tensor p = leaf(1.0);
  SGD optimizer({p}, {.lr = 0.1, .momentum = 0.9});
  for (const double want : {0.9, 0.71, 0.43899999999999995}) {
    p.set_grad(numbers(1.0));
    optimizer.step();
    CHECK_NUMBERS(p, want, 1e-14);
  }
}

TEST_CASE("golden: trajectories of 20 steps equal PyTorch's") {
  using Make = std::function<std::unique_ptr<Optimizer>(const Tensor&, const Tensor&)>;
  const auto check = [](const std::string& name, const Make& make) {
    for (const auto& golden : golden::nn::trajectories) {
      if (golden.name != name) continue;
      Rng rng(5);
      const auto draw = [&](std::int64_t n) {
        return normal(rng, 0, 0.5, {n}, {.dtype = DType::float64});
      };
      Tensor a = draw(2), b = draw(1);
      a.requires_grad_();
      b.requires_grad_();
      const auto optimizer = make(a, b);
      std::vector<double> steps;
      for (int i = 0; i < 20; ++i) {
        a.set_grad(draw(2));
        b.set_grad(draw(1));
        optimizer->step();
        for (const Tensor& p : {a, b}) {
          const auto now = p.to_vector();
          steps.insert(steps.end(), now.begin(), now.end());
        }
      }
      CAPTURE(name);
      CHECK_NUMBERS(tensor(steps), tensor(golden.steps), 1e-12, 1e-13);
      return;
    }
    FAIL("no golden numbers for ", name);
  };
  const auto sgd = [](SgdOptions options) {
    return [=](const Tensor& a, const Tensor& b) {
      return std::make_unique<SGD>(ParameterList{a, b}, options);
    };
  };
  check("sgd", sgd({.lr = 0.1}));
  check("sgd decay", sgd({.lr = 0.1, .weight_decay = 0.2}));
  check("momentum", sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2}));
  check("nesterov", sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.2}));
  const auto adam = [](AdamOptions options) {
    return [=](const Tensor& a, const Tensor& b) {
      return std::make_unique<Adam>(ParameterList{a, b}, options);
    };
  };
  check("adam", adam({.lr = 0.05}));
  check("adam decay",
        adam({.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1}));
  check("adamw", [](const Tensor& a, const Tensor& b) {
    return std::make_unique<AdamW>(ParameterList{a, b},
                                   AdamWOptions{.lr = 0.05, .weight_decay = 0.3});
  });
  check("groups", [](const Tensor& a, const Tensor& b) {
    return std::make_unique<AdamW>(
        std::vector{AdamWGroup{{a}, {.lr = 0.05}}, AdamWGroup{{b}, {.lr = 0.2}}});
  });
}

TEST_CASE("optimisers: float32 follows float64") {
  const auto run = [](DType dtype) {
    Rng rng(1);
    Tensor p = normal(rng, 0, 1, {40}, {.dtype = dtype, .requires_grad = true});
    AdamW optimizer({p}, {.lr = 0.01});
    for (int i = 0; i < 20; ++i) {
      p.set_grad(normal(rng, 0, 1, {40}, {.dtype = dtype}));
      optimizer.step();
    }
    return p;
  };
  CHECK_NUMBERS(run(DType::float32), run(DType::float64), 1e-5, 1e-6);
}

TEST_CASE("optimisers: both float types side by side") {
  Tensor a = leaf({1, 2}), b = leaf({1, 2}, DType::float32);
  SGD optimizer({a, b}, {.lr = 0.5, .momentum = 0.5});
  a.set_grad(ones_like(a));
  b.set_grad(ones_like(b));
  optimizer.step();
  CHECK_NUMBERS(a, {0.5, 1.5});
  CHECK_NUMBERS(b, {0.5, 1.5});
}

TEST_CASE("optimisers: hyper-parameters out of range are refused") {
  const Tensor p = leaf(1.0);
  const State list{{"p", p}};
  CHECK_THROWS_SAYING(ValueError, "SGD", "lr = -1", SGD(list, {.lr = -1}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "lr = nan", SGD(list, {.lr = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "lr = inf", SGD(list, {.lr = kInf}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "momentum = -0.1", SGD(list, {.momentum = -0.1}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "momentum = 1.5", SGD(list, {.momentum = 1.5}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "Nesterov", SGD(list, {.nesterov = true}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "weight_decay = -1", SGD(list, {.weight_decay = -1}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "lr = -1", Adam(list, {.lr = -1}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "beta1 = 1", Adam(list, {.beta1 = 1}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "beta2 = -0.1", Adam(list, {.beta2 = -0.1}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "beta1 = nan", Adam(list, {.beta1 = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "eps = -1", Adam(list, {.eps = -1}));
  CHECK_THROWS_SAYING(ValueError, "Adam", "weight_decay = nan", Adam(list, {.weight_decay = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "AdamW", "lr = nan", AdamW(list, {.lr = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "AdamW", "beta2 = 1", AdamW(list, {.beta2 = 1}));
  CHECK_THROWS_SAYING(ValueError, "AdamW", "eps = inf", AdamW(list, {.eps = kInf}));
  CHECK_THROWS_SAYING(ValueError, "AdamW", "weight_decay = -1", AdamW(list, {.weight_decay = -1}));
  CHECK_NOTHROW(SGD(list, {.lr = 0, .momentum = 1}));
}

TEST_CASE("optimisers: parameters must be leaves, float, there, and listed once") {
  const Tensor p = leaf(1.0), q = leaf(2.0);
  using Groups = std::vector<SgdGroup>;
  CHECK_THROWS_SAYING(ValueError, "SGD", "1 is 0 again", SGD({p, p}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "1 is 0 again", SGD(Groups{{{p}, {}}, {{q, p}, {}}}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "w is a name again", SGD(State{{"w", p}, {"w", q}}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "group 0 has none", SGD(State{}));
  CHECK_THROWS_SAYING(ValueError, "SGD", "group 1 has none", SGD(Groups{{{p}, {}}, {{}, {}}}));
  CHECK_THROWS_SAYING(GraphError, "SGD", "undefined", SGD({Tensor()}));
  CHECK_THROWS_SAYING(GraphError, "SGD", "leaf: 0 was computed", SGD({mul(p, 2)}));
  CHECK_THROWS_SAYING(DtypeError, "SGD", "int64", SGD({tensor({1, 2})}));
}

TEST_CASE("optimisers: a parameter without gradient is skipped") {
  const test_support::LeakGuard leaks;
  Tensor p = leaf(1.0), q = leaf(2.0);
  Adam optimizer({p, q}, {.lr = 0.1, .weight_decay = 0.5});
  p.set_grad(numbers(1.0));
  optimizer.step();
  CHECK(p.item() < 1);
  CHECK(q.item() == 2);
  CHECK(names(optimizer.state()) ==
        std::vector<std::string>{"groups.0.lr", "0.steps", "0.exp_avg", "0.exp_avg_sq"});
  optimizer.zero_grad();
  CHECK_FALSE(p.grad().defined());
  const double before = p.item();
  optimizer.step();
  CHECK(p.item() == before);
}

TEST_CASE("optimisers: groups have rates of their own") {
  Tensor p = leaf(1.0), q = leaf(1.0);
  SGD optimizer(std::vector<SgdGroup>{{{p}, {.lr = 0.1}}, {{q}, {.lr = 0.5}}});
  CHECK(optimizer.group_count() == 2);
  CHECK(names(optimizer.parameters()) == std::vector<std::string>{"0", "groups.1.0"});
  CHECK(optimizer.lr(1) == 0.5);
  optimizer.set_lr(0.25, 1);
  p.set_grad(numbers(1.0));
  q.set_grad(numbers(1.0));
  optimizer.step();
  CHECK_NUMBERS(p, 0.9);
  CHECK_NUMBERS(q, 0.75);
  CHECK_THROWS_SAYING(ValueError, "SGD", "group = 2", optimizer.lr(2));
  CHECK_THROWS_SAYING(ValueError, "SGD", "group = -1", optimizer.set_lr(1, -1));
  CHECK_THROWS_SAYING(ValueError, "SGD", "lr = nan", optimizer.set_lr(kNaN, 1));
  CHECK(optimizer.lr(1) == 0.25);
}

TEST_CASE("optimisers: a gradient that is not finite refuses the whole step") {
  for (const double bad : {kNaN, kInf, -kInf}) {
    for (const DType dtype : test_support::kFloats) {
      Tensor p = leaf({1, 2}, dtype), q = leaf({1, 2, 3}, dtype);
      q.named("head.wq");
      Adam optimizer({p, q});
      p.set_grad(ones_like(p));
      q.set_grad(numbers({1, 1, bad}, dtype));
      CHECK_THROWS_SAYING(ValueError, "Adam", "head.wq", optimizer.step());
      CHECK_NUMBERS(p, {1, 2});
      CHECK(optimizer.state().size() == 1);
      q.set_grad(numbers({1, 1, std::numeric_limits<float>::max()}, dtype));
      optimizer.step();
      CHECK(p.to_vector()[0] < 1);
    }
  }
}

TEST_CASE("optimisers: a state goes on bit for bit, and a refused one changes nothing") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  const auto steps = [](Optimizer& optimizer, int first, int last) {
    for (int i = first; i < last; ++i) {
      for (auto [name, p] : optimizer.parameters()) p.set_grad(full_like(p.detach(), 0.1 * i));
      optimizer.step();
    }
  };
  Linear a(3, 2, rng), b(3, 2, rng);
  b.load_state(a.state());
  Adam whole(a, {.lr = 0.1}), first(b, {.lr = 0.1});
  steps(whole, 0, 10);
  steps(first, 0, 5);
  first.set_lr(0.2);
  const State saved = cloned(first.state());
  Adam second(b, {.lr = 9});
  second.load_state(saved);
  CHECK(second.lr() == 0.2);
  second.set_lr(0.1);
  steps(second, 5, 10);
  CHECK(test_support::same_bits(a.weight, b.weight));
  CHECK(test_support::same_bits(a.bias, b.bias));
  // Loading copied: the first optimiser's moments did not move.
  CHECK(test_support::same_bits(first.state()[2].second, saved[2].second));

  const State before = cloned(second.state());
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    State state = saved;
    for (auto& entry : state) {
      if (entry.first == name) entry.second = tensor;
    }
    return state;
  };
  const State missing(saved.begin(), saved.end() - 1), no_rate(saved.begin() + 1, saved.end());
  State unknown = saved, doubled = saved;
  unknown.emplace_back("weight.velocity", ones({2, 3}));
  doubled.push_back(saved[1]);
  CHECK_THROWS_SAYING(ValueError, "load_state", "bias.exp_avg_sq", second.load_state(missing));
  CHECK_THROWS_SAYING(ValueError, "load_state", "groups.0.lr", second.load_state(no_rate));
  CHECK_THROWS_SAYING(ValueError, "load_state", "weight.velocity", second.load_state(unknown));
  CHECK_THROWS_SAYING(ValueError, "load_state", "doubled", second.load_state(doubled));
  CHECK_THROWS_SAYING(ShapeError, "load_state", "weight.exp_avg is (2, 3) here, (2,) there",
                      second.load_state(with("weight.exp_avg", ones({2}))));
  CHECK_THROWS_SAYING(
      DtypeError, "load_state", "weight.exp_avg is float32 here, float64 there",
      second.load_state(with("weight.exp_avg", ones({2, 3}, {.dtype = DType::float64}))));
  CHECK_THROWS_SAYING(DtypeError, "load_state", "weight.steps",
                      second.load_state(with("weight.steps", numbers(5))));
  CHECK_THROWS_SAYING(ShapeError, "load_state", "groups.0.lr of Adam must have 0 axes",
                      second.load_state(with("groups.0.lr", ones({1}))));
  CHECK_THROWS_SAYING(ValueError, "Adam", "weight.steps = -1",
                      second.load_state(with("weight.steps", scalar(-1))));
  CHECK_THROWS_SAYING(ValueError, "Adam", "lr = nan",
                      second.load_state(with("groups.0.lr", numbers(kNaN))));
  CHECK_THROWS_SAYING(GraphError, "load_state", "undefined",
                      second.load_state(with("weight.exp_avg", Tensor())));
  const State after = second.state();
  REQUIRE(names(after) == names(before));
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(test_support::same_bits(after[i].second, before[i].second));
  }
}

TEST_CASE("optimisers: SGD without momentum keeps nothing but its count") {
  Tensor p = leaf({1, 2});
  SGD plain({p}, {.lr = 0.1});
  p.set_grad(ones_like(p));
  plain.step();
  CHECK(names(plain.state()) == std::vector<std::string>{"groups.0.lr", "0.steps"});
  SGD again({p}, {.lr = 0.2});
  again.load_state(plain.state());
  CHECK(again.lr() == 0.1);
}

TEST_CASE("optimisers: a parameter converted after its first update is refused") {
  Rng rng(1);
  Linear m(2, 1, rng);
  Adam optimizer(m);
  const auto fill = [&] {
    for (auto& p : m.parameters()) p.set_grad(ones_like(p.detach()));
  };
  m.to(DType::float64);
  fill();
  optimizer.step();  // no moments yet: fine
  m.to(DType::float32);
  fill();
  CHECK_THROWS_SAYING(DtypeError, "Adam", "weight is float32, its moments are float64",
                      optimizer.step());
}

TEST_CASE("optimisers: a graph from before the step refuses a second backward") {
  Tensor w = leaf(2.0), x = leaf(5.0);
  const Tensor y = mul(w, x);
  y.backward({.retain_graph = true});
  SGD optimizer({w}, {.lr = 0.1});
  optimizer.step();
  CHECK_THROWS_AS(y.backward(), GraphError);
  CHECK_NUMBERS(x.grad(), 2.0);
}

TEST_CASE("optimisers: gradients pile up until they are forgotten") {
  Tensor w = leaf(2.0);
  SGD optimizer({w}, {.lr = 0});
  for (const double want : {4.0, 8.0}) {
    square(w).backward();
    CHECK_NUMBERS(w.grad(), want);
    optimizer.step();
  }
  optimizer.zero_grad();
  square(w).backward();
  CHECK_NUMBERS(w.grad(), 4.0);
}

TEST_CASE("optimisers: live nodes and bytes are flat over 1000 steps") {
  Rng rng(1);
  Linear m(4, 2, rng);
  Adam optimizer(m);
  const Tensor x = randn(rng, {8, 4});
  double running = 0;
  const auto train = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const Tensor loss = mean(square(m(x)));
      running += loss.item();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  };
  train(10);
  const GraphStats early = graph_stats();
  train(990);
  CHECK(running > 0);
  CHECK(graph_stats().live_nodes == early.live_nodes);
  CHECK(graph_stats().live_bytes == early.live_bytes);
}
