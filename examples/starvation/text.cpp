// Part 4: a causal single-head character model on real text, scaled against unscaled.
//
// h = E[c] + P[t] of unit variance, one attention head, two projections back to characters; no
// MLP, no normalisation, no residual: nothing but attention can tell characters apart by context.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "jobs.hpp"
#include "output.hpp"
#include "parts.hpp"
#include "recall.hpp"
#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/embedding.hpp"
#include "softtape/nn/self_attention.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/sgd.hpp"
#include "softtape/study/probes.hpp"
#include "softtape/train/char_text.hpp"
#include "softtape/train/interrupt.hpp"
#include "statistics.hpp"

namespace starvation {

using namespace softtape;

namespace {

constexpr std::int64_t kWidth = 64, kContext = 32, kBatch = 16, kWindows = 100;
constexpr const char* kDebianText = "/usr/share/common-licenses/GPL-3";

struct TextSetting {
  std::int64_t dk;
  std::string scale, optimizer;
  double lr, lr_qk, init_gain;
  std::int64_t steps, eval_every;
  DType dtype;
};

struct TextRun {
  struct Point {
    std::int64_t step;
    double loss, entropy, accuracy;
  };
  std::vector<Point> curve;
  bool finite = true;
};

class TextModel {
 public:
  TextModel(const TextSetting& s, std::int64_t vocab, Rng& rng)
      : characters_(vocab, kWidth, {.std = std::sqrt(0.5)}, rng),
        places_(kContext, kWidth, {.std = std::sqrt(0.5)}, rng),
        head_(kWidth, s.dk, kWidth, {.scale = scale_of(s.scale, s.dk), .mask = Mask::causal()},
              rng),
        wo_(normal(rng, 0, 1 / std::sqrt(kWidth), {kWidth, kWidth})),
        unembed_(normal(rng, 0, 1.0 / 16, {kWidth, vocab})) {
    wo_.named("wo").requires_grad_();
    unembed_.named("unembed").requires_grad_();
    const NoGrad no_grad;
    head_.wq.copy_(head_.wq * s.init_gain);
    head_.wk.copy_(head_.wk * s.init_gain);
  }

  Tensor logits(const Attention& attended) const {
    return matmul(matmul(attended.output, wo_), unembed_);
  }
  Attention attend(const Tensor& x) const {
    return head_.attend(characters_(x) + places_(arange(x.dim(1))));
  }

  std::unique_ptr<Optimizer> optimizer(const TextSetting& s) const {
    const std::vector<Tensor> attention{head_.wq, head_.wk};
    const std::vector<Tensor> rest{characters_.weight, places_.weight, head_.wv, wo_, unembed_};
    if (s.optimizer == "sgd") {
      return std::make_unique<SGD>(
          std::vector<SgdGroup>{{attention, {.lr = s.lr_qk}}, {rest, {.lr = s.lr}}});
    }
    return std::make_unique<Adam>(
        std::vector<AdamGroup>{{attention, {.lr = s.lr_qk}}, {rest, {.lr = s.lr}}});
  }

