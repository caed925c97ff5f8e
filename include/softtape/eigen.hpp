// Eigen views of tensors and tensors from Eigen expressions. Not part of softtape.hpp: include it
// where you use Eigen yourself. All is inline, so Eigen's alignment is your program's affair alone.
#pragma once

#include <Eigen/Core>
#include <type_traits>

#include "softtape/ops/create.hpp"

namespace softtape {

template <class T>
using RowMajorMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace detail {
inline Eigen::Index matrix_rows(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}
inline Eigen::Index matrix_columns(const Shape& shape) {
  return shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
}
}  // namespace detail

/// A view of the numbers, no copy: the last axis runs along columns, all others make up the rows,
/// so a rank 1 tensor is one row. Valid while a tensor holds the numbers. Throws: DtypeError when T
/// is not the element type.
template <class T>
Eigen::Map<const RowMajorMatrix<T>> as_matrix(const Tensor& x) {
  return {x.data<T>().data(), detail::matrix_rows(x.shape()), detail::matrix_columns(x.shape())};
}
/// The same, to be written. Throws: GraphError as Tensor::mutable_data does.
template <class T>
Eigen::Map<RowMajorMatrix<T>> as_mutable_matrix(Tensor& x) {
  return {x.mutable_data<T>().data(), detail::matrix_rows(x.shape()),
          detail::matrix_columns(x.shape())};
}

/// The values of an Eigen expression: rank 1 for what is a vector at compile time, rank 2 for all
/// else. Keeps the scalar type (any integer becomes int64) unless the options name another.
template <class Derived>
Tensor from_eigen(const Eigen::DenseBase<Derived>& expression, TensorOptions options = {}) {
  using Scalar = typename Derived::Scalar;
  static_assert(std::is_arithmetic_v<Scalar>, "tensors hold real numbers");
  using Kept = std::conditional_t<
      std::is_same_v<Scalar, bool> || std::is_same_v<Scalar, float>, Scalar,
      std::conditional_t<std::is_floating_point_v<Scalar>, double, std::int64_t>>;
  if (!options.dtype) options.dtype = dtype_of<Kept>;
  const Derived& values = expression.derived();
  const Shape shape =
      Derived::IsVectorAtCompileTime ? Shape{values.size()} : Shape{values.rows(), values.cols()};
  detail::check_range(shape, static_cast<std::size_t>(values.size()),
                      std::is_floating_point_v<Scalar>, options);
  Tensor y = empty(shape, {.dtype = options.dtype});
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Eigen::Map<RowMajorMatrix<T>> into(y.mutable_data<T>().data(), values.rows(), values.cols());
    into = values.template cast<T>();
  });
  if (options.requires_grad) y.requires_grad_();
  return y;
}

}  // namespace softtape
