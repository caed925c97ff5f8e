// backward(): gradients summed up in the `.grad()` of leaves.
#include <doctest/doctest.h>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

TEST_CASE("backward fills the leaves that ask, and only those") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const Tensor x = numbers({3.0, 4.0});
  const Tensor h = w * x;
  sum(square(h)).backward();
  CHECK_NUMBERS(w.grad(), {18.0, 64.0});
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(h.grad().defined());
  CHECK_FALSE(w.grad().requires_grad());
  CHECK(w.grad().is_leaf());
}

TEST_CASE("gradients sum up over passes until they are zeroed") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  for (int pass = 1; pass <= 3; ++pass) {
    sum(w * 3).backward();
    CHECK_NUMBERS(w.grad(), {3.0 * pass, 3.0 * pass});
  }
  w.zero_grad();
  CHECK_FALSE(w.grad().defined());
  w.zero_grad();
  sum(w * 3).backward();
  CHECK_NUMBERS(w.grad(), {3.0, 3.0});
}

TEST_CASE("the upstream gradient is given for anything but a scalar") {
  const LeakGuard guard;
  const Tensor w = leaf({{1.0, 2.0}});
  const Tensor y = w * 2;
  CHECK_THROWS_SAYING(GraphError, "backward", "got shape (1, 2)", (y.backward(), 0));
  CHECK_THROWS_SAYING(ShapeError, "backward", "(2,) and (1, 2)",
                      (y.backward({.gradient = numbers({1.0, 1.0})}), 0));
  CHECK_THROWS_SAYING(DtypeError, "backward", "float32 and float64",
                      (y.backward({.gradient = numbers({{1.0, 1.0}}, DType::float32)}), 0));
  CHECK_FALSE(w.grad().defined());
  y.backward({.gradient = numbers({{1.0, 10.0}})});
  CHECK_NUMBERS(w.grad(), {{2.0, 20.0}});
  // One element of any rank is a scalar here.
  const Tensor one = leaf({{3.0}});
  square(one).backward();
  CHECK_NUMBERS(one.grad(), {{6.0}});
}

TEST_CASE("a leaf is its own gradient's end") {
  const LeakGuard guard;
  const Tensor w = leaf(3.0);
  w.backward();
  CHECK(w.grad().item() == 1);
  w.backward({.gradient = numbers(4)});
  CHECK(w.grad().item() == 5);
}

TEST_CASE("backward of a constant is refused in every form") {
  const LeakGuard guard;
  const Tensor w = leaf(3.0);
  CHECK_THROWS_SAYING(GraphError, "backward", "requires_grad_", (numbers(2).backward(), 0));
  CHECK_THROWS_SAYING(GraphError, "backward", "detach", (square(w.detach()).backward(), 0));
  const NoGrad no_grad;
  CHECK_THROWS_SAYING(GraphError, "backward", "NoGrad", (square(w).backward(), 0));
}

TEST_CASE("a second pass needs retain_graph, and then adds exactly the same") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const Tensor loss = sum(exp(w) * w);
  loss.backward({.retain_graph = true});
  const Tensor once = w.grad().clone();
  loss.backward();
  CHECK(same_bits(w.grad(), once * 2));
  CHECK_THROWS_SAYING(GraphError, "backward", "freed by an earlier pass", (loss.backward(), 0));
  CHECK(same_bits(w.grad(), once * 2));
}

TEST_CASE("retain_grad keeps the gradient of a computed tensor") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  Tensor h = w * 3;
  CHECK(h.retain_grad().is_same(h));
  const Tensor loss = sum(square(h));
  loss.backward({.retain_graph = true});
  CHECK_NUMBERS(h.grad(), {6.0, 12.0});
  loss.backward({.retain_graph = true});
  CHECK_NUMBERS(h.grad(), {12.0, 24.0});
  h.zero_grad();
  loss.backward();
  CHECK_NUMBERS(h.grad(), {6.0, 12.0});
  Tensor constant = numbers({1.0});
  CHECK_THROWS_SAYING(GraphError, "retain_grad", "needs no gradient", constant.retain_grad());
  // A retained gradient can be the root of the pass, and a leaf keeps its own anyway.
  Tensor root = sum(w);
  root.retain_grad();
  root.backward();
  CHECK(root.grad().item() == 1);
}

TEST_CASE("set_grad takes what fits, out of its graph") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  const Tensor g = square(w);  // has a graph, which w.grad() must not hold
  w.set_grad(g);
  CHECK_FALSE(w.grad().requires_grad());
  CHECK_NUMBERS(w.grad(), {1.0, 4.0});
  CHECK_THROWS_SAYING(ShapeError, "set_grad", "(3,)", (w.set_grad(numbers({1.0, 2.0, 3.0})), 0));
  CHECK_THROWS_SAYING(DtypeError, "set_grad", "float32",
                      (w.set_grad(numbers({1.0, 2.0}, DType::float32)), 0));
  CHECK_NUMBERS(w.grad(), {1.0, 4.0});
  sum(w).backward();
  CHECK_NUMBERS(w.grad(), {2.0, 5.0});
  CHECK_NUMBERS(g, {1.0, 4.0});
  w.set_grad(Tensor());
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("requires_grad_ turned off before the pass leaves the leaf out") {
  const LeakGuard guard;
  Tensor a = leaf(2.0);
  const Tensor b = leaf(3.0);
  const Tensor y = a * b;
  a.requires_grad_(false);
  y.backward();
  CHECK_FALSE(a.grad().defined());
  CHECK(b.grad().item() == 2);
}

TEST_CASE("float32 and float64 models have gradients of their own type") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor w = leaf({{1.0, 2.0}, {3.0, 4.0}}, dtype);
    const Tensor x = numbers({{1.0, -1.0}}, dtype);
    sum(square(matmul(x, w))).backward();
    CHECK(w.grad().dtype() == dtype);
    CHECK_NUMBERS(w.grad(), {{-4.0, -4.0}, {4.0, 4.0}});
  }
}

TEST_CASE("what a graph keeps goes with its last handle, or with the pass") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const GraphStats empty = graph_stats();
  {
    const Tensor unused = exp(sin(w));
    CHECK(graph_stats().live_nodes == empty.live_nodes + 2);
  }
  CHECK(graph_stats().live_nodes == empty.live_nodes);
  const Tensor loss = sum(exp(sin(w)));
  loss.backward();
  // The loss alone is left; its gradient is the other one.
  CHECK(graph_stats().live_nodes == empty.live_nodes + 2);
  Tensor(w).zero_grad();
}

TEST_CASE("values that no rule reads are freed at once") {
  const LeakGuard guard;
  const std::int64_t n = 100000;
  const Tensor w = full({n}, 1, {.requires_grad = true});
  const auto added_bytes = [&](auto f) {
    const std::int64_t before = graph_stats().live_bytes;
    const Tensor y = f();
    return graph_stats().live_bytes - before;
  };
  // add and sum keep nothing, exp keeps its output, mul by a tensor its inputs.
  CHECK(added_bytes([&] { return sum(w + 1 + 2 + 3); }) < 4 * n);
  CHECK(added_bytes([&] { return sum(exp(w + 1)); }) >= 4 * n);
  CHECK(added_bytes([&] { return sum(exp(w + 1)); }) < 8 * n);
  CHECK(added_bytes([&] { return sum(exp(exp(w))); }) >= 8 * n);
}
