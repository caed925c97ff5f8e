// AttentionLayer: what the attention layers share, apart from how they project.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "softtape/attention/attention.hpp"
#include "softtape/nn/module.hpp"

namespace softtape {

/// Positions that enter attention itself: rope turns queries and keys, alibi biases scores.
enum class RelativePositions { none, rope, alibi };

struct SelfAttentionOptions {
  /// A learned scale becomes the parameter "scale".
  Scale scale = Scale::inv_sqrt_dk();
  /// Combined with the mask of each call.
  Mask mask = {};
  /// Added to scaled scores: the parameter "bias" when it requires a gradient, else a buffer.
  Tensor bias = {};
  /// Of the weights, while training.
  double dropout = 0;
  RelativePositions positions = RelativePositions::none;
  double rope_base = 10000;
  bool qk_norm = false;  ///< as in AttentionOptions
  double soft_cap = 0;   ///< as in AttentionOptions
};

/// Sees what a layer attended, weights and scores included.
using AttentionHook = std::function<void(const Module& layer, const Attention& attended)>;

/// Base of attention layers. operator() returns the output, without weights on the fused path
/// unless a hook wants them; `attend`, which each layer adds, returns the whole result.
class SOFTTAPE_API AttentionLayer : public Layer {
 public:
  /// Runs after every call. While there is one, weights and scores are kept in operator() too.
  /// Throws: ValueError for an empty hook.
  int register_attention_hook(AttentionHook hook);
  void remove_attention_hook(int number);

 protected:
  /// `heads` as in AttentionOptions. Throws: ValueError for options out of range.
  AttentionLayer(const char* name, const SelfAttentionOptions& options, std::int64_t heads,
                 Rng& rng);
  /// Attention of projected queries, keys and values, with all that the options ask for.
  Attention attend_projected(Tensor q, Tensor k, const Tensor& v, const Mask& mask,
                             bool need_weights) const;
  bool has_attention_hooks() const { return !attention_hooks_.empty(); }
  /// The output through forward and backward hooks, then the whole through attention hooks.
  Attention hooked_attention(Attention attended) const;

 private:
  SelfAttentionOptions options_;
  std::int64_t heads_;
  Tensor scale_;  // of a learned scale
  mutable Rng stream_;
  std::vector<std::pair<int, AttentionHook>> attention_hooks_;
  int next_attention_hook_ = 0;
};

}  // namespace softtape