 private:
  Embedding characters_, places_;
  SelfAttention head_;
  Tensor wo_, unembed_;
};

TextRun::Point evaluate(const TextModel& model, const TokenBatch& windows, std::int64_t step) {
  const NoGrad no_grad;
  const Attention attended = model.attend(windows.x);
  const Tensor logits = model.logits(attended);
  const auto targets = windows.y.data<std::int64_t>();
  const std::vector<std::int64_t> top = argmax(logits, -1).to_vector<std::int64_t>();
  double right = 0;
  for (std::size_t i = 0; i < top.size(); ++i) right += top[i] == targets[i] ? 1 : 0;
  return {step, cross_entropy(logits, windows.y).item(), summarize(entropy(attended.weights)).mean,
          right / static_cast<double>(top.size())};
}

// Random streams: weights, training = Rng(seed).spawn(2).
std::optional<TextRun> train_text(const TextSetting& s, const CharText& text, std::uint64_t seed) {
  const DefaultDtype dtype(s.dtype);
  std::vector<Rng> streams = Rng(seed).spawn(2);
  const TextModel model(s, text.vocab(), streams[0]);
  const TokenBatch windows = text.validation(kWindows);
  const std::unique_ptr<Optimizer> optimizer = model.optimizer(s);
  TextRun run;
  for (std::int64_t step = 0;; ++step) {
    if (InterruptGuard::requested()) return std::nullopt;
    if (step % s.eval_every == 0 || step == s.steps) {
      run.curve.push_back(evaluate(model, windows, step));
      run.finite = std::isfinite(run.curve.back().loss);
    }
    if (step == s.steps || !run.finite) return run;
    const TokenBatch batch = text.batch(kBatch, streams[1]);
    const Tensor loss = cross_entropy(model.logits(model.attend(batch.x)), batch.y);
    optimizer->zero_grad();
    loss.backward();
    try {
      optimizer->step();
    } catch (const ValueError&) {  // a gradient that is not finite: nothing was changed
      if (run.curve.back().step == step) run.curve.pop_back();
      run.curve.push_back({step, std::nan(""), std::nan(""), 0});
      run.finite = false;
    }
  }
}

std::vector<TextSetting> text_settings(const Options& o) {
  std::vector<TextSetting> out;
  // Rates for the retrieval task would blow this one up: they count only when text runs alone.
  const bool alone = o.only == std::set<std::string>{"text"};
  const auto dks = !o.dk.empty() ? o.dk
                   : o.full      ? std::vector<std::int64_t>{16, 64, 256}
                                 : std::vector<std::int64_t>{64};
  const auto scales = o.scales.empty() ? std::vector<std::string>{"inv_sqrt_dk", "none"} : o.scales;
  const auto optimizers = !o.optimizers.empty() ? o.optimizers
                          : o.full              ? std::vector<std::string>{"adam", "sgd"}
                                                : std::vector<std::string>{"adam"};
  for (const auto dk : dks) {
    for (const std::string& optimizer : optimizers) {
      std::vector<double> rates = optimizer == "adam" ? std::vector{0.003} : std::vector{0.3};
      if (o.full) rates = optimizer == "adam" ? std::vector{0.003, 0.01} : std::vector{0.3, 0.6};
      if (alone && !o.lr.empty()) rates = o.lr;
      for (const double lr : rates) {
        for (const double lr_qk : alone && !o.lr_qk.empty() ? o.lr_qk : std::vector<double>{lr}) {
          for (const double gain : o.init_gains.empty() ? std::vector<double>{1} : o.init_gains) {
            for (const std::string& scale : scales) {
              if (scale == "learned") continue;  // run_text says so
              out.push_back({dk, scale, optimizer, lr, lr_qk, gain, o.steps > 0 ? o.steps : 500,
                             o.eval_every > 0 ? o.eval_every : 20, o.dtype});
            }
          }
        }
      }
    }
  }
  return out;
}

std::vector<Cell> named(const TextSetting& s) {
  return {std::string("text"), s.dk,        kContext, s.scale, std::string("-"),
          s.init_gain,         s.optimizer, s.lr,     s.lr_qk};
}

void add_run(const TextSetting& s, std::uint64_t seed, const TextRun& run, Results& results) {
  for (const TextRun::Point& point : run.curve) {
    results.text.add({s.dk, s.scale, s.optimizer, s.lr, static_cast<std::int64_t>(seed), point.step,
                      point.loss, point.entropy, std::string()});
    std::vector<Cell> row = named(s);
    row.insert(row.end(),
               {static_cast<std::int64_t>(seed), point.step, point.loss, point.accuracy});
    results.curves.add(std::move(row));
  }
}

// Mean, standard deviation and mean accuracy of the last points of the runs of a setting.
void add_summary(const TextSetting& s, const std::vector<TextRun>& runs, Results& results) {
  std::vector<double> losses, steps, accuracies;
  std::int64_t reached = 0;
  for (const TextRun& run : runs) {
    losses.push_back(run.curve.back().loss);
    accuracies.push_back(run.curve.back().accuracy);
    double first = std::numeric_limits<double>::infinity();
    for (const TextRun::Point& point : run.curve) {
      if (point.accuracy >= kSolved) first = std::min(first, static_cast<double>(point.step));
    }
    reached += std::isfinite(first) ? 1 : 0;
    steps.push_back(first);
  }
  std::vector<Cell> row = named(s);
  row.insert(row.end(), {static_cast<std::int64_t>(runs.size()), s.steps, reached, median_of(steps),
                         mean_of(losses), sd_of(losses), mean_of(accuracies)});
  results.summary.add(std::move(row));
}

}  // namespace

CharText open_text(const std::string& path) {
  const CharTextOptions options{.context = kContext};
  if (!path.empty()) return CharText::from_file(path, options);
  try {
    return CharText::from_file(kDebianText, options);
  } catch (const IoError&) {
    throw IoError(fmt::format(
        "[starvation] the text part needs a text: {} is not there; pass --text FILE", kDebianText));
  }
}

bool run_text(const Options& options, const CharText& text, Results& results, bool say) {
  const TokenBatch windows = text.validation(kWindows);
  const std::vector<TextSetting> settings = text_settings(options);
  const std::vector<std::uint64_t> seeds = options.seeds_or(options.full ? 5 : 3);
  std::vector<std::optional<TextRun>> made(settings.size() * seeds.size());
  const bool whole =
      run_jobs(made.size(), {"text", options.threads, options.progress}, [&](std::size_t i) {
        made[i] = train_text(settings[i / seeds.size()], text, seeds[i % seeds.size()]);
      });

  const std::pair<const char*, double> references[] = {
      {"uniform", std::log(static_cast<double>(text.vocab()))},
      {"unigram", text.unigram_loss(windows)},
      {"bigram", text.bigram_loss(windows)}};
  for (const auto& [name, loss] : references) {
    results.text.add({std::int64_t{0}, std::string("-"), std::string("-"), 0.0, std::int64_t{-1},
                      std::int64_t{-1}, loss, std::nan(""), std::string(name)});
  }
  if (say) {
    say_heading(fmt::format("Real text: {} characters, {} symbols", text.size(), text.vocab()));
    for (const auto& [name, loss] : references) fmt::print("{:<8} {:.3f} nats\n", name, loss);
  }
  if (say && std::ranges::find(options.scales, "learned") != options.scales.end()) {
    fmt::print("The learned scale belongs to the retrieval task; here it is left out.\n");
  }
  Table shown(
      {"dk", "scale", "gain", "opt", "lr", "seeds", "loss at end", "sd", "entropy", "accuracy"});
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const TextSetting& s = settings[i];
    std::vector<TextRun> runs;
    double last_entropy = 0;
    for (std::size_t j = 0; j < seeds.size(); ++j) {
      const std::optional<TextRun>& run = made[i * seeds.size() + j];
      if (!run) continue;
      add_run(s, seeds[j], *run, results);
      last_entropy += run->curve.back().entropy;
      runs.push_back(*run);
    }
    if (runs.empty()) continue;
    add_summary(s, runs, results);
    const auto& row = results.summary.rows().back();
    const auto cell = [&](const char* name) { return row[results.summary.column(name)]; };
    shown.add({s.dk, s.scale, s.init_gain, s.optimizer, s.lr, cell("seeds"), cell("loss_mean"),
               cell("loss_sd"), last_entropy / static_cast<double>(runs.size()),
               cell("accuracy_mean")});
  }
  if (say && !shown.rows().empty()) fmt::print("{}", shown.text());
  return whole;
}

}  // namespace starvation
