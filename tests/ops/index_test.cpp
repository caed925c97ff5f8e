// Indexed reads and writes.
#include "softtape/ops/index.hpp"

#include "ops/support.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "support/constants.hpp"

using namespace softtape;
using ops_test::check_linear;
using test_support::kDouble;
using test_support::kInf;

TEST_CASE("gather reads along an axis where the index says") {
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  CHECK_SAME(gather(x, 1, tensor({{2, 0}, {1, 1}})), tensor({{3.0, 1.0}, {5.0, 5.0}}));
  CHECK_SAME(gather(x, 0, tensor({{1, 0, 1}})), tensor({{4.0, 2.0, 6.0}}));
  CHECK_SAME(gather(x, -1, tensor({{0, 0, 0, 2}})), tensor({{1.0, 1.0, 1.0, 3.0}}));
  CHECK_SAME(gather(tensor({true, false}), 0, tensor({1, 1, 0})), tensor({false, false, true}));
  CHECK(gather(x, 1, zeros({2, 0}, {.dtype = DType::int64})).shape() == Shape{2, 0});
  // The middle of three axes, an index shorter in the others.
  const Tensor y = reshape(arange(24), {2, 3, 4});
  CHECK_SAME(gather(y, 1, tensor({{{2, 1, 0}}})), tensor({{{8, 5, 2}}}));
}

TEST_CASE("scatter_add adds where the index says") {
  const Tensor x = tensor({{1.0, 1.0, 1.0}, {2.0, 2.0, 2.0}});
  const Tensor index = tensor({{0, 0, 2, 0}, {1, 2, 1, 1}});
  const Tensor src = tensor({{1.0, 10.0, 100.0, 1000.0}, {1.0, 2.0, 3.0, 4.0}});
  CHECK_SAME(scatter_add(x, 1, index, src), tensor({{1012.0, 1.0, 101.0}, {2.0, 10.0, 4.0}}));
  CHECK_SAME(scatter_add(zeros({2, 2}), 0, tensor({{1, 0}, {1, 1}}), ones({2, 2})),
             tensor({{0.0, 1.0}, {2.0, 1.0}}));
  CHECK_SAME(scatter_add(tensor({1, 2}), 0, tensor({1, 1, 1}), tensor({5, 6, 7})), tensor({1, 20}));
  CHECK_SAME(x, tensor({{1.0, 1.0, 1.0}, {2.0, 2.0, 2.0}}));
}

TEST_CASE("index_select and take_rows put the shape of the index in place of the axis") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK_SAME(index_select(x, 1, tensor({2, 0, 2, 1})), tensor({{3, 1, 3, 2}, {6, 4, 6, 5}}));
  CHECK_SAME(index_select(x, 0, tensor({1})), tensor({{4, 5, 6}}));
  CHECK_SAME(index_select(x, -1, scalar(1)), tensor({2, 5}));
  CHECK(index_select(x, 1, tensor({{0, 1}, {1, 2}, {2, 0}})).shape() == Shape{2, 3, 2});
  CHECK_SAME(take_rows(x, tensor({{1, 0}, {1, 1}})),
             tensor({{{4, 5, 6}, {1, 2, 3}}, {{4, 5, 6}, {4, 5, 6}}}));
  CHECK_SAME(take_rows(x, scalar(1)), tensor({4, 5, 6}));
  CHECK_SAME(take_rows(tensor({7.0, 8.0}), tensor({1, 1})), tensor({8.0, 8.0}));
  CHECK(take_rows(x, zeros({0, 4}, {.dtype = DType::int64})).shape() == Shape{0, 4, 3});
}

TEST_CASE("rows that are taken twice get both gradients") {
  Tensor table = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}, {.requires_grad = true});
  const Tensor gy = tensor({{1.0, 10.0}, {2.0, 20.0}, {4.0, 40.0}});
  const Tensor g = grad(take_rows(table, tensor({2, 0, 2})), table, {.grad_outputs = {gy}})[0];
  CHECK_SAME(g, tensor({{2.0, 20.0}, {0.0, 0.0}, {5.0, 50.0}}));
}

TEST_CASE("[thread] sums over repeated indices do not depend on the number of threads") {
  Rng rng(5);
  Tensor table = randn(rng, {7, 300});
  table.requires_grad_();
  const Tensor ids = randint(rng, 0, 7, {40, 25});
  const Tensor gy = randn(rng, {40, 25, 300});
  Tensor wide = randn(rng, {600, 9});
  wide.requires_grad_();
  const Tensor columns = randint(rng, 0, 9, {600, 200});
  const Tensor gw = randn(rng, {600, 200});
  const auto all = [&] {
    return std::vector<Tensor>{grad(take_rows(table, ids), table, {.grad_outputs = {gy}})[0],
                               grad(gather(wide, 1, columns), wide, {.grad_outputs = {gw}})[0],
                               take_rows(table, ids), gather(wide, 1, columns)};
  };
  const int before = num_threads();
  set_num_threads(1);
  const auto alone = all();
  set_num_threads(4);
  const auto together = all();
  set_num_threads(before);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(equal(alone[i], together[i]));
  // In the order of the ids.
  float sum = 0;
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (ids.data<std::int64_t>()[static_cast<std::size_t>(i)] == 3) {
      sum += gy.data<float>()[static_cast<std::size_t>(i * 300 + 299)];
    }
  }
  CHECK(alone[0][3][299].item() == sum);
}

