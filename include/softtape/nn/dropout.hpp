// Dropout layer.
#pragma once

#include "softtape/base/random.hpp"
#include "softtape/nn/module.hpp"

namespace softtape {

/// While training, each entry is 0 with probability p and x / (1 - p) otherwise; the identity in
/// eval(), and for p = 0. Draws from a stream of its own, spawned from `rng` (whose own draws do
/// not change) and saved with the module as "stream", so that a resumed run drops the same entries.
/// Throws: ValueError unless 0 <= p <= 1.
class SOFTTAPE_API Dropout final : public Layer {
 public:
  Dropout(double p, Rng& rng);

  Tensor operator()(TensorArg x) const override;

 private:
  double p_;
  mutable Rng stream_;
};

}  // namespace softtape
