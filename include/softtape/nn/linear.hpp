// Linear layer.
#pragma once

#include "softtape/base/random.hpp"
#include "softtape/nn/module.hpp"

namespace softtape {

struct LinearOptions {
  bool bias = true;
};

/// y = x weight^T + bias. Shapes: x (..., in), weight (out, in), bias (out,), y (..., out).
/// Both begin as U[-b, b), b = 1 / sqrt(in), as in PyTorch, so weights exchange.
/// Throws: ValueError for sizes below 1; a call ShapeError, DtypeError.
class SOFTTAPE_API Linear final : public Layer {
 public:
  Linear(std::int64_t in, std::int64_t out, Rng& rng) : Linear(in, out, {}, rng) {}
  Linear(std::int64_t in, std::int64_t out, LinearOptions options, Rng& rng);

  Tensor operator()(TensorArg x) const override;

  Tensor weight;
  Tensor bias;  ///< undefined without one
};

}  // namespace softtape
