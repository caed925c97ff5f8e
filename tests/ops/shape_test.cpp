// New shapes and orders: reshape and its kin, permute, broadcast_to.
#include "softtape/ops/shape.hpp"

#include <numeric>

#include "ops/support.hpp"
#include "softtape/base/parallel.hpp"

using namespace softtape;
using ops_test::check_linear;
using ops_test::count;

namespace {

// Permutation by its definition, for any rank.
std::vector<std::int64_t> permuted(const Shape& shape, const std::vector<int>& axes) {
  std::vector<std::int64_t> steps(axes.size());
  std::int64_t n = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    steps[static_cast<std::size_t>(i)] = n;
    n *= shape[i];
  }
  std::vector<std::int64_t> out;
  std::vector<std::int64_t> index(axes.size());
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t rest = k;
    std::int64_t at = 0;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const auto axis = static_cast<std::size_t>(axes[i]);
      at += rest % shape[axes[i]] * steps[axis];
      rest /= shape[axes[i]];
    }
    out.push_back(at);
  }
  return out;
}

}  // namespace

TEST_CASE("reshape keeps the numbers in their order") {
  const Tensor x = count({2, 3, 4});
  CHECK(reshape(x, {6, 4}).shape() == Shape{6, 4});
  CHECK(reshape(x, {6, 4}).to_vector<std::int64_t>() == x.to_vector<std::int64_t>());
  CHECK(reshape(x, {-1}).shape() == Shape{24});
  CHECK(reshape(x, {4, -1, 2}).shape() == Shape{4, 3, 2});
  CHECK(reshape(x, Shape{1, 24}).shape() == Shape{1, 24});
  CHECK(reshape(count({1, 1}), {}).shape() == Shape{});
  CHECK(reshape(zeros({0, 3}), {-1, 3}).shape() == Shape{0, 3});
  CHECK(reshape(zeros({0, 3}), {5, 0}).shape() == Shape{5, 0});
  CHECK(reshape(zeros({}), {1, 1, 1, 1, 1, -1}).shape() == Shape{1, 1, 1, 1, 1, 1});
  const std::vector<std::int64_t> sizes{3, -1};
  CHECK(reshape(x, sizes).shape() == Shape{3, 8});
}

TEST_CASE("reshape, flatten, squeeze, unsqueeze and detach share numbers; the others copy") {
  Tensor x = ones({1, 4});
  const Tensor shared[] = {reshape(x, {2, 2}), flatten(x), squeeze(x), unsqueeze(x, 0), x.detach()};
  const Tensor copies[] = {transpose(x), broadcast_to(x, {1, 4}), slice(x, 1, {}), x[0].clone()};
  x.fill_(5);
  for (const Tensor& y : shared) CHECK(y.to_vector() == std::vector<double>(4, 5));
  for (const Tensor& y : copies) CHECK(y.to_vector() == std::vector<double>(4, 1));
}

TEST_CASE("flatten, squeeze and unsqueeze") {
  const Tensor x = count({2, 1, 3, 1, 4});
  CHECK(flatten(x).shape() == Shape{24});
  CHECK(flatten(x, 1, 2).shape() == Shape{2, 3, 1, 4});
  CHECK(flatten(x, -3).shape() == Shape{2, 1, 12});
  CHECK(flatten(x, 2, 2).shape() == x.shape());
  CHECK(flatten(scalar(3.0)).shape() == Shape{1});
  CHECK(flatten(zeros({2, 0, 3})).shape() == Shape{0});
  CHECK(squeeze(x).shape() == Shape{2, 3, 4});
  CHECK(squeeze(x, 1).shape() == Shape{2, 3, 1, 4});
  CHECK(squeeze(x, -2).shape() == Shape{2, 1, 3, 4});
  CHECK(squeeze(ones({1, 1})).shape() == Shape{});
  CHECK(unsqueeze(count({2, 3}), 0).shape() == Shape{1, 2, 3});
  CHECK(unsqueeze(count({2, 3}), 1).shape() == Shape{2, 1, 3});
  CHECK(unsqueeze(count({2, 3}), -1).shape() == Shape{2, 3, 1});
  CHECK(unsqueeze(count({2, 3}), -3).shape() == Shape{1, 2, 3});
  CHECK(unsqueeze(scalar(1), 0).shape() == Shape{1});
}

