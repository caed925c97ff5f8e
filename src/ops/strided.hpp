// Copies between numbers that lie in different orders: what permute, slices, joins and broadcasts
// come down to.
#pragma once

#include "graph/node.hpp"

namespace softtape::detail {

/// An index space with the place of each element in a source and in a target. Steps count elements;
/// a source step of 0 repeats.
struct StridedCopy {
  int rank = 0;
  std::int64_t sizes[Shape::kMaxRank] = {};
  std::int64_t from_steps[Shape::kMaxRank] = {};
  std::int64_t into_steps[Shape::kMaxRank] = {};

  /// Appends an axis, outermost first.
  void axis(std::int64_t size, std::int64_t from_step, std::int64_t into_step);
  /// Copies into[...] = from[...]; places in the target must differ.
  void run(DType dtype, const char* from, char* into) const;
  /// Elements of the first `leading` axes together.
  std::int64_t places(int leading) const {
    std::int64_t n = 1;
    for (int i = 0; i < leading; ++i) n *= sizes[i];
    return n;
  }
};

/// Walks the places of a copy's leading axes in row-major order.
class Places {
 public:
  /// Starts at place `at` of the first `rank` axes.
  Places(const StridedCopy& copy, int rank, std::int64_t at) : copy_(copy), rank_(rank) {
    for (int axis = rank - 1; axis >= 0; --axis) {
      index_[axis] = at % copy.sizes[axis];
      at /= copy.sizes[axis];
      from += index_[axis] * copy.from_steps[axis];
      into += index_[axis] * copy.into_steps[axis];
    }
  }
  void next() {
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      from += copy_.from_steps[axis];
      into += copy_.into_steps[axis];
      if (++index_[axis] < copy_.sizes[axis]) return;
      index_[axis] = 0;
      from -= copy_.sizes[axis] * copy_.from_steps[axis];
      into -= copy_.sizes[axis] * copy_.into_steps[axis];
    }
  }
  std::int64_t from = 0;
  std::int64_t into = 0;

 private:
  const StridedCopy& copy_;
  int rank_;
  std::int64_t index_[Shape::kMaxRank] = {};
};

/// Row-major steps of a shape.
struct Steps {
  std::int64_t step[Shape::kMaxRank];
  explicit Steps(const Shape& shape) {
    std::int64_t n = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      step[i] = n;
      n *= shape[i];
    }
  }
  std::int64_t operator[](int axis) const { return step[axis]; }
};

/// All bytes 0: zeros of any dtype.
void fill_zeros(Tensor& y);

}  // namespace softtape::detail
