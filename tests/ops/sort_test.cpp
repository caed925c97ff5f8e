// Orders, and whole tensors compared.
#include "softtape/ops/sort.hpp"

#include "ops/support.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/shape.hpp"
#include "support/constants.hpp"

using namespace softtape;
using ops_test::check_linear;
using test_support::kInf;
using test_support::kNaN;

TEST_CASE("argsort is stable and puts NaN last") {
  const Tensor x = tensor({3.0, 1.0, kNaN, 2.0, 1.0, kInf, -kInf, kNaN, 3.0});
  // numpy.argsort(x, kind="stable")
  CHECK_SAME(argsort(x), tensor({6, 1, 4, 3, 0, 8, 5, 2, 7}));
  CHECK_SAME(argsort(x, 0, {.descending = true}), tensor({5, 0, 8, 3, 1, 4, 6, 2, 7}));
  CHECK_SAME(argsort(tensor({2, 1, 2, 1})), tensor({1, 3, 0, 2}));
  CHECK_SAME(argsort(tensor({2, 1, 2, 1}), 0, {.descending = true}), tensor({0, 2, 1, 3}));
  CHECK_SAME(argsort(tensor({true, false, true})), tensor({1, 0, 2}));
  CHECK_SAME(argsort(tensor({0.0, -0.0})), tensor({0, 1}));
}

TEST_CASE("sort along any axis") {
  const Tensor x = tensor({{3.0, 1.0, 2.0}, {0.0, 5.0, 4.0}});
  const Sorted rows = sort(x);
  CHECK_SAME(rows.values, tensor({{1.0, 2.0, 3.0}, {0.0, 4.0, 5.0}}));
  CHECK_SAME(rows.indices, tensor({{1, 2, 0}, {0, 2, 1}}));
  const Sorted columns = sort(x, 0, {.descending = true});
  CHECK_SAME(columns.values, tensor({{3.0, 5.0, 4.0}, {0.0, 1.0, 2.0}}));
  CHECK_SAME(columns.indices, tensor({{0, 1, 1}, {1, 0, 0}}));
  Rng rng(3);
  const Tensor deep = randint(rng, 0, 50, {3, 17, 4});
  CHECK_SAME(sort(deep, 1).values, transpose(sort(transpose(deep)).values));
  CHECK(sort(zeros({2, 0})).values.shape() == Shape{2, 0});
  CHECK(sort(zeros({0, 2}), 1).indices.shape() == Shape{0, 2});
}

TEST_CASE("topk is the head of the sorted axis") {
  const Tensor x = tensor({{3.0, 1.0, kNaN, 3.0, 2.0}, {0.0, 5.0, 4.0, -1.0, 9.0}});
  CHECK_SAME(topk(x, 2).values, tensor({{3.0, 3.0}, {9.0, 5.0}}));
  CHECK_SAME(topk(x, 2).indices, tensor({{0, 3}, {4, 1}}));
  CHECK_SAME(topk(x, 1, 1, {.largest = false}).values, tensor({{1.0}, {-1.0}}));
  CHECK_SAME(topk(x, 1, 0).indices, tensor({{0, 1, 1, 0, 1}}));
  CHECK_SAME(topk(x, 5).indices, argsort(x, -1, {.descending = true}));
  CHECK(topk(x, 0).values.shape() == Shape{2, 0});
}

TEST_CASE("gradients of sorted values go back to where they came from") {
  Tensor x = tensor({3.0, 1.0, 2.0}, {.requires_grad = true});
  const Tensor gy = tensor({10.0, 20.0, 30.0});
  CHECK_SAME(grad(sort(x).values, x, {.grad_outputs = {gy}})[0], tensor({30.0, 10.0, 20.0}));
  CHECK_SAME(grad(topk(x, 2).values, x, {.grad_outputs = {tensor({5.0, 7.0})}})[0],
             tensor({5.0, 0.0, 7.0}));
  CHECK(!sort(x).indices.requires_grad());
}

TEST_CASE("[thread] many lines sort the same at any number of threads") {
  Rng rng(11);
  const Tensor x = randint(rng, 0, 100, {400, 300});
  const int before = num_threads();
  set_num_threads(1);
  const Sorted alone = sort(x, 0);
  set_num_threads(4);
  const Sorted together = sort(x, 0);
  set_num_threads(before);
  CHECK(equal(alone.indices, together.indices));
  CHECK(equal(alone.values, together.values));
}

