// MultiHeadAttention: self and cross attention with several heads and an output projection.
#pragma once

#include "softtape/nn/attention_layer.hpp"
#include "softtape/nn/linear.hpp"

namespace softtape {

struct MultiHeadAttentionOptions {
  Scale scale = Scale::inv_sqrt_dk();  ///< this and the next seven: as in SelfAttentionOptions
  Mask mask = {};
  Tensor bias = {};
  double dropout = 0;
  RelativePositions positions = RelativePositions::none;
  double rope_base = 10000;
  bool qk_norm = false;
  double soft_cap = 0;
  bool projection_bias = true;    ///< biases of the four projections; they begin as 0
  std::int64_t dk = 0;            ///< width of a head's queries and keys; 0: d / heads
  std::int64_t dv = 0;            ///< width of a head's values; 0: d / heads
  std::int64_t memory_width = 0;  ///< width of what keys and values are made of; 0: d
};

/// out(concat_h softmax(scale q_h k_h^T, mask) v_h) with q = query(x), k = key(memory),
/// v = value(memory); self attention when no memory is given.
/// Shapes: x (..., n, d), memory (..., m, memory_width), output (..., n, d); weights and scores
/// (..., heads, n, m), so a mask with leading axes needs one for the heads.
/// Projections begin as in PyTorch: Xavier uniform over the three stacked, `out` as a Linear.
/// Throws: ValueError for sizes or heads below 1, d that does not split into the heads, or options
/// out of range, ShapeError for rope with an odd dk; a call ShapeError, DtypeError.
/// Source: Vaswani et al. 2017, section 3.2.2.
class SOFTTAPE_API MultiHeadAttention final : public AttentionLayer {
 public:
  MultiHeadAttention(std::int64_t d, std::int64_t heads, Rng& rng)
      : MultiHeadAttention(d, heads, {}, rng) {}
  MultiHeadAttention(std::int64_t d, std::int64_t heads, const MultiHeadAttentionOptions& options,
                     Rng& rng);

  Tensor operator()(TensorArg x) const override;
  Tensor operator()(TensorArg x, const Mask& mask) const;
  Tensor operator()(TensorArg x, TensorArg memory, const Mask& mask = {}) const;
  /// `output` is after the projection.
  Attention attend(TensorArg x) const;
  Attention attend(TensorArg x, const Mask& mask) const;
  Attention attend(TensorArg x, TensorArg memory, const Mask& mask = {}) const;

  Linear query;
  Linear key;
  Linear value;
  Linear out;

 private:
  struct Widths {
    std::int64_t d, memory, dk, dv;  // dk and dv of all heads together
  };
  MultiHeadAttention(Widths widths, std::int64_t heads, const MultiHeadAttentionOptions& options,
                     Rng& rng);
  static Widths widths(std::int64_t d, std::int64_t heads,
                       const MultiHeadAttentionOptions& options);
  Attention run(const Tensor& x, const Tensor& memory, const Mask& mask, bool need_weights) const;
};

}  // namespace softtape
