// Linear attention: a feature map in place of exp, so that the sum over keys can be taken first.
#pragma once

#include "softtape/attention/attention.hpp"

namespace softtape {

struct LinearAttentionOptions {
  /// Query i sees keys j <= i; needs n = m.
  bool causal = false;
  /// Computes the quadratic form instead, time and memory n m: `raw_scores` are phi(q) phi(k)^T,
  /// `scores` the same with hidden keys at 0, `weights` their share in each row. Without it they
  /// stay undefined. There is no softmax, so `logsumexp` is undefined always.
  bool need_weights = false;
};

/// The feature map elu(x) + 1: x + 1 above 0, e^x up to it; without cancellation in the tail.
SOFTTAPE_API Tensor elu_plus_one(TensorArg x);

/// o_i = phi(q_i) . (sum_j phi(k_j) v_j^T) / phi(q_i) . sum_j phi(k_j), phi(x) = elu(x) + 1.
/// Shapes: q (..., n, dk), k (..., m, dk), v (..., m, dv), rank 5 or less; leading axes broadcast.
/// Time and memory linear in n and m, causal too: blocks of 64 tokens, a prefix sum between them.
/// Edges: m = 0, or a query whose features all underflow to 0, gives zero output and gradient.
/// Gradients from the future are exactly 0. Infinities times a hidden 0 stay IEEE.
/// Throws: ShapeError, DtypeError naming the argument; n != m when causal, dk = 0.
/// Source: Katharopoulos et al., "Transformers are RNNs" (2020).
SOFTTAPE_API Attention linear_attention(TensorArg q, TensorArg k, TensorArg v,
                                        const LinearAttentionOptions& options = {});

}  // namespace softtape
