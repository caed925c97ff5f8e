// Normalisation layers: the ops of ops/normalize.hpp with parameters of their own.
#pragma once

#include "softtape/nn/module.hpp"
#include "softtape/ops/normalize.hpp"

namespace softtape {

/// y = (x - mean) / sqrt(var + eps) weight + bias over the last axis; see layer_norm.
/// Shapes: x (..., d), weight and bias (d,), which begin as 1 and 0.
/// Throws: ValueError unless d >= 1 and eps is positive and finite; a call ShapeError, DtypeError.
class SOFTTAPE_API LayerNorm final : public Layer {
 public:
  explicit LayerNorm(std::int64_t d, LayerNormOptions options = {});

  Tensor operator()(TensorArg x) const override;

  Tensor weight;
  Tensor bias;

 private:
  LayerNormOptions options_;
};

/// y = x / sqrt(mean(x^2) + eps) weight over the last axis; see rms_norm.
/// Shapes: x (..., d), weight (d,), which begins as 1. Throws: as LayerNorm.
class SOFTTAPE_API RMSNorm final : public Layer {
 public:
  explicit RMSNorm(std::int64_t d, RmsNormOptions options = {});

  Tensor operator()(TensorArg x) const override;

  Tensor weight;

 private:
  RmsNormOptions options_;
};

}  // namespace softtape
