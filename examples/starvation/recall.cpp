// The model of the recall task, one training run, and the statistics before its first step.
#include "recall.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/sgd.hpp"
#include "softtape/study/probes.hpp"
#include "softtape/study/scores.hpp"
#include "statistics.hpp"

namespace starvation {

using namespace softtape;

namespace {

constexpr std::int64_t kChunk = 128;  // samples looked at together: fits the cache
constexpr std::int64_t kNoiseSamples = 16384;
constexpr double kDead = 1e-6;  // |dL/ds| below it is dead, L of one sample

struct Streams {
  explicit Streams(std::uint64_t seed) : Streams(Rng(seed).spawn(4)) {}
  Rng weights, evaluation, training, noise;

 private:
  explicit Streams(const std::vector<Rng>& children)
      : weights(children[0]), evaluation(children[1]), training(children[2]), noise(children[3]) {}
};

RecallTask task_of(const RecallSetting& s) {
  return RecallTask({.length = s.T, .keys = s.keys, .values = s.values});
}

RecallBatch part(const RecallBatch& batch, std::int64_t begin, std::int64_t count) {
  const auto cut = [&](const Tensor& x) { return narrow(x, 0, begin, count); };
  return {cut(batch.keys), cut(batch.values), cut(batch.slot), cut(batch.query), cut(batch.target)};
}

std::unique_ptr<Optimizer> optimizer_of(const RecallSetting& s, RecallModel& model) {
  std::vector<Tensor> attention{model.wq, model.wk};
  if (model.factor.defined()) attention.push_back(model.factor);
  if (s.optimizer == "sgd") {
    return std::make_unique<SGD>(std::vector<SgdGroup>{{attention, {.lr = s.lr_qk}},
                                                       {ParameterList{model.wv}, {.lr = s.lr}}});
  }
  if (s.optimizer == "adam") {
    return std::make_unique<Adam>(std::vector<AdamGroup>{{attention, {.lr = s.lr_qk}},
                                                         {ParameterList{model.wv}, {.lr = s.lr}}});
  }
  throw ValueError(fmt::format("[starvation] optimizer must be sgd or adam: got {}", s.optimizer));
}

double squared_norm(const Tensor& x) {
  double total = 0;
  for (const double value : x.to_vector()) total += value * value;
  return total;
}

// Of each row over the last axis.
std::vector<double> squared_norms(const Tensor& x) {
  const std::vector<double> numbers = x.to_vector();
  const auto width = static_cast<std::size_t>(x.dim(-1));
  std::vector<double> out;
  for (std::size_t i = 0; i < numbers.size(); i += width) {
    out.push_back(std::inner_product(numbers.begin() + static_cast<std::ptrdiff_t>(i),
                                     numbers.begin() + static_cast<std::ptrdiff_t>(i + width),
                                     numbers.begin() + static_cast<std::ptrdiff_t>(i), 0.0));
  }
  return out;
}

// |dL/ds| of the target of each sample.
std::vector<double> at_target(const Tensor& gscores, const Tensor& slot) {
  const std::vector<double> g = gscores.to_vector();
  const auto slots = slot.data<std::int64_t>();
  const auto width = static_cast<std::size_t>(gscores.dim(-1));
  std::vector<double> out;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    out.push_back(std::abs(g[i * width + static_cast<std::size_t>(slots[i])]));
  }
  return out;
}

double share_below(const std::vector<double>& x, double threshold) {
  const auto below = std::count_if(x.begin(), x.end(), [&](double v) { return v < threshold; });
  return static_cast<double>(below) / static_cast<double>(x.size());
}

// What the samples of one batch give, L summed over them.
struct Gradients {
  Tensor weights, scores, gweights, gscores;  // (n, T)
  double wq_squared, wk_squared, wv_squared;  // of the sum of the samples' gradients
  double key_squared;                         // mean of ||k_j||^2
};

Gradients gradients(const RecallModel& model, const RecallBatch& batch) {
  const std::int64_t n = batch.slot.numel(), T = batch.keys.dim(1);
  std::vector<Tensor> weights, scores, gweights, gscores, sums(3);
  double key_squared = 0;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const RecallBatch some = part(batch, begin, std::min(kChunk, n - begin));
    const RecallModel::Looked seen = model.look(some);
    const Tensor loss = cross_entropy(seen.logits, some.target, {.reduction = Reduction::sum});
    const std::vector<Tensor> g =
        grad(loss, {seen.attended.weights, seen.attended.scores, model.wq, model.wk, model.wv});
    weights.push_back(seen.attended.weights.detach());
    scores.push_back(seen.attended.scores.detach());
    gweights.push_back(g[0]);
    gscores.push_back(g[1]);
    key_squared += squared_norm(seen.k);
    for (std::size_t i = 0; i < 3; ++i) {
      sums[i] = sums[i].defined() ? sums[i] + g[2 + i] : g[2 + i];
    }
  }
  const auto rows = [&](const std::vector<Tensor>& parts) {
    return reshape(cat(parts, 0), {n, T});
  };
  return {rows(weights),         rows(scores),
          rows(gweights),        rows(gscores),
          squared_norm(sums[0]), squared_norm(sums[1]),
          squared_norm(sums[2]), key_squared / static_cast<double>(n * T)};
}

