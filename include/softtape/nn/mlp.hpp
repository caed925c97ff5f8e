// Mlp: the feed-forward part of a Transformer block.
#pragma once

#include "softtape/nn/dropout.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/nn/sequential.hpp"

namespace softtape {

struct MlpOptions {
  Activation activation = {};  ///< gelu when empty
  bool bias = true;
  double dropout = 0;  ///< after the activation
};

/// y = down(dropout(activation(up(x)))). Shapes: x (..., d), hidden (..., width), y (..., d).
/// Throws: ValueError for sizes below 1 or a probability outside [0, 1].
class SOFTTAPE_API Mlp final : public Layer {
 public:
  Mlp(std::int64_t d, std::int64_t width, Rng& rng) : Mlp(d, width, {}, rng) {}
  Mlp(std::int64_t d, std::int64_t width, const MlpOptions& options, Rng& rng);

  Tensor operator()(TensorArg x) const override;

  Linear up;
  Linear down;

 private:
  Activation activation_;
  Dropout dropout_;
};

}  // namespace softtape
