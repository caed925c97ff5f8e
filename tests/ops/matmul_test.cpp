// matmul: NumPy's rank rules, empty sizes, blocks of any size, hints in errors.
#include "softtape/ops/matmul.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"
#include "support/threads.hpp"

using namespace softtape;
using test_support::LeakGuard;

namespace {

std::string message_of(const Tensor& a, const Tensor& b, const MatmulOptions& options = {}) {
  try {
    matmul(a, b, options);
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "nothing thrown";
}

// By plain loops, over rank-2 operands.
std::vector<double> product(const Tensor& a, const Tensor& b) {
  const std::int64_t n = a.dim(0), k = a.dim(1), m = b.dim(1);
  const auto x = a.data<double>();
  const auto y = b.data<double>();
  std::vector<double> out(static_cast<std::size_t>(n * m));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t j = 0; j < m; ++j) {
        out[static_cast<std::size_t>(i * m + j)] +=
            x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * m + j)];
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("matmul: shapes follow NumPy's rank rules") {
  const LeakGuard guard;
  const auto shape = [](const Shape& a, const Shape& b) {
    return matmul(ones(a), ones(b)).shape();
  };
  CHECK(shape({3}, {3}) == Shape{});
  CHECK(shape({3}, {3, 2}) == Shape{2});
  CHECK(shape({2, 3}, {3}) == Shape{2});
  CHECK(shape({5, 2, 3}, {3}) == Shape{5, 2});
  CHECK(shape({3}, {5, 3, 4}) == Shape{5, 4});
  CHECK(shape({5, 2, 3}, {3, 4}) == Shape{5, 2, 4});
  CHECK(shape({2, 3}, {5, 3, 4}) == Shape{5, 2, 4});
  CHECK(shape({7, 1, 2, 3}, {5, 3, 4}) == Shape{7, 5, 2, 4});
}

TEST_CASE("matmul: empty sizes give zeros, forward and backward") {
  const LeakGuard guard;
  for (const bool wide : {false, true}) {
    const Shape lead = wide ? Shape{4, 2, 0} : Shape{2, 0};
    const Tensor a = ones(lead, {.requires_grad = true});
    const Tensor b = ones({0, 3}, {.requires_grad = true});
    const Tensor y = matmul(a, b);
    CHECK(y.shape() == (wide ? Shape{4, 2, 3} : Shape{2, 3}));
    for (const double value : y.to_vector()) CHECK(value == 0);
    const auto g = grad(sum(y), {a, b});
    CHECK(g[0].shape() == a.shape());
    CHECK(g[1].shape() == b.shape());
  }
  CHECK(matmul(ones({0, 3}), ones({3, 2})).shape() == Shape{0, 2});
  CHECK(matmul(ones({2, 3}), ones({3, 0})).shape() == Shape{2, 0});
  CHECK(matmul(ones({0, 2, 3}), ones({3, 2})).shape() == Shape{0, 2, 2});
}

TEST_CASE("matmul: every way of blocking gives the product, by every flag, single and in batches") {
  const LeakGuard guard;
  Rng rng(5);
  const TensorOptions doubles{.dtype = DType::float64};
  // Small loops, dots, tiles: whole, ragged, several deep, several chunks of rows or of the inner
  // size.
  const std::int64_t sizes[][3] = {
      {1, 1, 1},     {5, 8, 4},      {5, 4, 5},      {3, 7, 17},    {16, 16, 16},   {31, 33, 65},
      {129, 20, 40}, {130, 70, 530}, {13, 129, 32},  {37, 260, 96}, {1, 64, 70},    {200, 64, 1},
      {40, 0, 100},  {25, 300, 900}, {64, 1030, 48}, {3, 5000, 40}, {200, 4100, 1}, {1, 1100, 900}};
  for (const auto& size : sizes) {
    const std::int64_t n = size[0], k = size[1], m = size[2];
    const Tensor a = randn(rng, {2, n, k}, doubles);
    const Tensor b = randn(rng, {2, k, m}, doubles);
    const Tensor expected = stack({tensor(product(a[0], b[0]), {n, m}, doubles),
                                   tensor(product(a[1], b[1]), {n, m}, doubles)});
    for (const bool single : {true, false}) {
      for (const MatmulOptions options : {MatmulOptions{},
                                          {.transpose_a = true},
                                          {.transpose_b = true},
                                          {.transpose_a = true, .transpose_b = true}}) {
        const Tensor x = single ? a[0] : a;
        const Tensor y = single ? b[0] : b;
        const Tensor left = options.transpose_a ? transpose(x) : x;
        const Tensor right = options.transpose_b ? transpose(y) : y;
        const Tensor right_answer = single ? expected[0] : expected;
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(m);
        CHECK(allclose(matmul(left, right, options), right_answer, {.rtol = 1e-12, .atol = 1e-12}));
        const Tensor floats = matmul(to(left, DType::float32), to(right, DType::float32), options);
        const double rounding = 1e-4 + 1e-5 * std::sqrt(static_cast<double>(k));
        CHECK(allclose(to(floats, DType::float64), right_answer, {.rtol = 1e-4, .atol = rounding}));
      }
    }
  }
}

// A row of a gives the same bits wherever it stands, and so does a column of b.
TEST_CASE("matmul: equal rows and columns give equal results, at every position") {
  const LeakGuard guard;
  Rng rng(6);
  const auto all_equal = [](const Tensor& y) {
    const auto numbers = y.data<float>();
    return std::all_of(numbers.begin(), numbers.end(), [&](float x) { return x == numbers[0]; });
  };
  const Tensor row = randn(rng, {1, 200});
  const Tensor column = randn(rng, {1100, 1});
  for (const std::int64_t n : {5, 16, 31, 49, 77, 130, 193, 400}) {
    for (const std::int64_t m : {1, 5, 16, 20, 77, 130}) {
      CAPTURE(n);
      CAPTURE(m);
      const Tensor rows = broadcast_to(row, {n, 200});
      const Tensor columns = broadcast_to(row, {m, 200});
      CHECK(all_equal(matmul(rows, transpose(columns))));
      CHECK(all_equal(matmul(rows, columns, {.transpose_b = true})));
      CHECK(all_equal(matmul(broadcast_to(rows, {2, n, 200}), broadcast_to(columns, {2, m, 200}),
                             {.transpose_b = true})));
      CHECK(all_equal(matmul(broadcast_to(column, {1100, n}), broadcast_to(column, {1100, m}),
                             {.transpose_a = true})));
    }
  }
}

TEST_CASE("matmul: the same bits at one and several threads [thread]") {
  Rng rng(7);
  const Tensor long_left = randn(rng, {1500, 70});
  const Tensor long_right = randn(rng, {1500, 90});
  const Tensor wide = randn(rng, {70, 90});
  const Tensor few = randn(rng, {5, 1500});
  const Tensor many = randn(rng, {1030, 200}, {.dtype = DType::float64});
  const Tensor more = randn(rng, {1030, 130}, {.dtype = DType::float64});
  const auto run = [&](int threads) {
    const test_support::ThreadCount count(threads);
    return std::vector{matmul(long_left, long_right, {.transpose_a = true}),
                       matmul(few, long_right), matmul(long_left, wide),
                       matmul(long_right, wide, {.transpose_b = true}),
                       matmul(many, more, {.transpose_a = true})};
  };
  const std::vector<Tensor> one = run(1);
  for (const int threads : {2, 3}) {
    const std::vector<Tensor> several = run(threads);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CAPTURE(i);
      CHECK(test_support::same_bits(one[i], several[i]));
    }
  }
}

