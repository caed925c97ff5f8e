// Optimizer: groups, checks, state.
#include "softtape/optim/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/loops.hpp"
#include "base/pool.hpp"
#include "graph/node.hpp"
#include "nn/state_reader.hpp"
#include "ops/finite.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

ParameterList::ParameterList(const std::vector<Tensor>& tensors) {
  std::unordered_set<std::string> taken;
  for (const Tensor& tensor : tensors) {
    std::string name = tensor.defined() ? tensor.name() : std::string();
    if (name.empty()) name = std::to_string(named_.size());
    if (taken.contains(name)) name += fmt::format(".{}", named_.size());
    taken.insert(name);
    named_.emplace_back(std::move(name), tensor);
  }
}

Optimizer::Optimizer(std::string name, std::vector<std::string> moments)
    : name_(std::move(name)), moment_names_(std::move(moments)) {}

void Optimizer::require(bool holds, const char* rule, const char* key, double value) const {
  if (!holds) throw ValueError(fmt::format("[{}] {}: {} = {}", name_, rule, key, value));
}

void Optimizer::add_group(const ParameterList& parameters, double lr) {
  require(std::isfinite(lr) && lr >= 0, "a rate must be finite and not negative", "lr", lr);
  if (parameters->empty()) {
    throw ValueError(
        fmt::format("[{}] a group needs parameters: group {} has none", name_, rates_.size()));
  }
  std::unordered_map<const void*, std::string> tensors;
  std::unordered_set<std::string> names;
  for (const Entry& entry : entries_) {
    tensors.emplace(detail::TensorAccess::node(entry.parameter), entry.name);
    names.insert(entry.name);
  }
  const std::unordered_set<std::string> others = names;
  std::vector<Entry> fresh;
  for (const auto& [own_name, tensor] : *parameters) {
    // Lists made apart may share names.
    const std::string name =
        others.contains(own_name) ? fmt::format("groups.{}.{}", group_count(), own_name) : own_name;
    detail::check_float(name_.c_str(), name.c_str(), tensor);
    if (!tensor.is_leaf()) {
      throw GraphError(
          fmt::format("[{}] a parameter must be a leaf: {} was computed", name_, name));
    }
    const auto [known, is_new] = tensors.emplace(detail::TensorAccess::node(tensor), name);
    if (!is_new || !names.insert(name).second) {
      throw ValueError(fmt::format("[{}] every parameter must be listed once: {} is {} again",
                                   name_, name, is_new ? "a name" : known->second));
    }
    fresh.push_back({name, tensor, group_count(), 0, {}});
  }
  rates_.push_back(lr);
  entries_.insert(entries_.end(), fresh.begin(), fresh.end());
}

namespace {

struct Updated {
  std::size_t entry;
  Tensor gradient;
  std::int64_t size;
  std::uintptr_t place;  // of the parameter's numbers
};

// body(updated, begin, end) for the elements of all parameters, in parallel. Each chunk has its
// part of every parameter, as each thread had its part of the gradients; short ones stay whole.
// Parameters over the same numbers are cut alike: they meet in one chunk, one after the other.
template <class Body>
void each_range(const detail::PoolVector<Updated>& all, Body body) {
  constexpr std::int64_t kElements = 1 << 13;  // of a chunk
  constexpr std::int64_t kWhole = 1024;        // elements that are not cut
  constexpr std::int64_t kMost = 32;           // chunks: each looks at every parameter
  std::int64_t total = 0;
  for (const Updated& u : all) total += u.size;
  const std::int64_t chunks =
      std::min(kMost, detail::even_chunks((total + kElements - 1) / kElements));
  parallel_for(chunks, [&](std::int64_t chunk) {
    for (const Updated& u : all) {
      if (u.size <= kWhole) {
        const bool here = u.place / detail::kAlignment % static_cast<std::uintptr_t>(chunks) ==
                          static_cast<std::uintptr_t>(chunk);
        if (here) body(u, std::int64_t{0}, u.size);
        continue;
      }
      const std::int64_t begin = detail::cut(u.size, kWhole, chunks, chunk);
      const std::int64_t end = detail::cut(u.size, kWhole, chunks, chunk + 1);
      if (begin < end) body(u, begin, end);
    }
  });
}

}  // namespace

void Optimizer::throw_not_finite() const {
  const auto bad = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
    const Tensor gradient = entry.parameter.grad();
    return gradient.defined() && !detail::all_finite(gradient);
  });
  throw ValueError(fmt::format(
      "[{}] gradients must be finite: that of {} is not; nothing was updated", name_, bad->name));
}

