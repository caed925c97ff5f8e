// Scaled dot-product attention, composed and fused.
#pragma once

#include "softtape/attention/scale.hpp"
#include "softtape/base/random.hpp"
#include "softtape/graph/arguments.hpp"
#include "softtape/ops/mask.hpp"

namespace softtape {

struct AttentionOptions {
  /// Which keys a query may see; hidden keys have exactly zero weight and gradient.
  Mask mask = {};
  /// Added to the scaled scores, broadcast to (..., n, m); float, differentiable (ALiBi, learned
  /// bias). Never a mask.
  Tensor bias = {};
  Scale scale = Scale::inv_sqrt_dk();
  /// Probability of dropping a weight after softmax; inverted, rows are not renormalised.
  double dropout = 0;
  /// The stream dropout draws from; needed when dropout is not 0.
  Rng* rng = nullptr;
  /// Normalise each query and key to unit RMS first (Henry et al. 2020): scores no longer depend on
  /// the length of q and k.
  bool qk_norm = false;
  /// c > 0 limits scaled scores smoothly to (-c, c): c tanh(s / c). 0 leaves them alone.
  double soft_cap = 0;
  /// Heads as column blocks: q (..., n, H dk), k (..., m, H dk), v (..., m, H dv) with H heads give
  /// an output (..., n, H dv); weights and scores are (..., H, n, m). 0: the tensors are one head.
  std::int64_t heads = 0;
  /// Keep weights and scores (composed path). Without them the fused path runs in memory O(n + m)
  /// beyond inputs and outputs, and `weights`, `scores` and `raw_scores` stay undefined.
  bool need_weights = true;
};

/// What attention computes; each tensor can be differentiated through, hooked, and asked for.
struct Attention {
  Tensor output;   ///< (..., n, dv): weights v
  Tensor weights;  ///< (..., n, m): softmax(scores), after dropout when there is any
  Tensor scores;   ///< (..., n, m): after scale, soft cap, bias and mask; hidden entries are -Inf
  Tensor raw_scores;  ///< (..., n, m): q k^T
  Tensor
      logsumexp;  ///< (..., n): of each row of scores; -Inf where nothing is visible; no gradient
};

/// softmax(scale q k^T + bias, mask) v.
/// Shapes: q (..., n, dk), k (..., m, dk), v (..., m, dv); leading axes broadcast.
/// Vjp: with P the weights, gP = gO v^T, gS = P (gP - rowsum(P gP)), gq = scale gS k,
/// gk = scale gS^T q, gv = P^T gO. Cost 2 n m (dk + dv) forward, about 2.5 times that backward.
/// Edges: a row with nothing visible, and m = 0, give zero weights, output and gradient on both
/// paths. A hidden key has no effect whatever it holds. NaN in a hidden value row: 0 times NaN is
/// NaN on the composed path (IEEE), the fused path never reads it. A +Inf score makes its row NaN.
/// Future gradients of a causal mask are exactly 0.
/// Throws: ShapeError, DtypeError, ValueError naming the argument: inner sizes, m or leading axes
/// that differ, dk = 0, a mask or bias that does not fit, n != m under Mask::causal(), dropout
/// outside [0, 1] or without rng, a negative or non-finite soft cap.
/// Source: Vaswani et al. 2017, section 3.2.1; fused form: Dao et al. 2022, Milakov and Gimelshein
/// 2018.
SOFTTAPE_API Attention scaled_dot_product_attention(TensorArg q, TensorArg k, TensorArg v,
                                                    const AttentionOptions& options = {});

}  // namespace softtape
