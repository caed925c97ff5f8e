// Losses. Predictions and targets never broadcast: shapes that differ throw.
//
// Values are in nats, per element or per row, and reduced as asked. The mean over nothing throws
// ValueError, the sum is 0. Each loss reads its inputs again for the gradient and keeps nothing
// else.
//
// Throws (all): ShapeError for shapes that do not fit, DtypeError for dtypes that do not,
// GraphError for undefined tensors.
#pragma once

#include <cstdint>
#include <optional>

#include "softtape/graph/arguments.hpp"

namespace softtape {

/// How the losses of elements or rows become one: their mean, their sum, or not at all.
enum class Reduction { mean, sum, none };

struct LossOptions {
  Reduction reduction = Reduction::mean;
};

/// (prediction - target)^2. Vjp: 2 gy (prediction - target), and its negative.
SOFTTAPE_API Tensor mse_loss(TensorArg prediction, TensorArg target, LossOptions options = {});

struct NllOptions {
  /// Rows with this target count for nothing: loss 0, gradient exactly 0. Unset: no such target.
  std::optional<std::int64_t> ignore_index = {};
  /// One constant weight w_c >= 0 per class; undefined: 1.
  Tensor class_weights = {};
  /// mean: divided by the sum of the targets' weights, as in PyTorch; 0 when that is 0.
  Reduction reduction = Reduction::mean;
};

/// -w_t log_probs[t] of each row. Shapes: log_probs (..., C), targets (...) int64.
/// Vjp: -gy w_t at the target. Throws: ValueError for a target outside [0, C) that is not ignored,
/// a class weight that is negative or not finite.
SOFTTAPE_API Tensor nll_loss(TensorArg log_probs, TensorArg targets,
                             const NllOptions& options = {});

struct CrossEntropyOptions {
  std::optional<std::int64_t> ignore_index = {};  ///< as in NllOptions
  /// e: the target distribution is (1 - e) onehot(t) + e / C over all classes, targets included.
  double label_smoothing = 0;
  Tensor class_weights = {};              ///< as in NllOptions; also weigh the smoothed part
  Reduction reduction = Reduction::mean;  ///< as in NllOptions
};

/// Cross entropy of logits z against class indices, classes on the last axis:
/// w_t (ln sum_c e^z_c - z_t) of each row. Shapes: logits (..., C), targets (...) int64.
/// Vjp: gy w_t (softmax(z) - onehot(t)); where the target is nearly certain its entry is minus the
/// sum of the others, so it does not cancel.
/// Edges: a target at -Inf, or a row of -Inf, costs +Inf with a finite gradient; a +Inf or NaN
/// logit makes its row NaN. Throws: as nll_loss; ValueError unless 0 <= label_smoothing <= 1.
SOFTTAPE_API Tensor cross_entropy(TensorArg logits, TensorArg targets,
                                  const CrossEntropyOptions& options = {});

/// How many targets count: those that are not ignored. Throws: DtypeError unless int64.
SOFTTAPE_API std::int64_t cross_entropy_count(const Tensor& targets,
                                              std::optional<std::int64_t> ignore_index = {});

struct BceOptions {
  double pos_weight = 1;  ///< Weight of the positive part; positive and finite.
  Reduction reduction = Reduction::mean;
};

/// w t softplus(-z) + (1 - t) softplus(z), w = pos_weight: the binary cross entropy of sigmoid(z).
/// Shapes: equal. Targets t in [0, 1], not checked.
/// Vjp: gy ((1 - t) sigmoid(z) - w t sigmoid(-z)). Edges: finite wherever the loss has a limit.
/// Throws: ValueError for a pos_weight that is not positive and finite.
SOFTTAPE_API Tensor binary_cross_entropy_with_logits(TensorArg logits, TensorArg targets,
                                                     BceOptions options = {});

}  // namespace softtape
