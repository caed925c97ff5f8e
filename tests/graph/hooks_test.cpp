// Hooks: they see complete gradients, may replace them, and may differentiate themselves.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

const GradientHook kKeep = [](const Tensor&) { return Tensor(); };

}  // namespace

TEST_CASE("a hook sees the complete gradient, once a pass") {
  const LeakGuard guard;
  const Tensor w = leaf(2.0);
  Tensor h = w * 3;
  std::vector<double> seen;
  h.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  const Tensor y = h * h + h * 5;  // d/dh = 2 h + 5, in three parts
  y.backward({.retain_graph = true});
  CHECK(seen == std::vector<double>{17});
  CHECK(w.grad().item() == 51);
  grad(y, w);
  CHECK(seen == std::vector<double>{17, 17});
}

TEST_CASE("a hook on a leaf runs before its gradient is added") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  w.register_hook([](const Tensor& g) { return g * 10; });
  sum(w + w).backward();
  CHECK_NUMBERS(w.grad(), {20.0, 20.0});
  sum(w).backward();
  CHECK_NUMBERS(w.grad(), {30.0, 30.0});
  CHECK_NUMBERS(grad(sum(w), w)[0], {10.0, 10.0});
}

TEST_CASE("hooks run in the order of registration, each on what the last one left") {
  const LeakGuard guard;
  const Tensor w = leaf(1.0);
  Tensor h = w * 1;
  h.register_hook([](const Tensor& g) { return g + 1; });
  h.register_hook([](const Tensor& g) { return g * 10; });
  h.register_hook(kKeep);
  h.backward();
  CHECK(w.grad().item() == 20);
}

TEST_CASE("remove_hook removes that hook") {
  const LeakGuard guard;
  Tensor w = leaf(1.0);
  const int first = w.register_hook([](const Tensor& g) { return g * 2; });
  const int second = w.register_hook([](const Tensor& g) { return g * 5; });
  CHECK(first != second);
  w.remove_hook(first);
  w.remove_hook(1000);
  square(w).backward();
  CHECK(w.grad().item() == 10);
  w.remove_hook(second);
  w.zero_grad();
  square(w).backward();
  CHECK(w.grad().item() == 2);
  CHECK(w.register_hook(kKeep) != second);
}

TEST_CASE("a hook may remove itself while it runs, and the next one runs all the same") {
  const LeakGuard guard;
  const Tensor w = leaf(1.0);
  std::vector<std::string> calls;
  Tensor h = w * 1;
  int once = -1;
  h.register_hook([&](const Tensor&) {
    calls.push_back("before");
    return Tensor();
  });
  once = h.register_hook([&](const Tensor& g) {
    calls.push_back("once");
    h.remove_hook(once);
    return g * 3;
  });
  h.register_hook([&](const Tensor& g) {
    calls.push_back("after");
    return g + 1;
  });
  const Tensor y = h * 4;
  y.backward({.retain_graph = true});
  CHECK(calls == std::vector<std::string>{"before", "once", "after"});
  CHECK(w.grad().item() == 13);
  y.backward();
  CHECK(calls == std::vector<std::string>{"before", "once", "after", "before", "after"});
  CHECK(w.grad().item() == 18);
}

TEST_CASE("a replacement must keep shape and dtype") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  int hook = w.register_hook([](const Tensor&) { return numbers({1.0}); });
  CHECK_THROWS_SAYING(ShapeError, "hook", "(2,) became (1,)", (sum(w).backward(), 0));
  CHECK_FALSE(w.grad().defined());
  w.remove_hook(hook);
  hook = w.register_hook([](const Tensor&) { return numbers({1.0, 2.0}, DType::float32); });
  CHECK_THROWS_SAYING(DtypeError, "hook", "float32", (sum(w).backward(), 0));
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("only what a pass reaches can have a hook") {
  const LeakGuard guard;
  Tensor constant = numbers({1.0});
  CHECK_THROWS_SAYING(GraphError, "register_hook", "needs no gradient",
                      constant.register_hook(kKeep));
  Tensor w = leaf({1.0});
  CHECK_THROWS_SAYING(ValueError, "register_hook", "empty", w.register_hook(GradientHook()));
}

