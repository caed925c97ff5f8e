// From names on the command line to layers.
#include "model.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "softtape/base/error.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/nn/norm.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/sgd.hpp"

namespace train_attention {

using namespace softtape;

namespace {

// Each block gets a scale of its own, so that learned ones differ.
Scale make_scale(const std::string& name, std::int64_t dk) {
  const auto width = static_cast<double>(dk);
  if (name == "inv_sqrt_dk") return Scale::inv_sqrt_dk();
  if (name == "none") return Scale::none();
  if (name == "inv_dk") return Scale::inv_dk();
  if (name == "dk_quarter") return Scale::value(std::pow(width, -0.25));
  if (name == "learned")
    return Scale::learned(full({}, 1 / std::sqrt(width), {.requires_grad = true}));
  double factor = 0;
  const auto [end, trouble] = std::from_chars(name.data(), name.data() + name.size(), factor);
  if (trouble != std::errc() || end != name.data() + name.size()) {
    throw ValueError(fmt::format(
        "--scale must be inv_sqrt_dk, none, inv_dk, dk_quarter, learned or a number: {}", name));
  }
  return Scale::value(factor);
}

Mask make_mask(const Options& o) {
  if (o.mask == "none") return {};
  if (o.mask == "causal") return Mask::causal();
  return Mask::causal() & Mask::sliding_window(o.window - 1, 0);
}

}  // namespace

std::unique_ptr<Model> make_model(const Options& o, const Data& data, Rng& rng) {
  if (o.layers < 1) throw ValueError(fmt::format("--layers must be at least 1: {}", o.layers));
  auto model = std::make_unique<Model>();
  model->layers.add(data.embedding(o.d_model, rng));
  if (o.positions == "learned") {
    model->layers.emplace<LearnedPositions>(data.context, o.d_model,
                                            LearnedPositionsOptions{.std = 0.5}, rng);
  } else if (o.positions == "sinusoidal") {
    model->layers.emplace<SinusoidalPositions>(data.context, o.d_model);
  }
  TransformerBlockOptions block;
  block.attention.mask = make_mask(o);
  block.attention.dropout = o.dropout;
  block.attention.dk = o.dk;
  block.attention.dv = o.dv;
  if (o.positions == "rope") block.attention.positions = RelativePositions::rope;
  if (o.positions == "alibi") block.attention.positions = RelativePositions::alibi;
  block.mlp_width = o.mlp;
  block.dropout = o.dropout;
  block.placement = o.norm == "pre" ? NormPlacement::pre : NormPlacement::post;
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::int64_t dk = o.dk > 0 ? o.dk : o.heads > 0 ? o.d_model / o.heads : 0;
    block.attention.scale = make_scale(o.scale, dk);
    model->blocks.push_back(
        &model->layers.emplace<TransformerBlock>(o.d_model, o.heads, block, rng));
  }
  model->layers.emplace<LayerNorm>(o.d_model);
  model->layers.emplace<Linear>(o.d_model, data.classes, rng);
  return model;
}

std::unique_ptr<Optimizer> make_optimizer(const Options& o, Model& model) {
  if (o.optimizer == "sgd") {
    return std::make_unique<SGD>(
        model.layers,
        SgdOptions{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay});
  }
  if (o.optimizer == "adam") {
    return std::make_unique<Adam>(model.layers,
                                  AdamOptions{.lr = o.lr, .weight_decay = o.weight_decay});
  }
  return std::make_unique<AdamW>(model.layers,
                                 AdamWOptions{.lr = o.lr, .weight_decay = o.weight_decay});
}

Schedule make_schedule(const Options& o) {
  const Schedule warmup = Schedule::linear_warmup(o.warmup);
  if (o.schedule == "cosine") {
    return Schedule::warmup_cosine({.warmup = o.warmup, .total = o.steps});
  }
  if (o.schedule == "constant") return warmup;
  return warmup.then(o.steps - o.steps / 4,
                     Schedule::function([](double base, std::int64_t) { return base / 10; }));
}

}  // namespace train_attention
