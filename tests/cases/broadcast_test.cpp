// Hard cases of broadcasting, products and reductions.
#include <doctest/doctest.h>

#include <string>

#include "cases/evaluate.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

TEST_CASE("BRC-001 a row is added to every row, and gets the column sums back") {
  const LeakGuard guard;
  const Tensor w = numbers({{1.0, 2.0, 3.0}, {10.0, 20.0, 30.0}});
  for (const DType dtype : kFloats) {
    const Tensor a = leaf({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, dtype);
    const Tensor b = leaf({{0.5, -1.0, 2.0}}, dtype);
    const auto g = grad(a + b, {a, b}, {.grad_outputs = {to(w, dtype)}});
    CHECK_NUMBERS(g[0], w);
    CHECK_NUMBERS(g[1], {{11.0, 22.0, 33.0}});
    const auto h = grad(b - a, {a, b}, {.grad_outputs = {to(w, dtype)}});
    CHECK_NUMBERS(h[0], neg(w));
    CHECK_NUMBERS(h[1], {{11.0, 22.0, 33.0}});
    // A column, a number of rank 0 and one of rank 2.
    const Tensor c = leaf({{1.0}, {2.0}}, dtype);
    CHECK_NUMBERS(grad(a + c, c, {.grad_outputs = {to(w, dtype)}})[0], {{6.0}, {60.0}});
    const Tensor d = leaf(1.0, dtype);
    CHECK_NUMBERS(grad(d + a, d, {.grad_outputs = {to(w, dtype)}})[0], 66.0);
    const Tensor e = leaf({{1.0}}, dtype);
    CHECK_NUMBERS(grad(a + e, e, {.grad_outputs = {to(w, dtype)}})[0], {{66.0}});
    // Both stretch.
    const Tensor row = leaf({{1.0, 2.0, 3.0}}, dtype);
    const auto both = grad(c * row, {c, row}, {.grad_outputs = {to(w, dtype)}});
    CHECK_NUMBERS(both[0], {{14.0}, {140.0}});
    CHECK_NUMBERS(both[1], {{21.0, 42.0, 63.0}});
  }
}

TEST_CASE("BRC-001 siblings: every broadcasting op, to second order") {
  const LeakGuard guard;
  Rng rng(5);
  const Tensor a = uniform(rng, 0.5, 2, {2, 1, 3}, {.dtype = DType::float64});
  const Tensor b = uniform(rng, 0.5, 2, {4, 1}, {.dtype = DType::float64});
  const auto check = [&](auto f) {
    const GradcheckReport report = gradcheck(f, {a, b}, {.order = 2});
    CHECK_MESSAGE(report.passed, to_string(report));
  };
  check([](const Tensor& x, const Tensor& y) { return x + y; });
  check([](const Tensor& x, const Tensor& y) { return x - y; });
  check([](const Tensor& x, const Tensor& y) { return x * y; });
  check([](const Tensor& x, const Tensor& y) { return x / y; });
  check([](const Tensor& x, const Tensor& y) { return pow(x, y); });
  check([](const Tensor& x, const Tensor& y) { return maximum(x, y); });
  check([](const Tensor& x, const Tensor& y) { return minimum(x, y); });
  check([](const Tensor& x, const Tensor& y) { return where(x > y, x * y, y); });
}

TEST_CASE("BRC-004 a linear layer on a batch of four") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const double t = dtype == DType::float64 ? 1e-12 : 1e-6;
    const Tensor x = leaf({{1.0, 0.5}, {-1.0, 2.0}, {0.25, -0.75}, {3.0, 1.0}}, dtype);
    const Tensor w = leaf({{0.2, -0.4, 1.0}, {0.7, 0.1, -0.3}}, dtype);
    const Tensor b = leaf({{0.1, -0.2, 0.3}}, dtype);
    const Tensor u =
        numbers({{1.0, 0.0, 2.0}, {-1.0, 1.0, 0.5}, {0.3, 0.3, 0.3}, {2.0, -2.0, 1.0}}, dtype);
    const Tensor y = matmul(x, w) + b;
    CHECK_NUMBERS(y,
                  {{0.65, -0.55, 1.15},
                   {1.2999999999999998, 0.4, -1.3},
                   {-0.37499999999999994, -0.375, 0.775},
                   {1.4, -1.3, 3.0}},
                  t, t / 10);
    const auto g = grad(y, {x, w, b}, {.grad_outputs = {u}});
    CHECK_NUMBERS(g[0], {{2.2, 0.1}, {-0.1, -0.75}, {0.24, 0.15}, {2.2, 0.9}}, t, t);
    CHECK_NUMBERS(g[1], {{8.075, -6.925, 4.575}, {0.275, -0.225, 2.775}}, t, t);
    CHECK_NUMBERS(g[2], {{2.3, -0.7, 3.8}}, t, t);
  }
}