void Optimizer::step() {
  detail::PoolVector<Updated> all;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    Tensor gradient = entry.parameter.grad();
    if (!gradient.defined()) continue;
    const bool has_moments = entry.steps > 0 && !entry.moments.empty();
    if (has_moments && entry.moments.front().dtype() != gradient.dtype()) {
      throw DtypeError(fmt::format(
          "[{}] a parameter must keep its type: {} is {}, its moments are {}; make a new optimiser",
          name_, entry.name, to_string(gradient.dtype()), to_string(entry.moments[0].dtype())));
    }
    // One that is somebody else's numbers too might change while it is read.
    const detail::Storage& storage = *detail::TensorAccess::node(gradient)->storage;
    if (storage.owners > 1) gradient = gradient.detach().clone();
    const auto place =
        reinterpret_cast<std::uintptr_t>(detail::TensorAccess::node(entry.parameter)->storage);
    const std::int64_t size = gradient.numel();
    all.push_back({i, std::move(gradient), size, place});
  }
  std::atomic<bool> finite = true;
  each_range(all, [&](const Updated& u, std::int64_t begin, std::int64_t end) {
    if (!detail::all_finite(u.gradient, begin, end)) finite = false;
  });
  if (!finite) throw_not_finite();
  for (const Updated& u : all) {
    Entry& entry = entries_[u.entry];
    if (entry.steps > 0 || !keeps_moments(entry.group)) continue;
    std::vector<Tensor> moments;
    for (std::size_t i = 0; i < moment_names_.size(); ++i) {
      moments.push_back(zeros(entry.parameter.shape(), {.dtype = entry.parameter.dtype()}));
    }
    entry.moments = std::move(moments);  // made anew while there was no update
  }

  for (const Updated& u : all) {
    Entry& entry = entries_[u.entry];
    detail::mark_written(entry.parameter);
    for (const Tensor& moment : entry.moments) detail::mark_written(moment);
    ++entry.steps;
  }
  each_range(all, [&](const Updated& u, std::int64_t begin, std::int64_t end) {
    update(entries_[u.entry], u.gradient, begin, end);
  });
}

bool Optimizer::keeps_moments(int) const { return true; }

void Optimizer::zero_grad() {
  for (Entry& entry : entries_) entry.parameter.zero_grad();
}

State Optimizer::parameters() const {
  State state;
  for (const Entry& entry : entries_) state.emplace_back(entry.name, entry.parameter);
  return state;
}

double Optimizer::lr(int group) const {
  require(group >= 0 && group < group_count(), "there is no such group", "group", group);
  return rates_[static_cast<std::size_t>(group)];
}

void Optimizer::set_lr(double lr, int group) {
  this->lr(group);
  require(std::isfinite(lr) && lr >= 0, "a rate must be finite and not negative", "lr", lr);
  rates_[static_cast<std::size_t>(group)] = lr;
}

State Optimizer::state() const {
  State state;
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    state.emplace_back(fmt::format("groups.{}.lr", i),
                       scalar(rates_[i], {.dtype = DType::float64}));
  }
  for (const Entry& entry : entries_) {
    if (entry.steps == 0) continue;
    state.emplace_back(entry.name + ".steps", scalar(entry.steps));
    for (std::size_t i = 0; i < entry.moments.size(); ++i) {
      state.emplace_back(entry.name + "." + moment_names_[i], entry.moments[i].detach());
    }
  }
  return state;
}

void Optimizer::load_state(const State& state) {
  detail::StateReader in(name_, state);
  std::vector<double> rates;
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    rates.push_back(in.number<double>(fmt::format("groups.{}.lr", i)));
    require(std::isfinite(rates[i]) && rates[i] >= 0, "a rate must be finite and not negative",
            "lr", rates[i]);
  }
  std::vector<Entry> entries = entries_;
  for (Entry& entry : entries) {
    const std::string steps = entry.name + ".steps";
    entry.steps = 0;
    entry.moments.clear();
    if (!in.has(steps)) continue;  // not updated yet; its moments would be left over
    entry.steps = in.number<std::int64_t>(steps);
    require(entry.steps > 0, "a count of updates must be positive", steps.c_str(),
            static_cast<double>(entry.steps));
    if (!keeps_moments(entry.group)) continue;
    for (const std::string& moment : moment_names_) {
      entry.moments.push_back(
          in.tensor(entry.name + "." + moment, entry.parameter.shape(), entry.parameter.dtype()));
    }
  }
  in.finish();
  for (Entry& entry : entries) {
    for (Tensor& moment : entry.moments) moment = moment.detach().clone();
  }
  rates_ = std::move(rates);
  entries_ = std::move(entries);
}

}  // namespace softtape
