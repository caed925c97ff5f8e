// Embedding: rows of a table.
#include "softtape/nn/embedding.hpp"

#include "nn/sizes.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/index.hpp"

namespace softtape {

Embedding::Embedding(std::int64_t vocab, std::int64_t d, EmbeddingOptions options, Rng& rng) {
  detail::check_size("Embedding", "vocab", vocab);
  detail::check_size("Embedding", "d", d);
  weight = normal(rng, 0, options.std, {vocab, d});
  register_parameter("weight", weight);
}

Tensor Embedding::operator()(TensorArg ids) const { return hooked(take_rows(weight, ids)); }

}  // namespace softtape
