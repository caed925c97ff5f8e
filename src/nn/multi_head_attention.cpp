// MultiHeadAttention: heads as column blocks of the projections, never split by copying.
#include "softtape/nn/multi_head_attention.hpp"

#include <fmt/format.h>

#include <cmath>

#include "nn/sizes.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/init.hpp"

namespace softtape {

namespace {

SelfAttentionOptions inner_options(const MultiHeadAttentionOptions& o) {
  return {.scale = o.scale,
          .mask = o.mask,
          .bias = o.bias,
          .dropout = o.dropout,
          .positions = o.positions,
          .rope_base = o.rope_base,
          .qk_norm = o.qk_norm,
          .soft_cap = o.soft_cap};
}

}  // namespace

MultiHeadAttention::Widths MultiHeadAttention::widths(std::int64_t d, std::int64_t heads,
                                                      const MultiHeadAttentionOptions& o) {
  constexpr const char* kName = "MultiHeadAttention";
  detail::check_size(kName, "d", d);
  detail::check_size(kName, "heads", heads);
  if ((o.dk == 0 || o.dv == 0) && d % heads != 0) {
    throw ValueError(
        fmt::format("[{}] heads must divide d unless dk and dv are given: d = {}, heads = {}",
                    kName, d, heads));
  }
  const std::int64_t dk = detail::check_size(kName, "dk", o.dk == 0 ? d / heads : o.dk);
  const std::int64_t dv = detail::check_size(kName, "dv", o.dv == 0 ? d / heads : o.dv);
  if (o.positions == RelativePositions::rope && dk % 2 != 0) {
    throw ShapeError(fmt::format("[{}] rope turns pairs: dk must be even, got {}", kName, dk));
  }
  const std::int64_t memory = o.memory_width == 0 ? d : o.memory_width;
  return {d, detail::check_size(kName, "memory_width", memory), heads * dk, heads * dv};
}

MultiHeadAttention::MultiHeadAttention(std::int64_t d, std::int64_t heads,
                                       const MultiHeadAttentionOptions& options, Rng& rng)
    : MultiHeadAttention(widths(d, heads, options), heads, options, rng) {}

MultiHeadAttention::MultiHeadAttention(Widths w, std::int64_t heads,
                                       const MultiHeadAttentionOptions& options, Rng& rng)
    : AttentionLayer("MultiHeadAttention", inner_options(options), heads, rng),
      query(w.d, w.dk, {.bias = options.projection_bias}, rng),
      key(w.memory, w.dk, {.bias = options.projection_bias}, rng),
      value(w.memory, w.dv, {.bias = options.projection_bias}, rng),
      out(w.dv, w.d, {.bias = options.projection_bias}, rng) {
  // PyTorch stacks the three into one weight, whose fans are d and all outputs together.
  for (Linear* projection : {&query, &key, &value}) {
    const auto fans = static_cast<double>(projection->weight.dim(1) + 2 * w.dk + w.dv);
    const double bound = std::sqrt(6 / fans);
    init::uniform_(projection->weight, rng, {.low = -bound, .high = bound});
  }
  if (options.projection_bias) {
    const NoGrad guard;
    for (Linear* projection : {&query, &key, &value, &out}) projection->bias.fill_(0);
  }
  register_module("query", query);
  register_module("key", key);
  register_module("value", value);
  register_module("out", out);
}

Attention MultiHeadAttention::run(const Tensor& x, const Tensor& memory, const Mask& mask,
                                  bool need_weights) const {
  detail::check_width("MultiHeadAttention", x, query.weight.dim(1));
  detail::check_width("MultiHeadAttention", memory, key.weight.dim(1));
  Attention attended = attend_projected(query(x), key(memory), value(memory), mask, need_weights);
  attended.output = out(attended.output);
  return hooked_attention(std::move(attended));
}

Tensor MultiHeadAttention::operator()(TensorArg x) const { return run(x, x, {}, false).output; }
Tensor MultiHeadAttention::operator()(TensorArg x, const Mask& mask) const {
  return run(x, x, mask, false).output;
}
Tensor MultiHeadAttention::operator()(TensorArg x, TensorArg memory, const Mask& mask) const {
  return run(x, memory, mask, false).output;
}
Attention MultiHeadAttention::attend(TensorArg x) const { return run(x, x, {}, true); }
Attention MultiHeadAttention::attend(TensorArg x, const Mask& mask) const {
  return run(x, x, mask, true);
}
Attention MultiHeadAttention::attend(TensorArg x, TensorArg memory, const Mask& mask) const {
  return run(x, memory, mask, true);
}

}  // namespace softtape