TEST_CASE("BRC-006 the gradient of a product that is not square") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor a = leaf({{1.0, -2.0, 0.5}, {3.0, 0.0, 1.0}}, dtype);
    const Tensor b = leaf({{2.0}, {1.0}, {-1.0}}, dtype);
    const Tensor u = numbers({{1.5}, {-2.0}}, dtype);
    const Tensor da = numbers({{3.0, 1.5, -1.5}, {-4.0, -2.0, 2.0}});
    const Tensor db = numbers({{-4.5}, {-3.0}, {-1.25}});
    const auto g = grad(matmul(a, b), {a, b}, {.grad_outputs = {u}});
    CHECK_NUMBERS(g[0], da);
    CHECK_NUMBERS(g[1], db);
    // Under every flag, and with a column of rank 1.
    const auto t =
        grad(matmul(transpose(a), transpose(b), {.transpose_a = true, .transpose_b = true}), {a, b},
             {.grad_outputs = {u}});
    CHECK_NUMBERS(t[0], da);
    CHECK_NUMBERS(t[1], db);
    const auto v = grad(matmul(a, reshape(b, {3})), {a, b}, {.grad_outputs = {reshape(u, {2})}});
    CHECK_NUMBERS(v[0], da);
    CHECK_NUMBERS(v[1], db);
    // One matrix for a batch.
    const auto batch = grad(matmul(stack({a, a}), b), {a, b}, {.grad_outputs = {stack({u, u})}});
    CHECK_NUMBERS(batch[0], da * 2);
    CHECK_NUMBERS(batch[1], db * 2);
  }
}

TEST_CASE("BRC-008 shapes that do not fit are errors with both shapes, and nothing changes") {
  const LeakGuard guard;
  const Tensor a = leaf({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  const Tensor b = numbers({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}});
  const Tensor c = numbers({{1.0, 2.0}, {3.0, 4.0}});
  CHECK_THROWS_SAYING(ShapeError, "matmul", "a is (2, 3), b is (2, 3)", matmul(a, a));
  CHECK_THROWS_SAYING(ShapeError, "add", "a is (2, 3), b is (3, 2)", a + b);
  CHECK_THROWS_SAYING(ShapeError, "mul", "a is (2, 3), b is (2, 2)", a * c);
  CHECK_THROWS_SAYING(ShapeError, "sub", "a is (2, 3), b is (3, 2)", a - b);
  CHECK_THROWS_SAYING(ShapeError, "div", "a is (2, 3), b is (3, 2)", a / b);
  CHECK_THROWS_SAYING(ShapeError, "maximum", "b is (3, 2)", maximum(a, b));
  CHECK_THROWS_SAYING(ShapeError, "where", "(3, 2)", where(b > 0, a, 0));
  CHECK_THROWS_SAYING(ShapeError, "lt", "b is (3, 2)", a < b);
  CHECK_THROWS_SAYING(ShapeError, "shape", "(-1, 3)", zeros({-1, 3}));
  CHECK_THROWS_AS(narrow(a, 0, 1, 2), ValueError);
  CHECK_THROWS_AS(select(a, 1, 3), ValueError);
  CHECK_THROWS_AS(cat({a, b}), ShapeError);
  CHECK_THROWS_AS(reshape(a, {4, 2}), ShapeError);
  CHECK_NUMBERS(grad(sum(a * a), a)[0], {{2.0, 4.0, 6.0}, {8.0, 10.0, 12.0}});
  CHECK(a.version() == 0);
}

TEST_CASE("BRC-009 losses do not broadcast") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor column = leaf({{1.0}, {2.0}, {4.0}}, dtype);
    const Tensor row = numbers({{1.0, 2.0, 4.0}}, dtype);
    const Tensor flat = numbers({1.0, 2.0, 4.0}, dtype);
    for (const Tensor& target : {row, flat, numbers(1.0, dtype)}) {
      CHECK_THROWS_SAYING(ShapeError, "mse_loss", "(3, 1)", mse_loss(column, target));
      CHECK_THROWS_SAYING(ShapeError, "binary_cross_entropy_with_logits", "(3, 1)",
                          binary_cross_entropy_with_logits(column, target));
    }
    CHECK_THROWS_AS(cross_entropy(column, tensor({{0}, {0}, {0}})), ShapeError);
    CHECK_THROWS_AS(nll_loss(column, tensor({0})), ShapeError);
    CHECK(mse_loss(column, column.detach()).item() == 0);
    CHECK(mse_loss(row, row).item() == 0);
  }
}

