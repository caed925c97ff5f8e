// Embedding: a table of vectors, one per token.
#pragma once

#include "softtape/base/random.hpp"
#include "softtape/nn/module.hpp"

namespace softtape {

struct EmbeddingOptions {
  double std = 1;  ///< of the normal numbers that the table begins with; PyTorch's default
};

/// y = weight[ids]. Shapes: ids (...) int64, weight (vocab, d), y (..., d).
/// Vjp: each row of weight gets the sum of the gradients of the places it went to.
/// Throws: ValueError for sizes below 1 or a bad std; a call ValueError for an id outside
/// [0, vocab), DtypeError unless ids are int64.
class SOFTTAPE_API Embedding final : public Layer {
 public:
  Embedding(std::int64_t vocab, std::int64_t d, Rng& rng) : Embedding(vocab, d, {}, rng) {}
  Embedding(std::int64_t vocab, std::int64_t d, EmbeddingOptions options, Rng& rng);

  Tensor operator()(TensorArg ids) const override;

  Tensor weight;
};

}  // namespace softtape