TEST_CASE("matmul: errors name both shapes and the flag that would help") {
  const LeakGuard guard;
  const Tensor a = ones({4, 8}, {.requires_grad = true});
  CHECK(message_of(a, ones({6, 3})) ==
        "[matmul] inner sizes must match: a is (4, 8), b is (6, 3), 8 != 6");
  CHECK(message_of(a, ones({6, 8})).find("pass {.transpose_b = true}") != std::string::npos);
  CHECK(message_of(a, ones({4, 6})).find("pass {.transpose_a = true}") != std::string::npos);
  CHECK(message_of(a, ones({8, 6}), {.transpose_b = true}).find("drop transpose_b") !=
        std::string::npos);
  CHECK_THROWS_AS(matmul(ones({2, 4, 8}), ones({3, 8, 2})), ShapeError);
  CHECK_THROWS_AS(matmul(a, scalar(1.0)), ShapeError);
  CHECK_THROWS_AS(matmul(ones({3}), ones({3}), {.transpose_a = true}), ShapeError);
  CHECK_THROWS_AS(matmul(ones({3, 3}), ones({3}), {.transpose_b = true}), ShapeError);
  CHECK_THROWS_AS(matmul(a, ones({8, 2}, {.dtype = DType::float64})), DtypeError);
  CHECK_THROWS_AS(matmul(ones({2, 2}, {.dtype = DType::int64}), ones({2, 2})), DtypeError);
  CHECK_THROWS_AS(matmul(a, Tensor()), GraphError);
  CHECK_FALSE(a.grad().defined());
}
