// Data of `train_attention`: every task as token ids in, class ids out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "options.hpp"
#include "softtape/nn/module.hpp"
#include "softtape/train/char_text.hpp"

namespace train_attention {

struct Data {
  /// x and y (B, T); kIgnore where nothing is predicted.
  std::function<softtape::TokenBatch(std::int64_t batch, softtape::Rng& rng)> sample;
  /// The same samples at every evaluation.
  softtape::TokenBatch held_out;
  /// Makes the layer that turns ids into vectors (B, T, d).
  std::function<std::unique_ptr<softtape::Layer>(std::int64_t d, softtape::Rng& rng)> embedding;
  std::int64_t classes = 0;
  std::int64_t context = 0;  ///< T
  /// What models that learn less get on the held-out samples: "uniform" and, of a text, more.
  std::vector<std::pair<std::string, double>> references;
  std::optional<softtape::CharText> text;
};

/// Throws: softtape's errors, for a task or a file that cannot be.
Data make_data(const Options& options, softtape::Rng& evaluation);

}  // namespace train_attention
