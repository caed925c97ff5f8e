// Orders: argsort, sort, topk.
//
// Equal numbers keep their order, in descending sorts too. NaN comes last, whatever the direction.
// Values are gathered at the indices, so they are differentiable; indices are int64 constants.
//
// Throws (all): ShapeError for an axis out of range, GraphError for an undefined tensor.
#pragma once

#include "softtape/graph/arguments.hpp"

namespace softtape {

struct SortOptions {
  bool descending = false;
};

struct TopkOptions {
  bool largest = true;  ///< The largest k, largest first; else the smallest, smallest first.
};

struct Sorted {
  Tensor values;
  Tensor indices;
};

/// The indices that put an axis in order: x[..., y, ...] ascends.
SOFTTAPE_API Tensor argsort(TensorArg x, int axis = -1, SortOptions options = {});
/// An axis in order, and where each number came from. Vjp: each gradient goes back there.
SOFTTAPE_API Sorted sort(TensorArg x, int axis = -1, SortOptions options = {});
/// The k first of the sorted axis, cheaper than sorting all of it.
/// Throws: ValueError unless 0 <= k <= size of the axis.
SOFTTAPE_API Sorted topk(TensorArg x, std::int64_t k, int axis = -1, TopkOptions options = {});

}  // namespace softtape
