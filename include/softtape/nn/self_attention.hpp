// SelfAttention: the lesson's single head.
#pragma once

#include "softtape/nn/attention_layer.hpp"

namespace softtape {

/// softmax(scale (x wq) (x wk)^T, mask) (x wv): no biases, no output projection.
/// Shapes: x (..., n, d), wq and wk (d, dk), wv (d, dv), which begin as N(0, 1/d); output
/// (..., n, dv). Throws: ValueError for sizes below 1 or options out of range, ShapeError for rope
/// with an odd dk; a call ShapeError, DtypeError.
class SOFTTAPE_API SelfAttention final : public AttentionLayer {
 public:
  SelfAttention(std::int64_t d, std::int64_t dk, std::int64_t dv, Rng& rng)
      : SelfAttention(d, dk, dv, {}, rng) {}
  SelfAttention(std::int64_t d, std::int64_t dk, std::int64_t dv,
                const SelfAttentionOptions& options, Rng& rng);

  Tensor operator()(TensorArg x) const override;
  Tensor operator()(TensorArg x, const Mask& mask) const;
  /// Output, weights, scores, raw scores and logsumexp.
  Attention attend(TensorArg x) const;
  Attention attend(TensorArg x, const Mask& mask) const;

  Tensor wq;
  Tensor wk;
  Tensor wv;

 private:
  Attention run(const Tensor& x, const Mask& mask, bool need_weights) const;
};

}  // namespace softtape
