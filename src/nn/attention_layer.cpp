// What the attention layers share: options, positions, streams, hooks.
#include "softtape/nn/attention_layer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "nn/sizes.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/rope.hpp"

namespace softtape {

AttentionLayer::AttentionLayer(const char* name, const SelfAttentionOptions& options,
                               std::int64_t heads, Rng& rng)
    : options_(options), heads_(heads), scale_(options.scale.tensor()), stream_(rng) {
  detail::check_probability(name, options.dropout);
  if (!std::isfinite(options.soft_cap) || options.soft_cap < 0) {
    throw ValueError(fmt::format("[{}] soft_cap must be finite and not negative: got {}", name,
                                 options.soft_cap));
  }
  if (!std::isfinite(options.rope_base) || options.rope_base <= 0) {
    throw ValueError(
        fmt::format("[{}] rope_base must be positive and finite: got {}", name, options.rope_base));
  }
  stream_ = rng.spawn(1).front();
  if (scale_.defined()) register_parameter("scale", scale_);
  if (options_.bias.defined()) {
    if (options_.bias.requires_grad()) {
      register_parameter("bias", options_.bias);
    } else {
      register_buffer("bias", options_.bias);
    }
  }
  if (options.dropout > 0) register_stream("stream", stream_);
}

Attention AttentionLayer::attend_projected(Tensor q, Tensor k, const Tensor& v, const Mask& mask,
                                           bool need_weights) const {
  AttentionOptions o{.mask = options_.mask & mask,
                     .bias = options_.bias,
                     .scale = options_.scale,
                     .dropout = training() ? options_.dropout : 0,
                     .rng = &stream_,
                     .qk_norm = options_.qk_norm,
                     .soft_cap = options_.soft_cap,
                     .heads = heads_,
                     .need_weights = need_weights || has_attention_hooks()};
  if (options_.positions == RelativePositions::rope) {
    const RopeOptions turn{.heads = heads_ ? heads_ : 1, .base = options_.rope_base};
    q = rope(q, turn);
    k = rope(k, turn);
  } else if (options_.positions == RelativePositions::alibi && q.rank() >= 2 && k.rank() >= 2) {
    const Tensor slopes = softtape::to(alibi_bias(heads_, q.dim(-2), k.dim(-2)), q.dtype());
    o.bias = o.bias.defined() ? add(o.bias, slopes) : slopes;
  }
  return scaled_dot_product_attention(q, k, v, o);
}

Attention AttentionLayer::hooked_attention(Attention attended) const {
  attended.output = hooked(std::move(attended.output));
  for (const auto& [number, hook] : std::vector(attention_hooks_)) hook(*this, attended);
  return attended;
}

int AttentionLayer::register_attention_hook(AttentionHook hook) {
  if (!hook) throw ValueError("[register_attention_hook] the hook is empty");
  attention_hooks_.emplace_back(next_attention_hook_, std::move(hook));
  return next_attention_hook_++;
}

void AttentionLayer::remove_attention_hook(int number) {
  std::erase_if(attention_hooks_, [number](const auto& hook) { return hook.first == number; });
}

}  // namespace softtape
