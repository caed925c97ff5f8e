// Trainer: the loop around loss, gradients and update, with what a long run needs: evaluation,
// probes, a history, checkpoints, and an honest end.
//
//   Trainer trainer(optimizer,
//                   [&](std::int64_t) {
//                     auto [x, y] = text.batch(16, rng);
//                     return cross_entropy(model(x), y);
//                   },
//                   {.steps = 500, .parts = {{"model", model}, {"rng", rng}}});
//   const TrainResult result = trainer.run();
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "softtape/io/checkpoint.hpp"
#include "softtape/optim/schedule.hpp"
#include "softtape/train/history.hpp"
#include "softtape/train/progress.hpp"

namespace softtape {

/// The loss of update number `step`, a scalar; draws its own data.
using LossFunction = std::function<Tensor(std::int64_t step)>;
/// Measures something after `step` updates.
using MetricsFunction = std::function<Metrics(std::int64_t step)>;

/// One update, as callbacks see it.
struct TrainStep {
  std::int64_t step;  ///< updates made before it
  double loss;        ///< before the update; the mean over accumulated calls
  double grad_norm;   ///< of all parameters, before clipping
  double lr;          ///< of the first group
};
using StepCallback = std::function<void(const TrainStep&)>;

struct TrainerOptions {
  std::int64_t steps = 1000;    ///< updates in all, those before a resume included
  std::int64_t accumulate = 1;  ///< calls of the loss per update, whose gradients are averaged
  /// Limit of the joint norm of the gradients; infinite: none.
  double clip_norm = std::numeric_limits<double>::infinity();
  Schedule schedule = Schedule::constant();

  /// Runs before the first update, every so many updates and after the last one, with nothing
  /// recorded and the modules among the parts in eval().
  MetricsFunction evaluate = {};
  std::int64_t evaluate_every = 100;
  /// Runs every so many updates, between backward and update: gradients are there to be looked at.
  MetricsFunction probe = {};
  std::int64_t probe_every = 100;
  std::vector<StepCallback> callbacks = {};  ///< after each update; may call Trainer::stop()

  /// Which metric of `evaluate` tells good from bad; empty: the first. Lower is better, or higher.
  std::string monitor = {};
  bool higher_is_better = false;
  /// Stop after so many evaluations in a row that were not better by more than min_delta; 0: never.
  /// A NaN is never better.
  std::int64_t patience = 0;
  double min_delta = 0;

  /// All that must come back with a run, by name: model, streams, data. What the trainer knows is
  /// saved too, as "optimizer", "schedule", "history", "trainer" and, for trained tensors that
  /// belong to no module among the parts, "parameters".
  std::vector<Part> parts = {};
  /// File for the state of the run, written at the end, on Ctrl-C and every so many updates (0:
  /// only then); and file for the state at the best evaluation. Empty: none.
  std::string last_checkpoint = {};
  std::int64_t checkpoint_every = 0;
  std::string best_checkpoint = {};

  ProgressOptions progress = {};
  bool catch_signals = true;  ///< SIGINT and SIGTERM end the run after the present update
};

enum class TrainStatus {
  finished,       ///< all steps were made
  stopped_early,  ///< patience ran out, or stop() was called
  diverged,       ///< a loss, a gradient or a parameter is not finite
  interrupted     ///< Ctrl-C, or SIGTERM
};

struct SOFTTAPE_API TrainResult {
  TrainStatus status = TrainStatus::finished;
  std::int64_t steps = 0;  ///< updates made, those before a resume included
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< the last one computed; NaN: none
  std::int64_t best_step = -1;                             ///< of the best evaluation; -1: none
  double best = std::numeric_limits<double>::quiet_NaN();  ///< the monitored metric there
  std::string report;                                      ///< how the run ended, in a sentence

  /// What a program that trains should end with: 0, 4 when diverged, 130 when interrupted.
  int exit_code() const;
};

/// Step by step: loss and backward (`accumulate` times), probe, clip, update, schedule. The history
/// gets "loss", "grad_norm" and "lr" of every step, and what evaluate and probe return.
///
/// Nothing is skipped in silence: a loss or a gradient that is not finite ends the run before the
/// update, with the step and the culprit in the report and the parameters as they were; parameters
/// that are not finite end it before they are saved. Checkpoints written earlier stay.
///
/// The same seeds give the same bits, and a resumed run those of one that was never interrupted, as
/// long as all that draws or counts is among the parts.
class SOFTTAPE_API Trainer {
 public:
  /// Optimiser, parts and all that the functions refer to must outlive the trainer.
  /// Throws: ValueError for counts out of range, an empty loss, patience or best_checkpoint without
  /// evaluate, or part names that are taken or double.
  Trainer(Optimizer& optimizer, LossFunction loss, TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Brings a run back to where a checkpoint was written. Throws: as load_checkpoint does, with all
  /// as it was.
  void resume(const std::string& checkpoint);
  /// Trains until an end named in TrainStatus; a later call goes on from there.
  /// Throws: what the functions throw, the present step not counted; ShapeError unless the loss is
  /// one number, GraphError when it has no gradient; ValueError when evaluate returns no metric to
  /// monitor; IoError for a checkpoint that cannot be written.
  TrainResult run();
  /// Ends the run after the present update, from a callback or a function.
  void stop() { stop_ = true; }

  /// Updates made.
  std::int64_t step() const { return counts_.step; }
  const History& history() const { return history_; }

 private:
  /// The trainer's own part of a checkpoint.
  struct Counts final : Stateful {
    std::int64_t step = 0;
    std::int64_t evaluated = -1;  // the latest step with an evaluation
    std::int64_t best_step = -1;
    double best = std::numeric_limits<double>::quiet_NaN();
    std::int64_t waited = 0;  // evaluations since the best one
    State state() const override;
    void load_state(const State& state) override;
  };
  /// Parameters of the optimiser that belong to no module among the parts.
  struct LooseParameters final : Stateful {
    State parameters;
    State state() const override;
    void load_state(const State& state) override;
  };
  struct Gradients;

  static TrainerOptions checked(const LossFunction& loss, TrainerOptions options);
  std::vector<Part> all_parts();
  Gradients gradients();
  bool evaluate();
  std::string non_finite_parameter() const;
  void save(const std::string& path);
  std::string words() const;
  TrainResult end(TrainStatus status, std::string report);

  Optimizer& optimizer_;
  LossFunction loss_;
  TrainerOptions options_;
  LrScheduler scheduler_;
  ParameterList parameters_;
  LooseParameters loose_;
  History history_;
  Counts counts_;
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();
  std::string monitored_;  // name and latest value, for progress
  bool stop_ = false;
};

}  // namespace softtape
