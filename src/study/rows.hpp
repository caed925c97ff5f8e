// Row by row over a float tensor, in double: what probes are made of.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "softtape/ops/mask.hpp"

namespace softtape::detail {

/// The numbers of a tensor in double, cut into rows along its last axis.
class Rows {
 public:
  /// Throws: GraphError, DtypeError or ShapeError naming the argument.
  Rows(const char* op, const char* argument, const Tensor& x) {
    check_float(op, argument, x);
    if (x.rank() == 0) {
      throw ShapeError(fmt::format("[{}] {} must have rank 1 or more: got ()", op, argument));
    }
    shape_ = x.shape();
    width_ = shape_.dim(-1);
    numbers_ = x.to_vector<double>();
  }

  const Shape& shape() const { return shape_; }
  Shape leading() const { return shape_.without(-1); }
  std::int64_t count() const { return leading().numel(); }
  std::int64_t width() const { return width_; }
  std::span<const double> operator[](std::int64_t row) const {
    return std::span(numbers_).subspan(static_cast<std::size_t>(row * width_),
                                       static_cast<std::size_t>(width_));
  }
  std::span<const double> all() const { return numbers_; }

 private:
  Shape shape_;
  std::int64_t width_ = 0;
  std::vector<double> numbers_;
};

/// Which entries of rows count: all, or those a mask shows.
class VisibleRows {
 public:
  VisibleRows(const Mask& mask, const Shape& shape) : width_(shape.dim(-1)) {
    if (!mask.empty()) visible_ = mask.visible(shape);
  }
  bool operator()(std::int64_t row, std::size_t key) const {
    return !visible_.defined() ||
           visible_.data<bool>()[static_cast<std::size_t>(row * width_) + key];
  }

 private:
  std::int64_t width_;
  Tensor visible_;
};

/// float64 (...): f(row) of each row, in parallel; f is given the numbers and the row's index.
template <class F>
Tensor map_rows(const Rows& rows, std::int64_t cost, F f) {
  Tensor y = make_tensor(rows.leading(), DType::float64);
  double* into = fresh_numbers<double>(y);
  for_ranges(rows.count(), row_grain(cost * rows.width()),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) into[row] = f(rows[row], row);
             });
  return y;
}

}  // namespace softtape::detail