// tr Cov / |E G|^2 of G = dL/d(Wq Wk^T), over kNoiseSamples of a stream of its own. Both parts are
// unbiased: |E G|^2 is |mean|^2 less what chance adds to it. NaN where it is not above that.
double noise_scale(const RecallModel& model, const RecallSetting& s, Rng& rng) {
  const RecallBatch batch = task_of(s).sample(kNoiseSamples, rng);
  const Attention pairs = model.pairs();
  const RecallModel::Looked seen = model.look_up(pairs, batch);
  const Tensor loss = cross_entropy(seen.logits, batch.target, {.reduction = Reduction::sum});
  const std::vector<Tensor> g = grad(loss, {pairs.raw_scores, seen.attended.scores});
  constexpr double n = kNoiseSamples;
  // A sample has one query and distinct keys: its gradient has one entry for each of its scores.
  const double factor = model.factor_now();
  const double samples = factor * factor * squared_norm(g[1]) / n;
  const double mean = squared_norm(g[0]) / (n * n);
  const double covariance = (samples - mean) * n / (n - 1);
  const double signal = mean - covariance / n;
  return signal > 0 ? covariance / signal : std::numeric_limits<double>::quiet_NaN();
}

TopKeySplit split_by_top_key(const RecallModel& model, const RecallBatch& batch,
                             const RecallModel::Evaluation& end) {
  const std::vector<double> target = at_target(gradients(model, batch).gscores, batch.slot);
  const std::vector<std::int64_t> top = argmax(end.weights, -1).to_vector<std::int64_t>();
  const auto slots = batch.slot.data<std::int64_t>();
  const auto right = end.right.data<bool>();
  double count[2] = {0, 0}, answered[2] = {0, 0}, starved[2] = {0, 0};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const int side = top[i] == slots[i] ? 0 : 1;
    count[side] += 1;
    answered[side] += right[i] ? 1 : 0;
    starved[side] += target[i] < kDead ? 1 : 0;
  }
  // Where a side is empty its shares are 0 / 0: NaN, which says so.
  return {count[0] / static_cast<double>(slots.size()), answered[0] / count[0],
          answered[1] / count[1], starved[0] / count[0], starved[1] / count[1]};
}