TEST_CASE("permute agrees with its definition for every order of up to five axes") {
  for (const Shape& shape :
       {Shape{3, 4}, Shape{2, 3, 4}, Shape{3, 1, 2, 4}, Shape{2, 3, 1, 2, 3}}) {
    std::vector<int> axes(static_cast<std::size_t>(shape.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    do {
      const Tensor y = permute(count(shape), axes);
      CHECK(y.to_vector<std::int64_t>() == permuted(shape, axes));
      for (int i = 0; i < shape.rank(); ++i) {
        CHECK(y.dim(i) == shape[axes[static_cast<std::size_t>(i)]]);
      }
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
  CHECK(permute(count({2, 1, 3, 2, 1, 2}), {5, 0, 3, -2, 2, 1}).to_vector<std::int64_t>() ==
        permuted({2, 1, 3, 2, 1, 2}, {5, 0, 3, 4, 2, 1}));
  CHECK(permute(scalar(7), {}).item() == 7);
  CHECK(permute(zeros({2, 0, 3}), {2, 1, 0}).shape() == Shape{3, 0, 2});
}

TEST_CASE("[thread] large permutes, blocked and in several chunks, in every dtype") {
  for (const auto& [shape, axes] :
       std::vector<std::pair<Shape, std::vector<int>>>{{{301, 257}, {1, 0}},
                                                       {{5, 130, 67}, {0, 2, 1}},
                                                       {{37, 41, 43}, {2, 1, 0}},
                                                       {{4, 50, 8, 33}, {0, 2, 1, 3}},
                                                       {{3, 2, 100, 129}, {3, 1, 0, 2}}}) {
    const Tensor x = count(shape);
    const std::vector<std::int64_t> right = permuted(shape, axes);
    for (const int threads : {1, 2, 4}) {
      const int before = num_threads();
      set_num_threads(threads);
      const Tensor y = permute(x, axes);
      set_num_threads(before);
      CHECK(y.to_vector<std::int64_t>() == right);
    }
    const std::vector<double> odd(right.begin(), right.end());
    const std::vector<std::int64_t> numbers = x.to_vector<std::int64_t>();
    CHECK(permute(tensor(numbers, shape, {.dtype = DType::float32}), axes).to_vector() == odd);
    std::vector<bool> bits;
    std::vector<bool> right_bits;
    for (const std::int64_t n : numbers) bits.push_back(n % 3 == 0);
    for (const std::int64_t n : right) right_bits.push_back(n % 3 == 0);
    CHECK(permute(tensor(bits, shape), axes).to_vector<bool>() == right_bits);
  }
}

TEST_CASE("transpose exchanges two axes, the last ones by default") {
  CHECK_SAME(transpose(tensor({{1, 2, 3}, {4, 5, 6}})), tensor({{1, 4}, {2, 5}, {3, 6}}));
  CHECK(transpose(count({2, 3, 4}), 0, 2).to_vector<std::int64_t>() ==
        permuted({2, 3, 4}, {2, 1, 0}));
  CHECK(transpose(count({2, 3, 4})).shape() == Shape{2, 4, 3});
  CHECK(transpose(count({2, 3}), 1, 1).shape() == Shape{2, 3});
}

TEST_CASE("broadcast_to and expand repeat axes of size 1 and add axes in front") {
  const Tensor row = tensor({{1, 2, 3}});
  CHECK_SAME(broadcast_to(row, {2, 3}), tensor({{1, 2, 3}, {1, 2, 3}}));
  CHECK_SAME(broadcast_to(tensor({{1}, {2}}), {2, 2, 3}),
             tensor({{{1, 1, 1}, {2, 2, 2}}, {{1, 1, 1}, {2, 2, 2}}}));
  CHECK_SAME(broadcast_to(scalar(true), {2, 1}), tensor({{true}, {true}}));
  CHECK(broadcast_to(row, {0, 3}).shape() == Shape{0, 3});
  CHECK(broadcast_to(zeros({1, 0}), {4, 0}).shape() == Shape{4, 0});
  CHECK_SAME(expand(row, {2, -1}), broadcast_to(row, {2, 3}));
  CHECK(expand(row, {4, 1, -1}).shape() == Shape{4, 1, 3});
  CHECK(expand(count({1, 2, 1, 3, 1, 1}), {2, 2, 2, 3, 2, 2}).numel() == 96);
}

TEST_CASE("gradients of shape ops are exact, to second order") {
  check_linear([](const Tensor& x) { return reshape(x, {4, -1}); }, {2, 3, 4});
  check_linear([](const Tensor& x) { return flatten(x, 1); }, {2, 3, 4});
  check_linear([](const Tensor& x) { return squeeze(unsqueeze(x, 1), 1); }, {2, 3});
  check_linear([](const Tensor& x) { return permute(x, {2, 0, 3, 1}); }, {2, 3, 4, 5});
  check_linear([](const Tensor& x) { return permute(x, {3, 5, 0, 2, 1, 4}); }, {2, 3, 1, 2, 3, 2});
  check_linear([](const Tensor& x) { return transpose(x); }, {3, 5});
  check_linear([](const Tensor& x) { return broadcast_to(x, {4, 2, 3, 5}); }, {2, 1, 5});
  check_linear([](const Tensor& x) { return expand(x, {3, -1}); }, {2});
  check_linear([](const Tensor& x) { return broadcast_to(x, {2, 3}); }, {});
}

TEST_CASE("a view of a leaf and the leaf itself get the gradients of both uses") {
  Tensor x = tensor({1.0, 2.0, 3.0, 4.0}, {.requires_grad = true});
  const Tensor y = reshape(x, {2, 2});
  const Tensor z = permute(y, {1, 0});
  const auto g = grad(
      {y, z}, x,
      {.grad_outputs = {tensor({{1.0, 2.0}, {3.0, 4.0}}), tensor({{10.0, 20.0}, {30.0, 40.0}})}});
  CHECK_SAME(g.front(), tensor({11.0, 32.0, 23.0, 44.0}));
}

TEST_CASE("shape ops refuse what does not fit") {
  const Tensor x = zeros({2, 3}, {.requires_grad = true});
  const Tensor none;
  CHECK_REFUSED(ShapeError, "[reshape] the number of elements must stay: x is (2, 3) with 6, asked",
                reshape(x, {4}));
  CHECK_REFUSED(ShapeError, "[reshape]", reshape(x, Shape{7}));
  CHECK_REFUSED(ShapeError, "[reshape] no size fits", reshape(x, {4, -1}));
  CHECK_REFUSED(ShapeError, "[reshape] no size fits", reshape(zeros({0}), {-1, 0}));
  CHECK_REFUSED(ShapeError, "[reshape] sizes must not be negative", reshape(x, {-1, -1}));
  CHECK_REFUSED(ShapeError, "[reshape] sizes must not be negative", reshape(x, {-6}));
  CHECK_REFUSED(ShapeError, "[reshape] at most 6", reshape(x, {1, 1, 1, 1, 1, 2, 3}));
  CHECK_REFUSED(GraphError, "[reshape]", reshape(none, {1}));
  CHECK_REFUSED(ShapeError, "[flatten] axis must", flatten(x, 2));
  CHECK_REFUSED(ShapeError, "[flatten] start must", flatten(x, 1, 0));
  CHECK_REFUSED(ShapeError, "[flatten] axis must", flatten(scalar(1.0), 1));
  CHECK_REFUSED(GraphError, "[flatten]", flatten(none));
  CHECK_REFUSED(ShapeError, "[squeeze] only an axis of size 1", squeeze(x, 1));
  CHECK_REFUSED(ShapeError, "[squeeze] axis must", squeeze(x, -3));
  CHECK_REFUSED(GraphError, "[squeeze]", squeeze(none));
  CHECK_REFUSED(ShapeError, "[unsqueeze] axis must", unsqueeze(x, 3));
  CHECK_REFUSED(ShapeError, "[unsqueeze] at most 6", unsqueeze(zeros({1, 1, 1, 1, 1, 1}), 0));
  CHECK_REFUSED(GraphError, "[unsqueeze]", unsqueeze(none, 0));
  CHECK_REFUSED(ShapeError, "[permute] needs every axis once: got (0)", permute(x, {0}));
  CHECK_REFUSED(ShapeError, "[permute] needs every axis once: got (0, -2)", permute(x, {0, -2}));
  CHECK_REFUSED(ShapeError, "[permute] axis must", permute(x, {0, 2}));
  CHECK_REFUSED(GraphError, "[permute]", permute(none, {0}));
  CHECK_REFUSED(ShapeError, "[transpose] axis must", transpose(zeros({3})));
  CHECK_REFUSED(GraphError, "[transpose]", transpose(none));
  CHECK_REFUSED(ShapeError, "[broadcast_to] only axes of size 1", broadcast_to(x, {2, 4}));
  CHECK_REFUSED(ShapeError, "[broadcast_to]", broadcast_to(x, {3}));
  CHECK_REFUSED(ShapeError, "[broadcast_to]", broadcast_to(x, {1, 3}));
  CHECK_REFUSED(GraphError, "[broadcast_to]", broadcast_to(none, {1}));
  CHECK_REFUSED(ShapeError, "[expand] -1 keeps", expand(x, {-1, 2, 3}));
  CHECK_REFUSED(ShapeError, "[expand] needs 2 to 6", expand(x, {3}));
  CHECK_REFUSED(GraphError, "[expand]", expand(none, {1}));
}