TEST_CASE("one_hot") {
  CHECK_SAME(one_hot(tensor({2, 0}), 3), tensor({{0.0, 0.0, 1.0}, {1.0, 0.0, 0.0}}));
  CHECK_SAME(one_hot(scalar(1), 2, {.dtype = DType::boolean}), tensor({false, true}));
  CHECK(one_hot(tensor({{0, 1}, {1, 0}}), 2).shape() == Shape{2, 2, 2});
  CHECK(one_hot(zeros({0}, {.dtype = DType::int64}), 4).shape() == Shape{0, 4});
  CHECK(one_hot(tensor({1}), 2, {.dtype = DType::int64}).dtype() == DType::int64);
}

TEST_CASE("masked_fill hides numbers and their gradients") {
  Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}}, {.requires_grad = true});
  const Tensor mask = tensor({{true, false}, {false, true}});
  CHECK_SAME(masked_fill(x, mask, -1), tensor({{-1.0, 2.0}, {3.0, -1.0}}));
  CHECK_SAME(masked_fill(x, tensor({false, true}), 9), tensor({{1.0, 9.0}, {3.0, 9.0}}));
  CHECK_SAME(masked_fill(x, tensor({{true}, {false}}), 0), tensor({{0.0, 0.0}, {3.0, 4.0}}));
  CHECK_SAME(masked_fill(x, scalar(true), 5), full({2, 2}, 5));
  CHECK_SAME(masked_fill(tensor({1, 2}), tensor({true, false}), 7), tensor({7, 2}));
  const AnomalyGuard guard;  // infinities on purpose are no anomaly
  const Tensor y = masked_fill(x, mask, -kInf);
  CHECK_SAME(y, tensor({{-kInf, 2.0}, {3.0, -kInf}}));
  const Tensor g = grad(y, x, {.grad_outputs = {tensor({{kInf, 1.0}, {2.0, kInf}})}})[0];
  CHECK_SAME(g, tensor({{0.0, 1.0}, {2.0, 0.0}}));
  CHECK(masked_fill(zeros({0, 2}), tensor({true, false}), 1).shape() == Shape{0, 2});
}

TEST_CASE("gradients of indexed ops are exact, to second order") {
  const Tensor columns = tensor({{2, 0, 2, 2}, {1, 1, 0, 3}});
  check_linear([&](const Tensor& x) { return gather(x, 1, columns); }, {3, 4});
  check_linear([&](const Tensor& x) { return gather(x, 0, columns); }, {4, 5});
  const Tensor deep = tensor({{{2, 1, 0}}, {{0, 0, 1}}});
  check_linear([&](const Tensor& x) { return gather(x, 1, deep); }, {2, 3, 4});
  check_linear([&](const Tensor& x) { return scatter_add(x, 1, columns, slice(x, 0, 0, 2)); },
               {3, 4});
  check_linear(
      [&](const Tensor& x) {
        return scatter_add(zeros({4, 4}, kDouble), 0, columns, x);
      },
      {2, 4});
  check_linear([&](const Tensor& x) { return index_select(x, 1, columns); }, {2, 4, 3});
  check_linear([&](const Tensor& x) { return index_select(x, -1, tensor({2, 2, 0})); }, {2, 2, 3});
  check_linear([&](const Tensor& x) { return take_rows(x, columns); }, {4, 3});
  check_linear([&](const Tensor& x) { return take_rows(x, columns); }, {4});
  check_linear(
      [&](const Tensor& g) {
        return index_select_vjp(g, {2, 5}, 1, tensor({4, 1, 4}));
      },
      {2, 3});
  check_linear(
      [&](const Tensor& x) {
        return masked_fill(x, tensor({{true}, {false}, {true}}), 0);
      },
      {2, 3, 4});
}

TEST_CASE("an index changed after the forward pass is noticed") {
  Tensor x = ones({3}, {.requires_grad = true});
  Tensor index = tensor({0, 2});
  const Tensor y = gather(x, 0, index);
  index.fill_(1);
  CHECK_REFUSED(GraphError, "[gather] input 1 was changed in place",
                grad(y, x, {.grad_outputs = {ones({2})}}));
}

