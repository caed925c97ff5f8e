// Linear: a product with the transposed weight, and a bias.
#include "softtape/nn/linear.hpp"

#include "nn/sizes.hpp"
#include "softtape/nn/init.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"

namespace softtape {

Linear::Linear(std::int64_t in, std::int64_t out, LinearOptions options, Rng& rng) {
  detail::check_size("Linear", "in", in);
  detail::check_size("Linear", "out", out);
  weight = empty({out, in});
  init::linear_(weight, rng, in);
  register_parameter("weight", weight);
  if (!options.bias) return;
  bias = empty({out});
  init::linear_(bias, rng, in);
  register_parameter("bias", bias);
}

Tensor Linear::operator()(TensorArg x) const {
  detail::check_width("Linear", x, weight.dim(1));
  Tensor y = matmul(x, weight, {.transpose_b = true});
  if (bias.defined()) y = add(y, bias);
  return hooked(std::move(y));
}

}  // namespace softtape
