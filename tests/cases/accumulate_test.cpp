// Hard cases of graphs: nodes used twice, passes repeated, leaves updated, guards left.
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/matmul.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

TEST_CASE("AGR-001 a node used twice in a row") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor a = leaf(1.5, dtype);
    const Tensor b = a + a;
    const Tensor c = b + b;
    CHECK(c.item() == 6);
    CHECK(grad(c, a)[0].item() == 4);
  }
}

TEST_CASE("AGR-003 a shared node that is no leaf") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  const Tensor a = leaf(0.5);
  const Tensor xa = x * a;
  const Tensor f = x * xa + x * xa + (x * x) * a;
  CHECK(f.item() == 6);
  const auto g = grad(f, {x, a, xa}, {.create_graph = true});
  CHECK(g[0].item() == 6);
  CHECK(g[1].item() == 12);  // 3 x^2
  CHECK(g[2].item() == 4);   // 2 x
  const auto h = grad(g[0], {x, a});
  CHECK(h[0].item() == 3);   // 6 a
  CHECK(h[1].item() == 12);  // 6 x
}

TEST_CASE("AGR-005 backward twice on one graph") {
  const LeakGuard guard;
  for (const bool retain : {false, true}) {
    const Tensor a = leaf(4.0);
    const Tensor b = leaf(-1.0);
    const Tensor d = leaf(2.0);
    const Tensor c = a + b;
    const Tensor e = c * d;
    e.backward({.retain_graph = retain});
    const auto check = [&](double times) {
      CHECK(a.grad().item() == 2 * times);
      CHECK(b.grad().item() == 2 * times);
      CHECK(d.grad().item() == 3 * times);
    };
    check(1);
    if (retain) {
      e.backward();
      check(2);
    }
    CHECK_THROWS_SAYING(GraphError, "backward", "retain_graph", (e.backward(), 0));
    check(retain ? 2 : 1);
  }
}

TEST_CASE("AGR-009 a tensor meets itself in every operator") {
  const LeakGuard guard;
  using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;
  const auto check = [](const Binary& f, const Tensor& first, const Tensor& second_derivative) {
    for (const DType dtype : kFloats) {
      const Tensor x = leaf({1.5, -2.0}, dtype);
      const Tensor g = grad(sum(f(x, x)), x, {.create_graph = true})[0];
      CHECK_NUMBERS(g, first, 1e-7, 1e-15);
      const Tensor h = g.requires_grad() ? grad(sum(g), x, {.allow_unused = true})[0] : Tensor();
      CHECK_NUMBERS(h.defined() ? h : zeros({2}), second_derivative, 1e-6, 1e-6);
    }
  };
  check([](const Tensor& a, const Tensor& b) { return a + b; }, numbers({2.0, 2.0}), zeros({2}));
  check([](const Tensor& a, const Tensor& b) { return a - b; }, numbers({0.0, 0.0}), zeros({2}));
  check([](const Tensor& a, const Tensor& b) { return a * b; }, numbers({3.0, -4.0}),
        numbers({2.0, 2.0}));
  check([](const Tensor& a, const Tensor& b) { return a / b; }, numbers({0.0, 0.0}), zeros({2}));
  check([](const Tensor& a, const Tensor& b) { return maximum(a, b); }, numbers({1.0, 1.0}),
        zeros({2}));
  check([](const Tensor& a, const Tensor& b) { return where(a > 0, a, b); }, numbers({1.0, 1.0}),
        zeros({2}));
  check([](const Tensor& a, const Tensor& b) { return matmul(a, b); }, numbers({3.0, -4.0}),
        numbers({2.0, 2.0}));
}

TEST_CASE("AGR-012 an update makes the old graph stale") {
  const LeakGuard guard;
  Tensor w = leaf(2.0).named("w");
  const Tensor x = leaf(5.0);
  const Tensor y = w * x;
  y.backward({.retain_graph = true});
  CHECK(w.grad().item() == 5);
  CHECK(x.grad().item() == 2);
  {
    const NoGrad no_grad;
    w.sub_(w.grad(), 0.1);
  }
  CHECK(w.item() == 1.5);
  CHECK_THROWS_SAYING(GraphError, "mul", "'w' was changed in place", (y.backward(), 0));
  CHECK(w.grad().item() == 5);
  CHECK(x.grad().item() == 2);
  // Every op that keeps the parameter notices; one that does not goes on.
  const auto stale = [&](auto f) {
    const Tensor z = sum(f(w));
    const NoGrad no_grad;
    w.add_(numbers(1));
    CHECK_THROWS_AS(grad(z, {w, x}, {.allow_unused = true}), GraphError);
  };
  stale([](const Tensor& t) { return square(t); });
  stale([](const Tensor& t) { return pow(t, 3); });
  stale([](const Tensor& t) { return sin(t); });
  stale([&](const Tensor& t) { return x / t; });
  stale([&](const Tensor& t) { return matmul(reshape(t, {1, 1}), reshape(x, {1, 1})); });
  const Tensor sum_only = w + x;
  {
    const NoGrad no_grad;
    w.fill_(0);
  }
  CHECK(grad(sum_only, w)[0].item() == 1);
}

