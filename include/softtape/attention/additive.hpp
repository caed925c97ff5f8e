// Additive attention: the alignment model that came before the dot product.
#pragma once

#include "softtape/attention/attention.hpp"

namespace softtape {

/// The alignment model, a network of one hidden layer of width h.
struct AdditiveWeights {
  Tensor wq;     ///< (dq, h): queries to the hidden layer
  Tensor uk;     ///< (dk, h): keys to the hidden layer
  Tensor score;  ///< (h,): hidden layer to one score
};

struct AdditiveOptions {
  Mask mask = {};
  Tensor bias = {};  ///< As in AttentionOptions.
  double dropout = 0;
  Rng* rng = nullptr;
  bool need_weights = true;  ///< Without it weights and scores stay undefined.
};

/// softmax(score . tanh(q wq + k uk), mask) v; raw_scores are those before bias and mask.
/// Shapes: q (..., n, dq), k (..., m, dk), v (..., m, dv), rank 5 or less; leading axes broadcast.
/// dq and dk may differ. Memory n m h for the hidden layer.
/// Edges: as for scaled_dot_product_attention. Scores are limited by sum |score_i| whatever the
/// widths, which is why no scale is needed; the tanh saturates instead.
/// Throws: ShapeError, DtypeError, ValueError naming the argument.
/// Source: Bahdanau, Cho and Bengio, "Neural Machine Translation by Jointly Learning to Align and
/// Translate" (2015), appendix A.1.2.
SOFTTAPE_API Attention additive_attention(TensorArg q, TensorArg k, TensorArg v,
                                          const AdditiveWeights& weights,
                                          const AdditiveOptions& options = {});

}  // namespace softtape
