// Dropout layer: the op with a stream of its own.
#include "softtape/nn/dropout.hpp"

#include "nn/sizes.hpp"
#include "softtape/ops/dropout.hpp"

namespace softtape {

Dropout::Dropout(double p, Rng& rng)
    : p_(detail::check_probability("Dropout", p)), stream_(rng.spawn(1).front()) {
  if (p > 0) register_stream("stream", stream_);  // without it there is nothing to save
}

Tensor Dropout::operator()(TensorArg x) const {
  return hooked(dropout(x, p_, stream_, {.training = training()}));
}

}  // namespace softtape
