// Model and optimiser of `train_attention`, as the options ask.
#pragma once

#include <memory>
#include <vector>

#include "data.hpp"
#include "options.hpp"
#include "softtape/nn/sequential.hpp"
#include "softtape/nn/transformer_block.hpp"
#include "softtape/optim/optimizer.hpp"
#include "softtape/optim/schedule.hpp"

namespace train_attention {

/// Embedding, positions, blocks, norm, unembedding: ids (B, n) to logits (B, n, classes).
struct Model {
  softtape::Sequential layers;
  std::vector<softtape::TransformerBlock*> blocks;  ///< among the layers
};

std::unique_ptr<Model> make_model(const Options& options, const Data& data, softtape::Rng& rng);
std::unique_ptr<softtape::Optimizer> make_optimizer(const Options& options, Model& model);
softtape::Schedule make_schedule(const Options& options);

}  // namespace train_attention
