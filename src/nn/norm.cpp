// Norm layers: parameters around the ops of ops/normalize.hpp.
#include "softtape/nn/norm.hpp"

#include "nn/sizes.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

LayerNorm::LayerNorm(std::int64_t d, LayerNormOptions options) : options_(options) {
  detail::check_size("LayerNorm", "d", d);
  layer_norm(zeros({1}), {}, {}, options);  // refuses an eps that no call would take
  weight = ones({d});
  bias = zeros({d});
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor LayerNorm::operator()(TensorArg x) const {
  detail::check_width("LayerNorm", x, weight.dim(0));
  return hooked(layer_norm(x, weight, bias, options_));
}

RMSNorm::RMSNorm(std::int64_t d, RmsNormOptions options) : options_(options) {
  detail::check_size("RMSNorm", "d", d);
  rms_norm(zeros({1}), {}, options);
  weight = ones({d});
  register_parameter("weight", weight);
}

Tensor RMSNorm::operator()(TensorArg x) const {
  detail::check_width("RMSNorm", x, weight.dim(0));
  return hooked(rms_norm(x, weight, options_));
}

}  // namespace softtape
