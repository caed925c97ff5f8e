// TransformerBlock: attention and an Mlp, each with a residual path and a norm.
#pragma once

#include <memory>

#include "softtape/nn/dropout.hpp"
#include "softtape/nn/mlp.hpp"
#include "softtape/nn/multi_head_attention.hpp"

namespace softtape {

/// Where the norms stand: before each part, outside the residual path, or after each sum.
enum class NormPlacement { pre, post };
enum class NormKind { layer, rms };

struct TransformerBlockOptions {
  MultiHeadAttentionOptions attention = {};
  std::int64_t mlp_width = 0;  ///< hidden width; 0: 4 d
  Activation activation = {};  ///< gelu when empty
  double dropout = 0;          ///< of both parts' results and of the hidden layer
  NormPlacement placement = NormPlacement::pre;
  NormKind norm = NormKind::layer;
  double eps = 1e-5;  ///< of the norms
};

/// pre:  h = x + attention(norm1(x)), y = h + mlp(norm2(h));
/// post: h = norm1(x + attention(x)), y = norm2(h + mlp(h)).
/// Shapes: x and y (..., n, d). Throws: as the parts do.
/// Source: Vaswani et al. 2017 (post); Xiong et al. 2020 (pre).
class SOFTTAPE_API TransformerBlock final : public Layer {
 public:
  TransformerBlock(std::int64_t d, std::int64_t heads, Rng& rng)
      : TransformerBlock(d, heads, {}, rng) {}
  TransformerBlock(std::int64_t d, std::int64_t heads, const TransformerBlockOptions& options,
                   Rng& rng);

  Tensor operator()(TensorArg x) const override;
  Tensor operator()(TensorArg x, const Mask& mask) const;

  MultiHeadAttention attention;
  Mlp mlp;

 private:
  NormPlacement placement_;
  std::unique_ptr<Layer> norm1_;
  std::unique_ptr<Layer> norm2_;
  Dropout dropout_;
};

}  // namespace softtape