TEST_CASE("AGR-014 a NoGrad scope is exception safe") {
  const LeakGuard guard;
  const Tensor x = leaf(3.0);
  try {
    const NoGrad outer;
    try {
      const NoGrad inner;
      throw std::runtime_error("inside");
    } catch (const std::runtime_error&) {
      CHECK_FALSE((x * x).requires_grad());
    }
    throw std::runtime_error("outside");
  } catch (const std::runtime_error&) {
  }
  const Tensor y = x * x;
  y.backward();
  CHECK(x.grad().item() == 6);
}

TEST_CASE("AGR-015 backward on a constant is an error") {
  const LeakGuard guard;
  const Tensor product = numbers(2) * numbers(3);
  CHECK_THROWS_SAYING(GraphError, "backward", "constants", (product.backward(), 0));
  CHECK_THROWS_SAYING(GraphError, "grad", "constants", grad(product, leaf(1.0)));
}

TEST_CASE("AGR-016 backward on a matrix needs a seed of its shape") {
  const LeakGuard guard;
  const Tensor x = leaf({{1.0, 1.0}, {1.0, 1.0}});
  const Tensor y = x * 2;
  CHECK_THROWS_SAYING(GraphError, "backward", "(2, 2)", (y.backward(), 0));
  CHECK_THROWS_SAYING(ShapeError, "backward", "(1, 2)",
                      (y.backward({.gradient = numbers({{1.0, 2.0}})}), 0));
  CHECK_THROWS_AS(grad(y, x), GraphError);
  CHECK_THROWS_AS(grad(y, x, {.grad_outputs = {numbers({{1.0, 2.0}})}}), ShapeError);
  y.backward({.gradient = numbers({{1.0, 0.0}, {0.0, 10.0}})});
  CHECK_NUMBERS(x.grad(), {{2.0, 0.0}, {0.0, 20.0}});
}

TEST_CASE("AGR-019 a thousand steps leave as many nodes as ten") {
  const LeakGuard guard;
  Rng rng(1);
  Tensor w = randn(rng, {4, 3}, {.requires_grad = true});
  const Tensor x = randn(rng, {8, 4});
  double running = 0;
  GraphStats after_ten;
  for (int step = 1; step <= 1000; ++step) {
    const Tensor loss = mean(square(matmul(x, w) - 1));
    w.zero_grad();
    loss.backward();
    {
      const NoGrad no_grad;
      w.sub_(w.grad(), 0.01);
    }
    running += loss.item();
    if (step == 10) after_ten = graph_stats();
    if (step == 1000) {
      CHECK(graph_stats().live_nodes == after_ten.live_nodes);
      CHECK(graph_stats().live_bytes == after_ten.live_bytes);
    }
  }
  CHECK(running > 0);
}

TEST_CASE("AGR-022 gradients add up until they are zeroed") {
  const LeakGuard guard;
  Tensor w = leaf(2.0);
  std::vector<double> seen;
  for (int i = 0; i < 3; ++i) {
    if (i == 2) w.zero_grad();
    (w * w).backward();
    seen.push_back(w.grad().item());
  }
  CHECK(seen == std::vector<double>{4, 8, 4});
}

TEST_CASE("SEC-002 the second derivative of x^2 at 0") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const auto& f :
         {std::function<Tensor(const Tensor&)>([](const Tensor& x) { return pow(x, 2); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& x) { return pow(x, 2.0); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& x) { return square(x); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& x) { return x * x; }),
          std::function<Tensor(const Tensor&)>(
              [](const Tensor& x) { return pow(x, full_like(x, 2)); })}) {
      const Tensor x = leaf(0.0, dtype);
      const Tensor y = f(x);
      const Tensor dy = grad(y, x, {.create_graph = true})[0];
      CHECK(y.item() == 0);
      CHECK(dy.item() == 0);
      CHECK(grad(dy, x)[0].item() == 2);
    }
    // x^3: 0, and 6 in the third; x^1: slope 1 and nothing after it.
    const Tensor x = leaf(0.0, dtype);
    const Tensor d1 = grad(pow(x, 3), x, {.create_graph = true})[0];
    const Tensor d2 = grad(d1, x, {.create_graph = true})[0];
    CHECK(d1.item() == 0);
    CHECK(d2.item() == 0);
    CHECK(grad(d2, x)[0].item() == 6);
    CHECK(grad(pow(x, 1), x)[0].item() == 1);
  }
}

TEST_CASE("CPP-001 a tensor assigned a function of itself") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    Tensor a = numbers({{1.0, 2.0}, {3.0, 4.0}}, dtype);
    const Tensor first = a;
    a = matmul(a, a);
    CHECK_NUMBERS(a, {{7.0, 10.0}, {15.0, 22.0}});
    a = first;
    a = transpose(a);
    CHECK_NUMBERS(a, {{1.0, 3.0}, {2.0, 4.0}});
    a = first;
    a = a + transpose(a);
    CHECK_NUMBERS(a, {{2.0, 5.0}, {5.0, 8.0}});
    a = first;
    a = matmul(a, a, {.transpose_a = true, .transpose_b = true});
    CHECK_NUMBERS(a, {{7.0, 15.0}, {10.0, 22.0}});
    CHECK_NUMBERS(first, {{1.0, 2.0}, {3.0, 4.0}});
    // In place, from a function of itself.
    Tensor b = first.clone();
    b.copy_(transpose(b));
    CHECK_NUMBERS(b, {{1.0, 3.0}, {2.0, 4.0}});
    b.add_(matmul(b, b));
    CHECK_NUMBERS(b, {{8.0, 18.0}, {12.0, 26.0}});
  }
}
