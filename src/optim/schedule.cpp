// Schedules and the scheduler that applies one.
#include "softtape/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/state_reader.hpp"
#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

namespace {

void require(bool holds, const char* rule, const char* key, double value) {
  if (!holds) throw ValueError(fmt::format("[Schedule] {}: {} = {}", rule, key, value));
}

bool is_rate(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

Schedule Schedule::constant() {
  return Schedule([](double base, std::int64_t) { return base; });
}

Schedule Schedule::step(std::int64_t every, double gamma) {
  require(every >= 1, "a period must be at least 1", "every", static_cast<double>(every));
  require(is_rate(gamma), "a factor must be finite and not negative", "gamma", gamma);
  return Schedule([=](double base, std::int64_t t) {
    return base * std::pow(gamma, static_cast<double>(t / every));
  });
}

Schedule Schedule::cosine(std::int64_t total, double minimum) {
  require(total >= 1, "a schedule needs at least one update", "total", static_cast<double>(total));
  require(is_rate(minimum), "a rate must be finite and not negative", "minimum", minimum);
  return Schedule([=](double base, std::int64_t t) {
    if (t >= total) return minimum;
    const double phase = std::numbers::pi * static_cast<double>(t) / static_cast<double>(total);
    return minimum + (base - minimum) * (1 + std::cos(phase)) / 2;
  });
}

Schedule Schedule::linear_warmup(std::int64_t warmup) {
  require(warmup >= 0, "a length must not be negative", "warmup", static_cast<double>(warmup));
  return Schedule([=](double base, std::int64_t t) {
    if (t + 1 >= warmup) return base;
    return base * (static_cast<double>(t + 1) / static_cast<double>(warmup));
  });
}

Schedule Schedule::warmup_cosine(const WarmupCosineOptions& o) {
  require(o.total >= 1, "a schedule needs at least one update", "total",
          static_cast<double>(o.total));
  require(o.warmup <= o.total, "warm-up must not be longer than the whole", "warmup",
          static_cast<double>(o.warmup));
  const Schedule rise = linear_warmup(o.warmup);
  const Schedule fall = cosine(std::max<std::int64_t>(o.total - o.warmup, 1), o.minimum);
  return rise.then(o.warmup, fall);
}

Schedule Schedule::function(std::function<double(double, std::int64_t)> rate) {
  if (!rate) throw ValueError("[Schedule] the function is empty");
  return Schedule(std::move(rate));
}

Schedule Schedule::then(std::int64_t updates, const Schedule& next) const {
  require(updates >= 0, "a length must not be negative", "updates", static_cast<double>(updates));
  return Schedule([first = rate_, second = next.rate_, updates](double base, std::int64_t t) {
    return t < updates ? first(base, t) : second(base, t - updates);
  });
}

double Schedule::lr(double base, std::int64_t t) const {
  require(t >= 0, "updates are counted from 0", "t", static_cast<double>(t));
  return rate_(base, t);
}

LrScheduler::LrScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  for (int i = 0; i < optimizer.group_count(); ++i) bases_.push_back(optimizer.lr(i));
  apply(0);
}

void LrScheduler::apply(std::int64_t updates) {
  std::vector<double> rates;
  for (const double base : bases_) {
    rates.push_back(schedule_.lr(base, updates));
    require(is_rate(rates.back()), "a rate must be finite and not negative", "lr", rates.back());
  }
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer_.set_lr(rates[i], static_cast<int>(i));
  updates_ = updates;
}

void LrScheduler::step() { apply(updates_ + 1); }

State LrScheduler::state() const {
  State state{{"updates", scalar(updates_)}};
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    state.emplace_back(fmt::format("base.{}", i), scalar(bases_[i], {.dtype = DType::float64}));
  }
  return state;
}

void LrScheduler::load_state(const State& state) {
  detail::StateReader in("LrScheduler", state);
  const auto updates = in.number<std::int64_t>("updates");
  require(updates >= 0, "updates are counted from 0", "updates", static_cast<double>(updates));
  std::vector<double> bases;
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    bases.push_back(in.number<double>(fmt::format("base.{}", i)));
    require(is_rate(bases[i]), "a rate must be finite and not negative", "base", bases[i]);
  }
  in.finish();
  std::swap(bases_, bases);
  try {
    apply(updates);
  } catch (...) {
    std::swap(bases_, bases);  // the schedule leaves the range of rates from these bases
    throw;
  }
}

}  // namespace softtape
