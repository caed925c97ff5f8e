// TransformerBlock: the two orders of norm and residual path.
#include "softtape/nn/transformer_block.hpp"

#include "softtape/nn/norm.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape {

namespace {

std::unique_ptr<Layer> make_norm(std::int64_t d, const TransformerBlockOptions& o) {
  if (o.norm == NormKind::rms) return std::make_unique<RMSNorm>(d, RmsNormOptions{.eps = o.eps});
  return std::make_unique<LayerNorm>(d, LayerNormOptions{.eps = o.eps});
}

}  // namespace

TransformerBlock::TransformerBlock(std::int64_t d, std::int64_t heads,
                                   const TransformerBlockOptions& o, Rng& rng)
    : attention(d, heads, o.attention, rng),
      mlp(d, o.mlp_width == 0 ? 4 * d : o.mlp_width,
          {.activation = o.activation, .dropout = o.dropout}, rng),
      placement_(o.placement),
      norm1_(make_norm(d, o)),
      norm2_(make_norm(d, o)),
      dropout_(o.dropout, rng) {
  register_module("norm1", *norm1_);
  register_module("attention", attention);
  register_module("norm2", *norm2_);
  register_module("mlp", mlp);
  register_module("dropout", dropout_);
}

Tensor TransformerBlock::operator()(TensorArg x) const { return (*this)(x, Mask()); }

Tensor TransformerBlock::operator()(TensorArg x, const Mask& mask) const {
  const Layer& norm1 = *norm1_;
  const Layer& norm2 = *norm2_;
  if (placement_ == NormPlacement::pre) {
    const Tensor h = add(x, dropout_(attention(norm1(x), mask)));
    return hooked(add(h, dropout_(mlp(norm2(h)))));
  }
  const Tensor h = norm1(add(x, dropout_(attention(x, mask))));
  return hooked(norm2(add(h, dropout_(mlp(h)))));
}

}  // namespace softtape
