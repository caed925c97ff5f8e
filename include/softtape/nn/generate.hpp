// Sampling from character models.
#pragma once

#include <functional>
#include <vector>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape {

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< how many to add
  double temperature = 1;     ///< logits are divided by it; 0 takes the likeliest token
  std::int64_t top_k = 0;     ///< only among the k likeliest; 0: among all
  std::int64_t context = 0;   ///< the model sees at most so many of the last tokens; 0: all
};

/// What predicts: ids (1, n) to logits (..., n, vocab); the last row is read.
using LogitsFunction = std::function<Tensor(const Tensor& ids)>;

/// The prompt, followed by tokens drawn one by one from softmax(logits / temperature). Nothing is
/// recorded; a module with dropout should be in eval(). One draw of rng.random() per token, none
/// when temperature is 0. Among equal logits the smaller id comes first.
/// Throws: ValueError for an empty prompt, options out of range, or logits that hold NaN, +Inf or
/// nothing but -Inf; ShapeError, DtypeError for logits that are none.
SOFTTAPE_API std::vector<std::int64_t> generate(const LogitsFunction& logits,
                                                std::vector<std::int64_t> prompt,
                                                const GenerateOptions& options, Rng& rng);

}  // namespace softtape
