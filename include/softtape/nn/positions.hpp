// Where a token stands: tables added to embeddings (sinusoidal, learned), and ALiBi's bias on
// scores. Rotary positions are the op rope; attention layers apply it and ALiBi on request.
#pragma once

#include "softtape/base/random.hpp"
#include "softtape/nn/module.hpp"

namespace softtape {

/// Row t holds sin(t w_i), cos(t w_i) side by side, w_i = base^(-2i / d); an odd width leaves out
/// the last cosine. Shapes: (n, d), default_dtype().
/// Throws: ValueError unless n >= 0, d >= 1 and base is positive and finite.
/// Source: Vaswani et al. 2017, section 3.5.
SOFTTAPE_API Tensor sinusoidal_positions(std::int64_t n, std::int64_t d, double base = 10000);

/// ALiBi's bias on scaled scores: -slope_h |i + m - n - j| for query i and key j, so that the last
/// query stands at the last key. Shapes: (n, m) for heads = 0, else (heads, n, m).
/// Throws: ValueError for negative sizes.
/// Source: Press, Smith and Lewis 2022.
SOFTTAPE_API Tensor alibi_bias(std::int64_t heads, std::int64_t n, std::int64_t m);
/// 2^(-8 h / heads) for h = 1 ... heads when heads is a power of two; else those of the power
/// below, then every other one of the power above. Throws: ValueError unless heads >= 1.
SOFTTAPE_API std::vector<double> alibi_slopes(std::int64_t heads);

/// y = x + sinusoidal_positions, for up to `context` tokens. Shapes: x (..., n, d).
/// Throws: ValueError for sizes below 1; a call ShapeError when n exceeds the context.
class SOFTTAPE_API SinusoidalPositions final : public Layer {
 public:
  SinusoidalPositions(std::int64_t context, std::int64_t d);
  Tensor operator()(TensorArg x) const override;

 private:
  Tensor table_;
};

struct LearnedPositionsOptions {
  double std = 0.02;  ///< of the normal numbers that the table begins with, as in GPT-2
};

/// y = x + weight[0 ... n-1]. Shapes: x (..., n, d), weight (context, d). Throws: as above.
class SOFTTAPE_API LearnedPositions final : public Layer {
 public:
  LearnedPositions(std::int64_t context, std::int64_t d, Rng& rng)
      : LearnedPositions(context, d, {}, rng) {}
  LearnedPositions(std::int64_t context, std::int64_t d, LearnedPositionsOptions options, Rng& rng);
  Tensor operator()(TensorArg x) const override;

  Tensor weight;
};

}  // namespace softtape
