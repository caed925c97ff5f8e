// The fused kernels of attention: tiled, online softmax forward, recomputed backward.
// The op around them is fused_op.cpp; the kernels know nothing of graphs.
// Forward leaves two numbers per row, `shift` and `sum`, from which backward repeats the weights.
#pragma once

#include "ops/mask_rows.hpp"

namespace softtape::detail {

/// Where one head's matrix lies: element (b, i, j) of sequence-and-head `b` is
/// data[offset(b) + i * row_stride + j], offset(b) = b / heads * batch_stride + b % heads *
/// head_stride. Broadcast leading axes are resolved before the kernel is called.
template <class T>
struct HeadsView {
  T* data;
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;
  T* matrix(std::int64_t b, std::int64_t heads) const {
    // An empty matrix may have no address to count from.
    return data ? data + b / heads * batch_stride + b % heads * head_stride : nullptr;
  }
};

/// Sizes and settings shared by both directions.
struct FusedProblem {
  std::int64_t batch;  // sequences
  std::int64_t heads;
  std::int64_t n, m, dk, dv;
  double scale;
  const MaskRows* mask;          // over (batch, heads, n, m); hidden keys are never computed with
  const void* bias = nullptr;    // of the element type, or none
  std::int64_t bias_strides[4];  // of batch, head, row and key; 0 where it broadcasts
};

/// o, and for every row of scores (batch * heads * n of them) what backward needs to repeat the
/// weights exp(score - shift) / sum: the largest visible score and the sum, 0 and 0 where nothing
/// is visible. Beside them logsumexp = shift + ln(sum), -Inf where nothing is visible; backward
/// cannot do with it alone, since beside a huge shift ln(sum) is lost.
///
/// A hidden pair of query and key contributes nothing to any result, whatever numbers it holds,
/// NaN included. A visible key whose weight is 0 by underflow stays IEEE: 0 times NaN is NaN.
template <class T>
void fused_forward(const FusedProblem& problem, HeadsView<const T> q, HeadsView<const T> k,
                   HeadsView<const T> v, HeadsView<T> o, T* shift, T* sum, T* logsumexp);

/// gq, gk, gv (written, not added to; any may have data == nullptr) from the forward's inputs,
/// outputs and go. Key and query tiles are walked in a fixed order whatever the threads.
/// `gbias`, when not null, receives the gradient of the full (batch, heads, n, m) scores.
///
/// Accuracy: with P the weights, gP = go v^T and D = go . o, gS = P (gP - D) has an absolute error
/// of order eps P |go| (|v| + |o|) per entry, so of a row near saturation the winner's entry, where
/// gP and D cancel, keeps an absolute and not a relative bound (composed softmax keeps both).
template <class T>
void fused_backward(const FusedProblem& problem, HeadsView<const T> q, HeadsView<const T> k,
                    HeadsView<const T> v, HeadsView<const T> o, const T* shift, const T* sum,
                    HeadsView<const T> go, HeadsView<T> gq, HeadsView<T> gk, HeadsView<T> gv,
                    T* gbias);

}  // namespace softtape::detail
