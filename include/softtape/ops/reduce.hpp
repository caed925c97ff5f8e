// Reductions: many numbers to one, over any set of axes.
//
// Every result element is summed in one fixed order that depends on sizes alone. Sums of float32
// run in short float blocks whose totals are added in double.
//
// Throws (all): ShapeError for an axis out of range, given twice, or more than 6 of them;
// DtypeError for dtypes that do not fit; GraphError for undefined tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "softtape/graph/arguments.hpp"

namespace softtape {

/// The axes of a reduction: nothing (all of them), a number, or numbers in braces. Negative axes
/// count from the end; order does not matter.
class SOFTTAPE_API Axes {
 public:
  // NOLINTBEGIN(google-explicit-constructor): sum(x, 1) and sum(x, {0, 2}) are the point.
  Axes() = default;
  Axes(int axis) : axes_{axis}, count_(1) {}
  Axes(std::initializer_list<int> axes) : Axes(std::span<const int>(axes.begin(), axes.size())) {}
  // NOLINTEND(google-explicit-constructor)
  /// Edges: an empty list is all axes.
  explicit Axes(std::span<const int> axes) : count_(axes.size()) {
    for (std::size_t i = 0; i < axes.size() && i < Shape::kMaxRank; ++i) axes_[i] = axes[i];
  }

  bool all() const { return count_ == 0; }
  /// A bit for each reduced axis of a tensor of this rank. Throws: ShapeError naming `op`.
  std::uint32_t mask(const char* op, int rank) const {
    return all() ? (1u << rank) - 1 : checked_mask(op, rank);
  }

 private:
  std::uint32_t checked_mask(const char* op, int rank) const;

  int axes_[Shape::kMaxRank] = {};
  std::size_t count_ = 0;
};

struct ReduceOptions {
  bool keepdim = false;  ///< Keep reduced axes with size 1.
};

/// x summed down to `shape`, which broadcasts to x's: the mirror of broadcast_to. Equal shapes give
/// x itself. Vjp: broadcast_to(gy). Throws: ShapeError when `shape` does not broadcast to x's.
SOFTTAPE_API Tensor sum_to(TensorArg x, const Shape& shape);

/// Sum; float or int64, and booleans are counted in int64. Vjp: gx = gy, broadcast.
/// Edges: over nothing it is 0.
SOFTTAPE_API Tensor sum(TensorArg x, Axes axes = {}, ReduceOptions options = {});
/// Mean of a float tensor. Vjp: gx = gy / n. Throws: ValueError over nothing.
SOFTTAPE_API Tensor mean(TensorArg x, Axes axes = {}, ReduceOptions options = {});

struct VarOptions {
  double correction = 1;  ///< The sum of squares is divided by n - correction.
  bool keepdim = false;
};
/// Variance sum (x - mean)^2 / (n - correction), in two passes. Vjp: 2 gy (x - mean) / (n - c).
/// Throws: ValueError unless n > correction.
SOFTTAPE_API Tensor var(TensorArg x, Axes axes = {}, VarOptions options = {});
/// Square root of var(); after a using-directive it has to be called as softtape::std.
/// Edges: slope 0 where it is 0.
SOFTTAPE_API Tensor std(TensorArg x, Axes axes = {}, VarOptions options = {});

/// Largest and smallest number; float or int64. A NaN is the result wherever it stands.
/// Vjp: ties share the gradient evenly. Throws: ValueError over nothing.
SOFTTAPE_API Tensor max(TensorArg x, Axes axes = {}, ReduceOptions options = {});
SOFTTAPE_API Tensor min(TensorArg x, Axes axes = {}, ReduceOptions options = {});

/// Index (int64) of the first largest or smallest number along an axis, or in the flattened tensor
/// when none is named; the first NaN wins, as in NumPy. No gradient.
/// Throws: ValueError over nothing.
SOFTTAPE_API Tensor argmax(TensorArg x, std::optional<int> axis = {}, ReduceOptions options = {});
SOFTTAPE_API Tensor argmin(TensorArg x, std::optional<int> axis = {}, ReduceOptions options = {});

/// Whether any, or every, element of a boolean tensor is true; over nothing false and true.
SOFTTAPE_API Tensor any(TensorArg x, Axes axes = {}, ReduceOptions options = {});
SOFTTAPE_API Tensor all(TensorArg x, Axes axes = {}, ReduceOptions options = {});

/// y = ln sum e^x, shifted by the largest x. Vjp: gx = gy softmax(x).
/// Edges: over only -Inf, or nothing, it is -Inf with gradient 0; with a +Inf it is +Inf and the
/// gradient NaN.
SOFTTAPE_API Tensor logsumexp(TensorArg x, Axes axes = {}, ReduceOptions options = {});

struct NormOptions {
  double p = 2;  ///< Any positive number, also infinity.
  bool keepdim = false;
};
/// y = (sum |x|^p)^(1/p), scaled so that no power overflows; p = Inf gives the largest |x|.
/// Vjp: gx = gy sign(x) (|x| / y)^(p-1). Edges: slope 0 where y, or for p < 2 where x, is 0.
/// Throws: ValueError unless p > 0, or for p = Inf over nothing.
SOFTTAPE_API Tensor norm(TensorArg x, Axes axes = {}, NormOptions options = {});

/// y_i = x_0 + ... + x_i along an axis; float or int64. Vjp: the same from the other end.
SOFTTAPE_API Tensor cumsum(TensorArg x, int axis);

}  // namespace softtape
