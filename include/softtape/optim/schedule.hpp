// Learning-rate schedules: a rate as a function of the number of updates, and what applies it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "softtape/optim/optimizer.hpp"

namespace softtape {

struct WarmupCosineOptions {
  std::int64_t warmup = 0;  ///< updates of linear warm-up
  std::int64_t total = 0;   ///< updates in all, at least 1 and not fewer than warmup
  double minimum = 0;       ///< where the cosine ends and stays
};

/// lr_t as a function of the base rate and of t, the number of updates made before: t = 0 is the
/// first update. A value: copies are independent, nothing is counted here.
class SOFTTAPE_API Schedule {
 public:
  /// base.
  static Schedule constant();
  /// base gamma^floor(t / every). Throws: ValueError unless every >= 1 and gamma is finite and >=
  /// 0.
  static Schedule step(std::int64_t every, double gamma);
  /// minimum + (base - minimum) (1 + cos(pi t / total)) / 2; minimum from t = total on.
  /// Throws: ValueError unless total >= 1 and minimum is finite and >= 0.
  /// Source: Loshchilov and Hutter 2017, without restarts.
  static Schedule cosine(std::int64_t total, double minimum = 0);
  /// base min(1, (t + 1) / warmup): the first update is not wasted on a rate of 0, and update
  /// number `warmup` is the first at the full rate. 0 means no warm-up.
  /// Throws: ValueError when warmup is negative.
  static Schedule linear_warmup(std::int64_t warmup);
  /// linear_warmup(warmup), then cosine over the updates that are left.
  /// Throws: ValueError for total < 1, warmup < 0, warmup > total, a bad minimum.
  static Schedule warmup_cosine(const WarmupCosineOptions& options);
  /// Any function (base, t) -> rate.
  static Schedule function(std::function<double(double base, std::int64_t t)> rate);

  /// This schedule for `updates` updates, then `next`, which counts from 0 again.
  /// Throws: ValueError when updates is negative.
  Schedule then(std::int64_t updates, const Schedule& next) const;

  /// Throws: ValueError when t is negative.
  double lr(double base, std::int64_t t) const;

 private:
  explicit Schedule(std::function<double(double, std::int64_t)> rate) : rate_(std::move(rate)) {}
  std::function<double(double, std::int64_t)> rate_;
};

/// Drives the rates of an optimiser: each group's rate at construction is its base. Sets the rate
/// of the first update at once; call step() after each optimizer.step().
class SOFTTAPE_API LrScheduler final : public Stateful {
 public:
  /// The optimiser must outlive the scheduler.
  LrScheduler(Optimizer& optimizer, Schedule schedule);

  /// One update was made: sets the rates of the next.
  void step();
  std::int64_t updates() const { return updates_; }

  /// "updates" and "base.0", ...; loading sets the optimiser's rates too.
  State state() const override;
  void load_state(const State& state) override;

 private:
  void apply(std::int64_t updates);

  Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> bases_;
  std::int64_t updates_ = 0;
};

}  // namespace softtape
