// Shape: the sizes of a tensor, rank 0 to 6, and the rules on sizes that all ops share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "softtape/base/export.hpp"

namespace softtape {

/// Sizes of a tensor, outermost first; the last axis is contiguous. Rank 0 is a single number.
/// Edges: a size may be 0. Throws: ShapeError for more than 6 axes, a negative size, or an element
/// count beyond 2^63 - 1.
class SOFTTAPE_API Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes) {
    bool fits = sizes.size() <= kMaxRank;
    for (std::size_t i = 0; i < sizes.size() && fits; ++i) {
      sizes_[i] = sizes[i];
      fits = sizes[i] >= 0 && !__builtin_mul_overflow(numel_, sizes[i], &numel_);
    }
    rank_ = static_cast<int>(sizes.size());
    if (!fits) check(sizes);
  }

  int rank() const { return rank_; }
  std::int64_t numel() const { return numel_; }
  /// Size of one axis, 0 <= axis < rank; not checked.
  std::int64_t operator[](int axis) const { return sizes_[axis]; }
  /// Size of one axis; negative axes count from the end. Throws: ShapeError.
  std::int64_t dim(int axis) const;
  const std::int64_t* begin() const { return sizes_; }
  const std::int64_t* end() const { return sizes_ + rank_; }

  bool operator==(const Shape& other) const {
    // One by one: wide loads of sizes that were just written would wait for the writes.
    bool equal = rank_ == other.rank_;
    for (int i = 0; equal && i < rank_; ++i) equal = sizes_[i] == other.sizes_[i];
    return equal;
  }

  /// The same shape with one axis changed, dropped or put in; negative axes count from the end, and
  /// inserted(-1, n) puts n last. Throws: ShapeError.
  Shape with(int axis, std::int64_t size) const;
  Shape without(int axis) const;
  Shape inserted(int axis, std::int64_t size) const;

 private:
  // The slow way round, for sizes that are wrong or whose product does not fit at once.
  void check(std::span<const std::int64_t> sizes);

  std::int64_t sizes_[kMaxRank] = {};
  std::int64_t numel_ = 1;
  int rank_ = 0;
};

/// "(2, 3)", "(5,)" or "()", as NumPy prints it.
SOFTTAPE_API std::string to_string(const Shape& shape);

/// NumPy's broadcasting rule: axes align at the end, a size of 1 stretches.
/// Throws: ShapeError naming `op` and both shapes.
SOFTTAPE_API Shape broadcast(const char* op, const Shape& a, const Shape& b);

/// Turns a negative axis into one in [0, rank). Throws: ShapeError naming `op`.
SOFTTAPE_API int normalize_axis(const char* op, int axis, int rank);

}  // namespace softtape