TEST_CASE("allclose and equal") {
  const Tensor a = tensor({1.0, 100.0, 0.0});
  CHECK(allclose(a, a));
  CHECK(allclose(a, tensor({1.000001, 100.0005, 1e-9})));
  CHECK(!allclose(a, tensor({1.0001, 100.0, 0.0})));
  CHECK(!allclose(a, tensor({1.0, 100.0, 1e-6})));
  CHECK(allclose(a, tensor({1.1, 100.0, 0.0}), {.rtol = 0.1}));
  CHECK(allclose(a, tensor({1.0, 100.0, 1e-6}), {.atol = 1e-6}));
  // Relative to b, as in NumPy.
  CHECK(allclose(tensor({10.0}), tensor({20.0}), {.rtol = 0.5}));
  CHECK(!allclose(tensor({20.0}), tensor({10.0}), {.rtol = 0.5}));
  CHECK(allclose(tensor({kInf, -kInf}), tensor({kInf, -kInf})));
  CHECK(!allclose(tensor({kInf}), tensor({-kInf})));
  CHECK(!allclose(tensor({1.0}), tensor({kInf}), {.rtol = 1}));
  CHECK(!allclose(tensor({kNaN}), tensor({kNaN})));
  CHECK(allclose(tensor({kNaN}), tensor({kNaN}), {.equal_nan = true}));
  CHECK(!allclose(tensor({kNaN}), tensor({1.0}), {.equal_nan = true}));
  CHECK(allclose(ones({2, 3}), 1));
  CHECK(!allclose(a, 1.0));
  CHECK(allclose(tensor({1, 2}), tensor({1, 2})));
  CHECK(allclose(zeros({0}), zeros({0})));
  CHECK(equal(a, a.clone()));
  CHECK(!equal(a, tensor({1.0, 100.0, 1e-30})));
  CHECK(!equal(a, reshape(a, {1, 3})));
  CHECK(!equal(tensor({1}), tensor({1.0})));
  CHECK(!equal(tensor({kNaN}), tensor({kNaN})));
  CHECK(equal(tensor({0.0}), tensor({-0.0})));
  CHECK(equal(zeros({2, 0}), zeros({2, 0})));
}

TEST_CASE("orders and comparisons refuse what does not fit") {
  const Tensor x = zeros({2, 3}, {.requires_grad = true});
  const Tensor none;
  CHECK_REFUSED(ShapeError, "[argsort] axis must", argsort(x, 2));
  CHECK_REFUSED(ShapeError, "[argsort] axis must", argsort(scalar(1.0)));
  CHECK_REFUSED(GraphError, "[argsort]", argsort(none));
  CHECK_REFUSED(ShapeError, "[sort] axis must", sort(x, -3));
  CHECK_REFUSED(GraphError, "[sort]", sort(none));
  CHECK_REFUSED(ValueError, "[topk] k must lie in [0, 3]: got 4 for axis -1 of (2, 3)", topk(x, 4));
  CHECK_REFUSED(ValueError, "[topk] k must lie in [0, 2]: got -1", topk(x, -1, 0));
  CHECK_REFUSED(ShapeError, "[topk] axis must", topk(x, 1, 2));
  CHECK_REFUSED(GraphError, "[topk]", topk(none, 1));
  CHECK_REFUSED(ShapeError, "[allclose] shapes must be equal: a is (2, 3), b is (3,)",
                allclose(x, zeros({3})));
  CHECK_REFUSED(DtypeError, "[allclose]", allclose(x, zeros({2, 3}, {.dtype = DType::float64})));
  CHECK_REFUSED(ValueError, "[allclose] tolerances", allclose(x, x, {.rtol = -1}));
  CHECK_REFUSED(ValueError, "[allclose] tolerances", allclose(x, x, {.atol = kNaN}));
  CHECK_REFUSED(GraphError, "[allclose]", allclose(none, x));
  CHECK_REFUSED(GraphError, "[allclose]", allclose(x, none));
  CHECK_REFUSED(GraphError, "[equal] a is", equal(none, x));
  CHECK_REFUSED(GraphError, "[equal] b is", equal(x, none));
}