TEST_CASE("what a hook throws reaches the caller and leaves gradients alone") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  Tensor b = leaf({1.0, 2.0});
  b.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("from the hook"); });
  CHECK_THROWS_WITH_AS(sum(w * b).backward(), "from the hook", std::runtime_error);
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(b.grad().defined());
  Tensor h = w * 1;
  h.retain_grad();
  CHECK_THROWS_AS(sum(h * b).backward(), std::runtime_error);
  CHECK_FALSE(h.grad().defined());
  CHECK(grad_enabled());
  CHECK_NUMBERS(grad(sum(w * 2), w)[0], {2.0, 2.0});
}

TEST_CASE("a hook may run passes of its own on the same graph") {
  const LeakGuard guard;
  const Tensor w = leaf(3.0);
  Tensor h = square(w);
  const Tensor y = h * w;
  Tensor inner;
  Tensor inner_leaf;
  h.register_hook([&](const Tensor&) {
    if (inner.defined()) return Tensor();  // the pass in here comes by as well
    inner = numbers(0);
    const EnableGrad recording;
    inner_leaf = grad(h, w, {.retain_graph = true})[0];
    inner = grad(y, h, {.retain_graph = true})[0];
    return Tensor();
  });
  y.backward({.retain_graph = true});
  CHECK(inner.item() == 3);
  CHECK(inner_leaf.item() == 6);
  CHECK(w.grad().item() == 27);
  // And the outer pass went on where it was.
  CHECK(grad(y, w)[0].item() == 27);
}

TEST_CASE("a pass inside a hook leaves the outer pass its nodes") {
  const LeakGuard guard;
  const Tensor w = leaf(3.0);
  Tensor h = square(w);
  Tensor a = h * 2;
  const Tensor y = a * h;  // h hears from y before the hook on a runs, and from a after it
  bool inside = false;
  std::vector<double> seen;
  h.register_hook([&](const Tensor& g) {
    if (!inside) seen.push_back(g.item());
    return Tensor();
  });
  a.register_hook([&](const Tensor&) {
    if (std::exchange(inside, true)) return Tensor();
    CHECK(grad(a, {w, h}, {.retain_graph = true})[0].item() == 12);
    inside = false;
    return Tensor();
  });
  y.backward();
  CHECK(seen == std::vector<double>{36});
  CHECK(w.grad().item() == 216);
}

TEST_CASE("a replacement with a graph leaves its graph behind") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  const Tensor other = leaf({3.0, 4.0});
  w.register_hook([&](const Tensor& g) {
    const EnableGrad recording;
    return g * other;
  });
  for (int pass = 1; pass <= 2; ++pass) {
    sum(w).backward();
    CHECK_NUMBERS(w.grad(), {3.0 * pass, 4.0 * pass});
    CHECK_FALSE(w.grad().requires_grad());
  }
  CHECK_FALSE(other.grad().defined());
}

TEST_CASE("a hook may run backward on another graph over the same leaves") {
  const LeakGuard guard;
  Tensor w = leaf(3.0);
  Tensor h = w * 2;
  h.register_hook([&](const Tensor&) {
    const EnableGrad recording;
    (w * 100).backward();
    return Tensor();
  });
  square(h).backward();
  CHECK(w.grad().item() == 124);
}

TEST_CASE("hooks under create_graph take part in second derivatives") {
  const LeakGuard guard;
  Tensor x = leaf(2.0);
  Tensor h = square(x);
  h.register_hook([](const Tensor& g) { return g * 3; });
  const Tensor dy = grad(h * h, x, {.create_graph = true})[0];  // 3 * 4 x^3
  CHECK(dy.item() == 96);
  // The second pass comes by h too, and so does the hook: 3 * 24 x^2 + 12 x^2.
  CHECK(grad(dy, x)[0].item() == 336);
  h = Tensor();
}

TEST_CASE("hooks go with their tensor") {
  const LeakGuard guard;
  const Tensor w = leaf(1.0);
  const Tensor big = numbers({1.0, 2.0, 3.0});
  const auto before = graph_stats().live_nodes;
  {
    Tensor h = w.clone();
    h.register_hook([held = big * 2](const Tensor&) { return held.detach(); });
    CHECK(graph_stats().live_nodes == before + 2);
  }
  CHECK(graph_stats().live_nodes == before);
}
