// Normalisation of rows: layer norm and RMS norm, each one fused op.
//
// Weight and bias may be undefined tensors: 1 and 0. Statistics are recomputed for the gradient, so
// nothing but the inputs is kept.
//
// Throws (all): ShapeError unless x has rank 1 or more and a last axis that is not empty, and
// weight and bias have its size; DtypeError unless all are floats of one type; ValueError unless
// eps is positive and finite in that type.
#pragma once

#include "softtape/graph/arguments.hpp"

namespace softtape {

struct LayerNormOptions {
  double eps = 1e-5;
};
/// y = (x - mean) / sqrt(var + eps) weight + bias over the last axis; var is biased (divided by d).
/// Shapes: x (..., d), weight and bias (d,).
/// Vjp: gx = r (h - mean(h) - n mean(h n)), h = gy weight, n = (x - mean) r, r = 1 / sqrt(var +
/// eps). Edges: a constant row gives exactly bias. Rows are shifted by their first entry, so large
/// offsets cost no digits. Source: Ba, Kiros and Hinton, "Layer Normalization" (2016).
SOFTTAPE_API Tensor layer_norm(TensorArg x, const Tensor& weight = {}, const Tensor& bias = {},
                               LayerNormOptions options = {});

struct RmsNormOptions {
  double eps = 1e-6;
};
/// y = x / sqrt(mean(x^2) + eps) weight over the last axis. Shapes: x (..., d), weight (d,).
/// Vjp: gx = r (h - n mean(h n)) with n = x r.
/// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
SOFTTAPE_API Tensor rms_norm(TensorArg x, const Tensor& weight = {}, RmsNormOptions options = {});

}  // namespace softtape
