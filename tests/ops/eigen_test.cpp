// Eigen views of tensors and back.
#include "softtape/eigen.hpp"

#include <Eigen/Dense>

#include "ops/support.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

TEST_CASE("views show the numbers without a copy") {
  Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  const auto view = as_matrix<float>(x);
  CHECK(view.data() == x.data<float>().data());
  CHECK(view.rows() == 2);
  CHECK(view.cols() == 3);
  CHECK(view(1, 0) == 4);
  CHECK(view.sum() == 21);
  as_mutable_matrix<float>(x).row(0).setConstant(7);
  CHECK_SAME(x, tensor({{7.0, 7.0, 7.0}, {4.0, 5.0, 6.0}}));
  CHECK(x.version() > 0);
}

TEST_CASE("the last axis runs along columns, all others are rows") {
  const Tensor x = reshape(arange(24), {2, 3, 4});
  const auto view = as_matrix<std::int64_t>(x);
  CHECK(view.rows() == 6);
  CHECK(view.cols() == 4);
  CHECK(view(4, 1) == 17);
  CHECK(as_matrix<std::int64_t>(x[0][0]).rows() == 1);
  CHECK(as_matrix<std::int64_t>(scalar(9))(0, 0) == 9);
  CHECK(as_matrix<float>(zeros({3, 0})).rows() == 3);
  CHECK(as_matrix<bool>(tensor({true, false}))(0, 1) == false);
}

TEST_CASE("Eigen expressions become tensors of their scalar type") {
  Eigen::MatrixXd m(2, 3);  // column-major: numbers must be put in order
  m << 1, 2, 3, 4, 5, 6;
  const TensorOptions kept{.dtype = DType::float64};
  CHECK_SAME(from_eigen(m), tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, kept));
  CHECK_SAME(from_eigen(2 * m.transpose()), tensor({{2.0, 8.0}, {4.0, 10.0}, {6.0, 12.0}}, kept));
  CHECK_SAME(from_eigen(m, {.dtype = DType::float32}), tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}));
  CHECK_SAME(from_eigen(Eigen::Vector2f(1, 2)), tensor({1.0, 2.0}));
  CHECK_SAME(from_eigen(m.row(1)), tensor({4.0, 5.0, 6.0}, kept));
  CHECK_SAME(from_eigen(Eigen::Array3i(1, 2, 3)), tensor({1, 2, 3}));
  CHECK_SAME(from_eigen(m.array() > 3), tensor({{false, false, false}, {true, true, true}}));
  CHECK(from_eigen(m, {.requires_grad = true}).requires_grad());
  CHECK(from_eigen(Eigen::MatrixXf(0, 4)).shape() == Shape{0, 4});
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  CHECK_SAME(from_eigen(as_matrix<float>(x)), x);
}

TEST_CASE("views and conversions refuse what does not fit") {
  Tensor x = zeros({2}, {.requires_grad = true});
  CHECK_REFUSED(DtypeError, "[data]", as_matrix<double>(x));
  CHECK_REFUSED(GraphError, "[data]", as_matrix<double>(Tensor()));
  CHECK_REFUSED(GraphError, "[mutable_data]", as_mutable_matrix<float>(x));
  CHECK_REFUSED(DtypeError, "[tensor] floats need a float dtype",
                from_eigen(Eigen::Vector2d(0, 1), {.dtype = DType::int64}));
  CHECK_REFUSED(DtypeError, "[tensor] only float tensors",
                from_eigen(Eigen::Vector2i(0, 1), {.requires_grad = true}));
}
