// The loop. A step counts only when its update was made, so whatever ends a run between updates
// leaves a state that another run goes on from.
#include "softtape/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ops/finite.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/module.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/optim/clip.hpp"
#include "softtape/train/interrupt.hpp"
#include "train/checks.hpp"

namespace softtape {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(const std::string& why) { throw ValueError("[Trainer] " + why); }

std::vector<Module*> modules_of(const std::vector<Part>& parts) {
  std::vector<Module*> modules;
  for (const Part& part : parts) {
    if (auto* module = dynamic_cast<Module*>(&part.object())) modules.push_back(module);
  }
  return modules;
}

// What a user's function returned, once its names are fit for the history.
Metrics checked_metrics(Metrics metrics) {
  for (const auto& [name, value] : metrics) {
    if (name.empty()) refuse("a metric needs a name: it is empty");
    for (const char* own : {"loss", "grad_norm", "lr"}) {
      if (name == own) {
        refuse(fmt::format("'{}' is what the trainer itself records; call it 'val_{}', say", name,
                           name));
      }
    }
  }
  return metrics;
}

}  // namespace

/// What the calls of the loss for one update gave.
struct Trainer::Gradients {
  double loss = 0;
  double norm = kNaN;
  std::string trouble;  // why there can be no update; empty: none
};

int TrainResult::exit_code() const {
  if (status == TrainStatus::diverged) return 4;
  return status == TrainStatus::interrupted ? 130 : 0;
}

Trainer::Trainer(Optimizer& optimizer, LossFunction loss, TrainerOptions options)
    : optimizer_(optimizer),
      loss_(std::move(loss)),
      options_(checked(loss_, std::move(options))),
      scheduler_(optimizer, options_.schedule),
      parameters_(optimizer.parameters()) {
  std::vector<Tensor> owned;
  for (const Module* module : modules_of(options_.parts)) {
    for (const Tensor& parameter : module->parameters()) owned.push_back(parameter);
  }
  for (const auto& entry : *parameters_) {
    const auto is_it = [&](const Tensor& t) { return t.is_same(entry.second); };
    if (std::none_of(owned.begin(), owned.end(), is_it)) loose_.parameters.push_back(entry);
  }
}

Trainer::~Trainer() = default;

TrainerOptions Trainer::checked(const LossFunction& loss, TrainerOptions o) {
  const auto least = [](const char* rule, const char* name, std::int64_t value, std::int64_t low) {
    detail::require_least("Trainer", rule, name, value, low);
  };
  if (!loss) refuse("there is nothing to train: the loss is an empty function");
  least("a count must be at least 1", "steps", o.steps, 1);
  least("a count must be at least 1", "accumulate", o.accumulate, 1);
  least("a period must be at least 1", "evaluate_every", o.evaluate_every, 1);
  least("a period must be at least 1", "probe_every", o.probe_every, 1);
  least("a count must not be negative", "patience", o.patience, 0);
  least("a period must not be negative", "checkpoint_every", o.checkpoint_every, 0);
  if (!(o.clip_norm > 0)) {
    refuse(fmt::format("a limit must be positive: clip_norm = {}; infinity clips nothing",
                       o.clip_norm));
  }
  if (!(o.min_delta >= 0 && o.min_delta < kInfinity)) {
    refuse(
        fmt::format("a difference must be finite and not negative: min_delta = {}", o.min_delta));
  }
  if (!o.evaluate && (o.patience > 0 || !o.best_checkpoint.empty())) {
    refuse("patience and best_checkpoint need something to judge by: pass evaluate");
  }
  if (!o.best_checkpoint.empty() && o.best_checkpoint == o.last_checkpoint) {
    refuse(fmt::format("the best and the last checkpoint need files of their own: both are '{}'",
                       o.last_checkpoint));
  }
  for (const StepCallback& callback : o.callbacks) {
    if (!callback) refuse("a callback is an empty function");
  }
  std::vector<std::string> taken = {"optimizer", "schedule", "history", "trainer", "parameters"};
  for (const Part& part : o.parts) {
    if (std::find(taken.begin(), taken.end(), part.name()) != taken.end()) {
      refuse(fmt::format("a part needs a name of its own: '{}' is taken", part.name()));
    }
    taken.push_back(part.name());
  }
  return o;
}

std::vector<Part> Trainer::all_parts() {
  std::vector<Part> parts = options_.parts;
  if (!loose_.parameters.empty()) parts.emplace_back("parameters", loose_);
  parts.emplace_back("optimizer", optimizer_);
  parts.emplace_back("schedule", scheduler_);
  parts.emplace_back("history", history_);
  parts.emplace_back("trainer", counts_);
  return parts;
}

void Trainer::save(const std::string& path) { save_checkpoint(path, all_parts()); }

void Trainer::resume(const std::string& checkpoint) {
  load_checkpoint(checkpoint, all_parts());
  const auto losses = history_.values("loss");
  last_loss_ = losses.empty() ? kNaN : losses.back();
}

Trainer::Gradients Trainer::gradients() {
  optimizer_.zero_grad();
  Gradients out;
  const auto share = 1 / static_cast<double>(options_.accumulate);
  for (std::int64_t i = 0; i < options_.accumulate; ++i) {
    const Tensor loss = loss_(counts_.step);
    if (!loss.defined()) throw GraphError("[Trainer] the loss is undefined");
    if (loss.numel() != 1) {
      throw ShapeError(fmt::format("[Trainer] the loss must be one number: its shape is {}",
                                   to_string(loss.shape())));
    }
    const double value = loss.item();
    out.loss += share * value;
    if (!std::isfinite(value)) {
      out.loss = value;
      out.trouble = fmt::format("the loss is {}", value);
      return out;
    }
    loss.backward({.gradient = full_like(loss, share)});
  }
  out.norm = clip_grad_norm_(parameters_, kInfinity);
  if (std::isfinite(out.norm)) return out;
  for (const auto& [name, parameter] : *parameters_) {
    const Tensor gradient = parameter.grad();
    if (!gradient.defined() || detail::all_finite(gradient)) continue;
    out.trouble = fmt::format("the gradient of {} is not finite", name);
    return out;
  }
  out.trouble = "the norm of the gradients is not finite";
  return out;
}