std::vector<KeyCount> count_found(const RecallSetting& s, const RecallBatch& batch,
                                  const Tensor& weights) {
  std::vector<KeyCount> out(static_cast<std::size_t>(s.keys));
  const std::vector<std::int64_t> top = argmax(weights, -1).to_vector<std::int64_t>();
  const auto slots = batch.slot.data<std::int64_t>();
  const auto queries = batch.query.data<std::int64_t>();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    KeyCount& key = out[static_cast<std::size_t>(queries[i])];
    ++key.queries;
    key.found += top[i] == slots[i] ? 1 : 0;
  }
  return out;
}

}  // namespace

Scale scale_of(const std::string& name, std::int64_t dk) {
  if (name == "inv_sqrt_dk") return Scale::inv_sqrt_dk();
  if (name == "none") return Scale::none();
  if (name == "inv_dk") return Scale::inv_dk();
  if (name == "dk_quarter") return Scale::value(std::pow(static_cast<double>(dk), -0.25));
  throw ValueError(fmt::format(
      "[starvation] a scale is inv_sqrt_dk, none, inv_dk, dk_quarter or learned: got {}", name));
}

RecallModel::RecallModel(const RecallSetting& s, Rng& rng) {
  const TensorOptions options{.dtype = s.dtype};
  // Drawn as float64 and rounded, so that both types start from the same numbers.
  const auto scaled_normal = [&](double gain, std::int64_t rows, std::int64_t columns) {
    return randn(rng, {rows, columns}, {.dtype = DType::float64}) * gain;
  };
  const auto leaf = [&](const Tensor& x, const char* name) {
    return to(x, s.dtype).detach().named(name).requires_grad_();
  };
  wq = leaf(scaled_normal(s.init_gain, s.keys, s.dk), "Wq");
  wk = leaf(scaled_normal(s.init_gain, s.keys, s.dk), "Wk");
  wv = leaf(normal(rng, 0, 1 / std::sqrt(static_cast<double>(s.values)), {s.values, s.values},
                   {.dtype = DType::float64}),
            "Wv");
  if (s.scale == "learned") {
    factor = full({}, 1.0, options).named("factor").requires_grad_();
    options_.scale = Scale::learned(factor);
  } else {
    options_.scale = scale_of(s.scale, s.dk);
  }
  options_.qk_norm = s.remedy == "qk_norm";
  if (s.remedy == "soft_cap") {
    // Twice the spread at which a softmax over T keys condenses.
    options_.soft_cap = 2 * saturation_boundary(static_cast<double>(s.T));
  }
}

double RecallModel::factor_now() const { return options_.scale.factor(wq.dim(1)); }

RecallModel::Looked RecallModel::look(const RecallBatch& batch) const {
  const std::int64_t B = batch.query.numel();
  Looked seen;
  seen.q = reshape(take_rows(wq, batch.query), {B, 1, wq.dim(1)});
  seen.k = take_rows(wk, batch.keys);
  seen.v = take_rows(wv, batch.values);
  seen.attended = scaled_dot_product_attention(seen.q, seen.k, seen.v, options_);
  seen.logits = reshape(seen.attended.output, {B, wv.dim(1)});
  return seen;
}

Attention RecallModel::pairs() const {
  const std::int64_t symbols = wq.dim(0);
  return scaled_dot_product_attention(wq, wk, zeros({symbols, 1}, {.dtype = wq.dtype()}), options_);
}

RecallModel::Looked RecallModel::look_up(const Attention& pairs, const RecallBatch& batch) const {
  const std::int64_t n = batch.slot.numel(), T = batch.keys.dim(1), symbols = wq.dim(0);
  const Tensor place = reshape(reshape(batch.query, {n, 1}) * symbols + batch.keys, {n * T});
  Looked seen;
  seen.attended.scores = reshape(take_rows(reshape(pairs.scores, {-1, 1}), place), {n, T});
  seen.attended.weights = softmax(seen.attended.scores);
  seen.v = take_rows(wv, batch.values);
  seen.logits = reshape(matmul(reshape(seen.attended.weights, {n, 1, T}), seen.v), {n, wv.dim(1)});
  return seen;
}