TEST_CASE("indexed ops refuse what does not fit") {
  const Tensor x = zeros({2, 3}, {.requires_grad = true});
  const Tensor i = tensor({{0, 1}, {1, 0}});
  const Tensor none;
  CHECK_REFUSED(ValueError, "[gather] index must lie in [0, 3): got 3 at (1, 0)",
                gather(x, 1, tensor({{0, 1}, {3, 0}})));
  CHECK_REFUSED(ValueError, "[gather] index must lie in [0, 3): got -1 at (0, 1)",
                gather(x, 1, tensor({{0, -1}})));
  CHECK_REFUSED(ShapeError, "[gather] index must have the rank of x", gather(x, 1, tensor({0})));
  CHECK_REFUSED(ShapeError, "[gather] index must have the rank of x and be no larger",
                gather(x, 1, tensor({{0}, {1}, {2}})));
  CHECK_REFUSED(DtypeError, "[gather] index must be int64: got float32", gather(x, 1, x));
  CHECK_REFUSED(ShapeError, "[gather] axis must", gather(x, 2, i));
  CHECK_REFUSED(GraphError, "[gather] x is", gather(none, 0, i));
  CHECK_REFUSED(GraphError, "[gather] index is", gather(x, 0, none));
  CHECK_REFUSED(ValueError, "[scatter_add] index must lie in [0, 2): got 2 at (0, 0)",
                scatter_add(x, 0, tensor({{2, 0}}), zeros({1, 2})));
  CHECK_REFUSED(ShapeError, "[scatter_add] src must have the shape of index: (2, 3) and (2, 2)",
                scatter_add(x, 1, i, x));
  CHECK_REFUSED(ShapeError, "[scatter_add] index must have the rank",
                scatter_add(x, 1, tensor({1}), tensor({1.0})));
  CHECK_REFUSED(DtypeError, "[scatter_add] x and src",
                scatter_add(x, 1, i, zeros({2, 2}, kDouble)));
  CHECK_REFUSED(DtypeError, "[scatter_add] x and src",
                scatter_add(tensor({true}), 0, tensor({0}), tensor({true})));
  CHECK_REFUSED(DtypeError, "[scatter_add] index must be int64", scatter_add(x, 1, x, x));
  CHECK_REFUSED(GraphError, "[scatter_add] src is", scatter_add(x, 1, i, none));
  CHECK_REFUSED(ValueError, "[index_select] index must lie in [0, 3): got 5 at (1)",
                index_select(x, 1, tensor({0, 5})));
  CHECK_REFUSED(DtypeError, "[index_select] index must be int64", index_select(x, 1, x));
  CHECK_REFUSED(ShapeError, "[index_select] axis must", index_select(x, -3, i));
  CHECK_REFUSED(ShapeError, "[index_select] at most 6",
                index_select(zeros({1, 1, 1, 1, 2}), 4, reshape(i, {1, 2, 2})));
  CHECK_REFUSED(GraphError, "[index_select]", index_select(none, 0, i));
  CHECK_REFUSED(ShapeError, "[index_select_vjp] gy must have the shape of the selection: gy is",
                index_select_vjp(x, {2, 3}, 1, tensor({0})));
  CHECK_REFUSED(DtypeError, "[index_select_vjp] gy must be float",
                index_select_vjp(i, {2, 3}, 1, tensor({0, 0})));
  CHECK_REFUSED(ValueError, "[index_select_vjp] index must lie in [0, 3)",
                index_select_vjp(x, {2, 3}, 1, tensor({0, 0, 3})));
  CHECK_REFUSED(ValueError, "[take_rows] ids must lie in [0, 2): got 2 at ()",
                take_rows(x, scalar(2)));
  CHECK_REFUSED(ValueError, "[take_rows] ids must lie in [0, 0): got 0 at (0)",
                take_rows(zeros({0, 3}), tensor({0})));
  CHECK_REFUSED(ShapeError, "[take_rows] axis must", take_rows(scalar(1.0), tensor({0})));
  CHECK_REFUSED(DtypeError, "[take_rows] ids must be int64", take_rows(x, tensor({true})));
  CHECK_REFUSED(GraphError, "[take_rows] table is", take_rows(none, i));
  CHECK_REFUSED(ValueError, "[one_hot] ids must lie in [0, 2): got 2 at (1)",
                one_hot(tensor({0, 2}), 2));
  CHECK_REFUSED(ShapeError, "[one_hot] classes must not be negative", one_hot(i, -1));
  CHECK_REFUSED(ShapeError, "[one_hot] at most 6",
                one_hot(zeros({1, 1, 1, 1, 1, 1}, {.dtype = DType::int64}), 2));
  CHECK_REFUSED(GraphError, "[one_hot]", one_hot(none, 2));
  CHECK_REFUSED(DtypeError, "[masked_fill] mask must be boolean", masked_fill(x, x, 0));
  CHECK_REFUSED(ShapeError,
                "[masked_fill] mask must broadcast to x: x is (2, 3), mask is (2, 2, 3)",
                masked_fill(x, ones({2, 2, 3}, {.dtype = DType::boolean}), 0));
  CHECK_REFUSED(ShapeError, "[masked_fill]", masked_fill(x, tensor({true, false}), 0));
  CHECK_REFUSED(DtypeError, "[masked_fill] a fractional number",
                masked_fill(i, tensor({true, false}), 0.5));
  CHECK_REFUSED(ValueError, "[masked_fill] a number must fit int64",
                masked_fill(i, tensor({true, false}), -kInf));
  CHECK_REFUSED(GraphError, "[masked_fill] mask is", masked_fill(x, none, 0));
}