bool Trainer::evaluate() {
  Metrics metrics;
  {
    const EvalMode modes(modules_of(options_.parts));
    const NoGrad guard;
    metrics = checked_metrics(options_.evaluate(counts_.step));
  }
  const auto found = options_.monitor.empty()
                         ? metrics.begin()
                         : std::find_if(metrics.begin(), metrics.end(), [&](const auto& metric) {
                             return metric.first == options_.monitor;
                           });
  if (found == metrics.end()) {
    refuse(fmt::format("evaluate must return what is monitored: '{}' is not among its {} metrics",
                       options_.monitor, metrics.size()));
  }
  history_.add(counts_.step, metrics);
  counts_.evaluated = counts_.step;
  const double value = found->second;
  monitored_ = fmt::format(", {} {:.4g}", found->first, value);
  const double gain = options_.higher_is_better ? value - counts_.best : counts_.best - value;
  const bool better = std::isnan(counts_.best) ? !std::isnan(value) : gain > options_.min_delta;
  if (!better) {
    ++counts_.waited;
    return false;
  }
  counts_.best = value;
  counts_.best_step = counts_.step;
  counts_.waited = 0;
  return true;
}

std::string Trainer::non_finite_parameter() const {
  for (const auto& [name, parameter] : *parameters_) {
    if (!detail::all_finite(parameter)) return name;
  }
  return {};
}

std::string Trainer::words() const { return fmt::format("loss {:.4g}{}", last_loss_, monitored_); }

TrainResult Trainer::end(TrainStatus status, std::string report) {
  if (status != TrainStatus::diverged && !options_.last_checkpoint.empty()) {
    save(options_.last_checkpoint);
    report += fmt::format("; saved in '{}'", options_.last_checkpoint);
  }
  return {status, counts_.step, last_loss_, counts_.best_step, counts_.best, std::move(report)};
}

TrainResult Trainer::run() {
  std::optional<InterruptGuard> signals;
  if (options_.catch_signals) signals.emplace();
  stop_ = false;
  Progress progress(std::max(options_.steps, counts_.step), options_.progress, counts_.step);
  const auto finish = [&](TrainStatus status, std::string report) {
    progress.finish(words());
    return end(status, std::move(report));
  };
  const auto diverged = [&](const std::string& why) {
    return finish(
        TrainStatus::diverged,
        fmt::format("diverged at step {}: {}; the learning rate was {}: lower it, or clip "
                    "the gradients",
                    counts_.step, why, optimizer_.lr()));
  };
  for (;;) {
    const std::int64_t step = counts_.step;
    const bool interrupted = signals && InterruptGuard::requested();
    const bool complete = step >= options_.steps;
    bool better = false;
    if (!interrupted && options_.evaluate && counts_.evaluated != step &&
        (complete || step % options_.evaluate_every == 0)) {
      better = evaluate();
    }
    const bool impatient = options_.patience > 0 && counts_.waited >= options_.patience;
    const bool over = interrupted || complete || impatient || stop_;
    const bool periodic = options_.checkpoint_every > 0 && !options_.last_checkpoint.empty() &&
                          step % options_.checkpoint_every == 0 && step > 0;
    if (over || better || periodic) {
      if (const std::string bad = non_finite_parameter(); !bad.empty()) {
        return diverged(fmt::format("parameter {} is not finite", bad));
      }
    }
    if (better && !options_.best_checkpoint.empty()) save(options_.best_checkpoint);
    if (interrupted) {
      return finish(TrainStatus::interrupted, fmt::format("interrupted after {} updates", step));
    }
    if (complete) {
      return finish(TrainStatus::finished, fmt::format("finished after {} updates", step));
    }
    if (impatient) {
      return finish(TrainStatus::stopped_early,
                    fmt::format("stopped after {} updates: {} evaluations were not better than "
                                "that at step {}",
                                step, counts_.waited, counts_.best_step));
    }
    if (stop_) {
      return finish(TrainStatus::stopped_early, fmt::format("stopped after {} updates", step));
    }
    if (periodic) save(options_.last_checkpoint);

    const double lr = optimizer_.lr();
    const Gradients g = gradients();
    last_loss_ = g.loss;
    Metrics metrics{{"loss", g.loss}, {"grad_norm", g.norm}, {"lr", lr}};
    if (!g.trouble.empty()) {
      history_.add(step, metrics);
      return diverged(g.trouble + ", nothing was updated");
    }
    if (options_.probe && step % options_.probe_every == 0) {
      const Metrics probed = checked_metrics(options_.probe(step));
      metrics.insert(metrics.end(), probed.begin(), probed.end());
    }
    if (g.norm > options_.clip_norm) clip_grad_norm_(parameters_, options_.clip_norm);
    optimizer_.step();
    scheduler_.step();
    // Only now: a step that the probe or the update breaks is made, and recorded, by the next run.
    history_.add(step, metrics);
    ++counts_.step;
    for (const StepCallback& callback : options_.callbacks) callback({step, g.loss, g.norm, lr});
    progress.update(counts_.step, progress.is_due() ? words() : "");
  }
}

}  // namespace softtape