TEST_CASE("BRC-011 means and sums along an axis") {
  const LeakGuard guard;
  const auto check = [](auto f, const Tensor& upstream, const Tensor& output,
                        const Tensor& gradient) {
    for (const DType dtype : kFloats) {
      const auto [y, gx] =
          evaluate(f, numbers({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, dtype), upstream);
      CHECK_NUMBERS(y, output, 1e-7);
      CHECK_NUMBERS(gx, gradient, dtype == DType::float64 ? 1e-15 : 1e-7);
    }
  };
  const double third = 0.3333333333333333;
  const Tensor u = numbers({{1.0}, {-2.0}});
  const Tensor w = numbers({{1.0, 2.0, 3.0}});
  const Tensor row_means = numbers({{third, third, third}, {-2 * third, -2 * third, -2 * third}});
  const Tensor column_sums = numbers({{1.0, 2.0, 3.0}, {1.0, 2.0, 3.0}});
  const ReduceOptions keep{.keepdim = true};
  check([&](const Tensor& x) { return mean(x, 1, keep); }, u, numbers({{2.0}, {5.0}}), row_means);
  check([&](const Tensor& x) { return mean(x, -1); }, reshape(u, {2}), numbers({2.0, 5.0}),
        row_means);
  check([&](const Tensor& x) { return sum(x, 0, keep); }, w, numbers({{5.0, 7.0, 9.0}}),
        column_sums);
  check([&](const Tensor& x) { return sum(x, -2); }, reshape(w, {3}), numbers({5.0, 7.0, 9.0}),
        column_sums);
  check([&](const Tensor& x) { return sum(x, {0, 1}); }, numbers(2), numbers(21), full({2, 3}, 2));
  check([&](const Tensor& x) { return mean(x); }, numbers(6), numbers(3.5), ones({2, 3}));
}

TEST_CASE("EMP-006 a sum of nothing is 0; a mean or a largest of nothing is an error") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor x = zeros({0, 3}, {.dtype = dtype, .requires_grad = true});
    CHECK(sum(x).item() == 0);
    CHECK(grad(sum(x), x)[0].shape() == Shape{0, 3});
    CHECK_NUMBERS(sum(x, 0), {0.0, 0.0, 0.0});
    CHECK_THROWS_SAYING(ValueError, "mean", "", mean(x));
    CHECK_THROWS_SAYING(ValueError, "mean", "", mean(x, 0));
    CHECK(mean(x, 1).shape() == Shape{0});  // no row, so no mean of nothing
    CHECK_THROWS_SAYING(ValueError, "max", "", max(x));
    CHECK_THROWS_SAYING(ValueError, "min", "", min(x, 0));
    CHECK_THROWS_SAYING(ValueError, "argmax", "", argmax(x, 0));
    CHECK_THROWS_SAYING(ValueError, "var", "", var(x));
    CHECK_THROWS_SAYING(ValueError, "mse_loss", "", mse_loss(x, x.detach()));
    const Tensor none = zeros({0}, {.dtype = DType::int64});
    CHECK_THROWS_SAYING(ValueError, "cross_entropy", "", cross_entropy(x, none));
    CHECK_THROWS_SAYING(ValueError, "nll_loss", "", nll_loss(x, none));
    CHECK(cross_entropy(x, none, {.reduction = Reduction::sum}).item() == 0);
  }
}

TEST_CASE("EMB-001 repeated ids add up") {
  const LeakGuard guard;
  const Tensor ids = tensor({2, 0, 2, 2});
  for (const DType dtype : kFloats) {
    const Tensor table = zeros({3, 2}, {.dtype = dtype, .requires_grad = true});
    const Tensor u = numbers({{1.0, 1.0}, {2.0, 2.0}, {4.0, 4.0}, {8.0, 8.0}}, dtype);
    const Tensor expected = numbers({{2.0, 2.0}, {0.0, 0.0}, {13.0, 13.0}});
    const auto gradient = [&](const Tensor& y) { return grad(y, table, {.grad_outputs = {u}})[0]; };
    CHECK_NUMBERS(gradient(take_rows(table, ids)), expected);
    CHECK_NUMBERS(gradient(index_select(table, 0, ids)), expected);
    CHECK_NUMBERS(gradient(transpose(index_select(transpose(table), 1, ids))), expected);
    CHECK_NUMBERS(gradient(gather(table, 0, tensor({{2, 2}, {0, 0}, {2, 2}, {2, 2}}))), expected);
    CHECK_NUMBERS(gradient(matmul(one_hot(ids, 3, {.dtype = dtype}), table)), expected);
    // Second order: the gradient is linear in its upstream.
    const Tensor v = leaf({{1.0, 1.0}, {2.0, 2.0}, {4.0, 4.0}, {8.0, 8.0}}, dtype);
    const Tensor g =
        grad(take_rows(table, ids), table, {.grad_outputs = {v}, .create_graph = true})[0];
    CHECK_NUMBERS(grad(sum(square(g)), v)[0],
                  {{26.0, 26.0}, {4.0, 4.0}, {26.0, 26.0}, {26.0, 26.0}});
    for (const std::int64_t bad : {3, -1}) {
      CHECK_THROWS_SAYING(ValueError, "take_rows", std::to_string(bad),
                          take_rows(table, tensor({std::int64_t{0}, bad})));
    }
  }
}
