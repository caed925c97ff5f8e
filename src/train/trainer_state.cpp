// What a checkpoint holds of the trainer itself, besides its history.
#include <cmath>

#include "nn/state_reader.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/train/trainer.hpp"

namespace softtape {

State Trainer::Counts::state() const {
  return {{"step", scalar(step)},
          {"evaluated", scalar(evaluated)},
          {"best_step", scalar(best_step)},
          {"best", scalar(best, {.dtype = DType::float64})},
          {"waited", scalar(waited)}};
}

void Trainer::Counts::load_state(const State& state) {
  detail::StateReader in("Trainer", state);
  Counts read;
  read.step = in.number<std::int64_t>("step");
  read.evaluated = in.number<std::int64_t>("evaluated");
  read.best_step = in.number<std::int64_t>("best_step");
  read.best = in.number<double>("best");
  read.waited = in.number<std::int64_t>("waited");
  in.finish();
  const bool ordered = -1 <= read.best_step && read.best_step <= read.evaluated &&
                       read.evaluated <= read.step && read.step >= 0 && read.waited >= 0;
  if (!ordered) {
    in.refuse(fmt::format("step = {}, evaluated = {}, best_step = {}, waited = {} do not fit",
                          read.step, read.evaluated, read.best_step, read.waited));
  }
  *this = read;
}

State Trainer::LooseParameters::state() const {
  State out;
  for (const auto& [name, parameter] : parameters) out.emplace_back(name, parameter.detach());
  return out;
}

void Trainer::LooseParameters::load_state(const State& state) {
  detail::StateReader in("Trainer", state);
  std::vector<Tensor> values;
  for (const auto& [name, parameter] : parameters) {
    values.push_back(in.tensor(name, parameter.shape(), parameter.dtype()));
  }
  in.finish();
  const NoGrad guard;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Tensor parameter = parameters[i].second;  // a handle: the numbers are the live ones
    parameter.copy_(values[i]);
  }
}

}  // namespace softtape
