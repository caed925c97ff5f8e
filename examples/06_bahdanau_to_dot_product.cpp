// 06: from Bahdanau's additive attention to the dot product. The same probes on both, for growing
// width: a learned tanh limits additive scores whatever the width; dot products spread as sqrt(dk),
// and softmax saturates unless they are scaled. Read next: 07, what each costs.
//
// Prints:
//
//     256 queries, 16 keys each; saturates beyond a spread of 2.35
//
//     attention         d    spread  largest p   entropy  median |J|   dead keys
//     additive          4     0.662     0.149     2.586       0.274       0.0 %
//     dot product       4     1.958     0.416     1.793        0.33       0.3 %
//     dot, scaled       4     0.979     0.231     2.391       0.294       0.0 %
//
//     additive         16     0.488     0.131     2.666       0.261       0.0 %
//     dot product      16     3.982     0.685     0.913       0.327       8.7 %
//     dot, scaled      16     0.996     0.244     2.364       0.304       0.0 %
//
//     additive         64     0.402     0.118     2.699       0.255       0.0 %
//     dot product      64     8.228     0.829     0.451       0.143      48.2 %
//     dot, scaled      64     1.028     0.238     2.364       0.302       0.0 %
//
//     additive        256     0.460     0.130     2.676       0.259       0.0 %
//     dot product     256    16.345     0.917     0.202      0.0086      78.7 %
//     dot, scaled     256     1.022     0.247     2.347       0.306       0.0 %
//
//     Spread is the standard deviation of a query's scores: sqrt(d) without the scale.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

constexpr std::int64_t kQueries = 256;  // each with keys of its own
constexpr std::int64_t kKeys = 16;

struct Sample {
  Tensor q, k, v, target;
};

// The spread of scores, and what the softmax lets through to them.
Starvation report(const char* name, std::int64_t d, const Attention& a, const Sample& sample) {
  const Starvation s = starvation(mse_loss(a.output, sample.target), a);
  fmt::print("{:<14} {:>4}  {:>8.3f}  {:>8.3f}  {:>8.3f}  {:>10.3g}  {:>8.1f} %\n", name, d,
             s.scores.row_std, s.max_weight.mean, s.entropy.mean, s.jacobian.median,
             100 * s.dead_keys);
  return s;
}

}  // namespace

int main() {
  const DefaultDtype dtype(DType::float64);
  fmt::print("{} queries, {} keys each; saturates beyond a spread of {:.2f}\n\n", kQueries, kKeys,
             saturation_boundary(kKeys));
  fmt::print("{:<14} {:>4}  {:>8}  {:>8}  {:>8}  {:>10}  {:>10}\n", "attention", "d", "spread",
             "largest p", "entropy", "median |J|", "dead keys");
  bool as_told = true;
  for (const std::int64_t d : {4, 16, 64, 256}) {
    Rng rng(0);
    const Sample sample{randn(rng, {kQueries, 1, d}).requires_grad_(),
                        randn(rng, {kQueries, kKeys, d}), randn(rng, {kQueries, kKeys, 8}),
                        randn(rng, {kQueries, 1, 8})};
    // N(0, 1/(2 d)): the hidden layer's inputs q Wq + k Uk have variance 1; its output N(0, 1/d).
    const double width = static_cast<double>(d);
    const AdditiveWeights alignment{normal(rng, 0, std::sqrt(0.5 / width), {d, d}),
                                    normal(rng, 0, std::sqrt(0.5 / width), {d, d}),
                                    normal(rng, 0, std::sqrt(1 / width), {d})};
    const Starvation additive =
        report("additive", d, additive_attention(sample.q, sample.k, sample.v, alignment), sample);
    const auto dot = [&](const Scale& scale) {
      return scaled_dot_product_attention(sample.q, sample.k, sample.v, {.scale = scale});
    };
    const Starvation raw = report("dot product", d, dot(Scale::none()), sample);
    const Starvation scaled = report("dot, scaled", d, dot(Scale::inv_sqrt_dk()), sample);
    fmt::print("\n");
    as_told = as_told && additive.scores.row_std < 1 && std::abs(scaled.scores.row_std - 1) < 0.1 &&
              std::abs(raw.scores.row_std / std::sqrt(width) - 1) < 0.1;
  }
  fmt::print("Spread is the standard deviation of a query's scores: sqrt(d) without the scale.\n");
  return as_told ? EXIT_SUCCESS : EXIT_FAILURE;
}
