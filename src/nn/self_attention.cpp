// SelfAttention: three projections and attention between them.
#include "softtape/nn/self_attention.hpp"

#include <fmt/format.h>

#include <cmath>

#include "nn/sizes.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/matmul.hpp"

namespace softtape {

SelfAttention::SelfAttention(std::int64_t d, std::int64_t dk, std::int64_t dv,
                             const SelfAttentionOptions& options, Rng& rng)
    : AttentionLayer("SelfAttention", options, 0, rng) {
  detail::check_size("SelfAttention", "d", d);
  detail::check_size("SelfAttention", "dk", dk);
  detail::check_size("SelfAttention", "dv", dv);
  if (options.positions == RelativePositions::rope && dk % 2 != 0) {
    throw ShapeError(fmt::format("[SelfAttention] rope turns pairs: dk must be even, got {}", dk));
  }
  const double std = 1 / std::sqrt(static_cast<double>(d));
  wq = normal(rng, 0, std, {d, dk});
  wk = normal(rng, 0, std, {d, dk});
  wv = normal(rng, 0, std, {d, dv});
  register_parameter("wq", wq);
  register_parameter("wk", wk);
  register_parameter("wv", wv);
}

Attention SelfAttention::run(const Tensor& x, const Mask& mask, bool need_weights) const {
  detail::check_width("SelfAttention", x, wq.dim(0));
  return hooked_attention(
      attend_projected(matmul(x, wq), matmul(x, wk), matmul(x, wv), mask, need_weights));
}

Tensor SelfAttention::operator()(TensorArg x) const { return run(x, {}, false).output; }
Tensor SelfAttention::operator()(TensorArg x, const Mask& mask) const {
  return run(x, mask, false).output;
}
Attention SelfAttention::attend(TensorArg x) const { return run(x, {}, true); }
Attention SelfAttention::attend(TensorArg x, const Mask& mask) const { return run(x, mask, true); }

}  // namespace softtape
