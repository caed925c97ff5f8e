// Additive attention: its own scores, then the composed tail that all attention shares.
#include "softtape/attention/additive.hpp"

#include <fmt/format.h>

#include "attention/paths.hpp"
#include "graph/node.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

constexpr const char* kAdditive = "additive_attention";

void check_weights(const Tensor& q, const Tensor& k, const AdditiveWeights& w) {
  detail::check_same_float(kAdditive, "q", q, "wq", w.wq);
  detail::check_same_float(kAdditive, "q", q, "uk", w.uk);
  detail::check_same_float(kAdditive, "q", q, "score", w.score);
  const auto fits = [](const Tensor& x, const Tensor& weight) {
    return weight.rank() == 2 && weight.dim(0) == x.dim(-1);
  };
  if (!fits(q, w.wq)) {
    throw ShapeError(fmt::format("[{}] wq must be (dq, h): q is {}, wq is {}", kAdditive,
                                 to_string(q.shape()), to_string(w.wq.shape())));
  }
  if (!fits(k, w.uk)) {
    throw ShapeError(fmt::format("[{}] uk must be (dk, h): k is {}, uk is {}", kAdditive,
                                 to_string(k.shape()), to_string(w.uk.shape())));
  }
  if (w.wq.dim(1) != w.uk.dim(1) || w.score.rank() != 1 || w.score.dim(0) != w.wq.dim(1)) {
    throw ShapeError(fmt::format(
        "[{}] wq, uk and score must have one h: wq is {}, uk is {}, score "
        "is {}",
        kAdditive, to_string(w.wq.shape()), to_string(w.uk.shape()), to_string(w.score.shape())));
  }
}

}  // namespace

Attention additive_attention(TensorArg q, TensorArg k, TensorArg v, const AdditiveWeights& weights,
                             const AdditiveOptions& options) {
  const detail::AttentionSizes sizes = detail::check_inputs(kAdditive, q, k, v, 0);
  if (q->rank() == Shape::kMaxRank || k->rank() == Shape::kMaxRank) {
    throw ShapeError(fmt::format("[{}] needs rank 5 or less: q is {}, k is {}", kAdditive,
                                 to_string(q->shape()), to_string(k->shape())));
  }
  check_weights(q, k, weights);
  detail::check_score_options(kAdditive, q->dtype(), sizes.scores(), options.mask, options.bias,
                              options.dropout, options.rng);
  Tensor raw;
  {
    // The hidden layer of every pair of query and key: (..., n, 1, h) + (..., 1, m, h).
    const Tensor hidden =
        tanh(add(unsqueeze(matmul(q, weights.wq), -2), unsqueeze(matmul(k, weights.uk), -3)));
    raw = matmul(hidden, weights.score);
  }
  Attention result = detail::attend(
      raw, v,
      {.mask = options.mask, .bias = options.bias, .dropout = options.dropout, .rng = options.rng});
  result.raw_scores = std::move(raw);
  if (!options.need_weights) result.weights = result.scores = result.raw_scores = Tensor();
  return result;
}

}  // namespace softtape
