// Softmax and what belongs to it, over any axis, with an optional mask.
//
// Masked entries are selected away: weight exactly 0, gradient exactly 0. The row maximum that is
// subtracted first is a constant shift, so no gradient goes through it. Equal scores get bit-equal
// weights wherever they stand in a row.
#pragma once

#include "softtape/graph/arguments.hpp"
#include "softtape/ops/mask.hpp"

namespace softtape {

struct SoftmaxOptions {
  int axis = -1;
  /// Over the last two axes, whatever `axis` is not: only with the last axis.
  Mask mask = {};
};

/// p_i = exp(x_i) / sum_j exp(x_j) along one axis.
/// Vjp: gx = p (gy - sum_j p_j gy_j), see softmax_vjp; keeps p alone.
/// Edges: a row of -Inf, or fully masked, gives zeros and passes no gradient; a +Inf makes its row
/// NaN; a NaN poisons its own row alone. In float32 weights below 1.6e-38 are 0.
/// Throws: ShapeError for a bad axis, a mask that does not fit, or a mask on another axis than the
/// last; DtypeError unless float.
SOFTTAPE_API Tensor softmax(TensorArg x, const SoftmaxOptions& options = {});
SOFTTAPE_API Tensor softmax(TensorArg x, int axis);

/// The vector-Jacobian product of softmax along the last axis, an op of its own:
/// gx = p (g' - sum_j p_j g'_j) with g' = g - g[argmax p]. J 1 = 0, so the shift changes nothing,
/// but the winner's entry no longer cancels: softmax(20, 0) with g = (1, 2) gives
/// (-2.06e-9, +2.06e-9) where the usual form gives (0, 2.06e-9) in float32.
/// Entries with p = 0 give exactly 0 whatever g holds there.
SOFTTAPE_API Tensor softmax_vjp(TensorArg p, TensorArg g);

/// log softmax(x) = x - logsumexp(x). Vjp: gx = gy - exp(y) sum_j gy_j.
/// Edges: masked entries are -Inf and pass no gradient; a fully masked row is all -Inf.
SOFTTAPE_API Tensor log_softmax(TensorArg x, const SoftmaxOptions& options = {});
SOFTTAPE_API Tensor log_softmax(TensorArg x, int axis);

}  // namespace softtape
