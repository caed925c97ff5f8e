// Dropout: random zeros against overfitting.
#pragma once

#include "softtape/base/random.hpp"
#include "softtape/graph/arguments.hpp"

namespace softtape {

struct DropoutOptions {
  bool training = true;  ///< False makes dropout the identity.
};

/// Inverted dropout: each element is 0 with probability p, and x / (1 - p) otherwise. An element is
/// kept where its draw of `rng.random(x.shape)`, NumPy's float64 stream whatever the dtype of x, is
/// at least p. Vjp: gx = gy / (1 - p) where kept, else exactly 0.
/// Edges: p = 1 gives zeros; p = 0, or not training, gives x itself and draws nothing; a dropped
/// element is exactly 0 even where x is infinite or NaN.
/// Throws: ValueError unless 0 <= p <= 1, DtypeError unless x is float.
SOFTTAPE_API Tensor dropout(TensorArg x, double p, Rng& rng, DropoutOptions options = {});

}  // namespace softtape