RecallModel::Evaluation RecallModel::evaluate(const RecallBatch& batch) const {
  const NoGrad no_grad;
  const Looked seen = look_up(pairs(), batch);
  const Tensor right = eq(argmax(seen.logits, -1), batch.target);
  return {cross_entropy(seen.logits, batch.target).item(),
          static_cast<double>(std::ranges::count(right.data<bool>(), true)) /
              static_cast<double>(batch.slot.numel()),
          seen.attended.weights, right};
}

std::optional<RecallRun> train_recall(const RecallSetting& s, std::uint64_t seed,
                                      const std::function<bool()>& stop) {
  Streams streams(seed);
  RecallModel model(s, streams.weights);
  const RecallTask task = task_of(s);
  const RecallBatch evaluation = task.sample(kEvalSamples, streams.evaluation);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(s, model);
  RecallRun run;
  run.setting = s;
  run.seed = seed;
  for (std::int64_t step = 0;; ++step) {
    if (stop()) return std::nullopt;
    if (step % s.eval_every == 0 || step == s.steps) {
      const RecallModel::Evaluation now = model.evaluate(evaluation);
      run.curve.push_back({step, now.loss, now.accuracy});
      run.finite = std::isfinite(now.loss);
      if (now.accuracy >= kSolved && run.finite && !run.steps_to_90) run.steps_to_90 = step;
      if (step == s.steps) {
        run.found = count_found(s, evaluation, now.weights);
        if (run.finite) run.split = split_by_top_key(model, evaluation, now);
      }
    }
    if (step == s.steps || !run.finite) return run;
    const RecallBatch batch = task.sample(s.batch, streams.training);
    const Tensor loss = cross_entropy(model.look(batch).logits, batch.target);
    optimizer->zero_grad();
    loss.backward();
    try {
      optimizer->step();
    } catch (const ValueError&) {  // a gradient that is not finite: nothing was changed
      if (run.curve.back().step == step) run.curve.pop_back();
      run.curve.push_back({step, std::numeric_limits<double>::quiet_NaN(), 0});
      run.finite = false;
    }
  }
}

RecallStart recall_start(const RecallSetting& s, std::uint64_t seed) {
  Streams streams(seed);
  const RecallModel model(s, streams.weights);
  const RecallBatch batch = task_of(s).sample(kEvalSamples, streams.evaluation);
  const auto n = static_cast<double>(kEvalSamples);
  const Gradients g = gradients(model, batch);
  const Tensor jacobian = jacobian_frobenius_norm(g.weights);
  const std::vector<double> target = at_target(g.gscores, batch.slot);

  RecallStart start{};
  start.entropy = summarize(entropy(g.weights)).mean;
  start.max_p = summarize(max_weight(g.weights)).mean;
  start.effective_keys = summarize(effective_keys(g.weights)).mean;
  start.jacobian_mean = summarize(jacobian).mean;
  start.jacobian_median = summarize(jacobian).median;
  start.jacobian_rms = std::sqrt(squared_norm(jacobian) / n);
  start.row_ds_median = summarize(row_gradient_norm(g.gscores)).median;
  start.target_ds_median = summarize(tensor(target, {.dtype = DType::float64})).median;
  start.target_starved = share_below(target, kDead);
  start.dead_keys = dead_keys(g.gscores);
  start.dead_keys_relative = dead_keys_relative(g.gscores, g.gweights);
  start.grad_wq = std::sqrt(g.wq_squared) / n;
  start.grad_wk = std::sqrt(g.wk_squared) / n;
  start.grad_wv = std::sqrt(g.wv_squared) / n;
  start.noise_scale = noise_scale(model, s, streams.noise);
  start.key_norm = std::sqrt(g.key_squared);
  start.upstream = std::sqrt(mean_of(squared_norms(g.gweights)));
  start.factor = model.factor_now();
  start.score_std = score_statistics(g.scores).row_std;
  return start;
}

}  // namespace starvation
