// Mlp: two linear layers around an activation.
#include "softtape/nn/mlp.hpp"

#include "softtape/ops/elementwise.hpp"

namespace softtape {

Mlp::Mlp(std::int64_t d, std::int64_t width, const MlpOptions& options, Rng& rng)
    : up(d, width, {.bias = options.bias}, rng),
      down(width, d, {.bias = options.bias}, rng),
      activation_(options.activation ? options.activation : [](TensorArg x) { return gelu(x); }),
      dropout_(options.dropout, rng) {
  register_module("up", up);
  register_module("down", down);
  register_module("dropout", dropout_);
}

Tensor Mlp::operator()(TensorArg x) const { return hooked(down(dropout_(activation_(up(x))))); }

}  // namespace softtape
