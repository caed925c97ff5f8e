// Module: registration, state, hooks.
#include "softtape/nn/module.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape {

namespace {

// Gives a leaf numbers of another type without making it another tensor. The version goes on, so
// that a graph that saved the old numbers notices.
void convert_leaf(const Tensor& leaf, DType dtype) {
  detail::Node& node = *detail::TensorAccess::node(leaf);
  const Tensor converted = to(leaf.detach(), dtype);
  detail::Node& fresh = *detail::TensorAccess::node(converted);
  fresh.storage->version = node.storage->version + 1;
  std::swap(node.storage, fresh.storage);
  std::swap(node.dtype, fresh.dtype);
}

}  // namespace

void Module::check_name(const char* kind, const std::string& name) const {
  const auto is_taken = [&](const auto& item) { return item.name == name; };
  const auto is_child = [&](const auto& child) { return child.first == name; };
  const bool taken = std::any_of(own_.begin(), own_.end(), is_taken) ||
                     std::any_of(children_.begin(), children_.end(), is_child);
  if (name.empty() || name.find('.') != std::string::npos || taken) {
    throw ValueError(fmt::format("[register_{}] a name must be {}: got \"{}\"", kind,
                                 taken ? "new in its module" : "non-empty and without dots", name));
  }
}

void Module::register_parameter(const std::string& name, Tensor& parameter) {
  check_name("parameter", name);
  detail::check_float("register_parameter", name.c_str(), parameter);
  parameter.requires_grad_().named(name);
  own_.push_back({name, &parameter, nullptr, true});
}

void Module::register_buffer(const std::string& name, Tensor& buffer) {
  check_name("buffer", name);
  if (detail::node_of("register_buffer", name.c_str(), buffer).requires_grad) {
    throw GraphError(fmt::format(
        "[register_buffer] a buffer is constant: {} requires a gradient; detach it", name));
  }
  buffer.named(name);
  own_.push_back({name, &buffer, nullptr, false});
}

void Module::register_stream(const std::string& name, Rng& stream) {
  check_name("stream", name);
  own_.push_back({name, nullptr, &stream, false});
}

void Module::register_module(const std::string& name, Module& child) {
  check_name("module", name);
  const auto is_it = [&](const auto& known) { return known.second == &child; };
  if (&child == this || std::any_of(children_.begin(), children_.end(), is_it)) {
    throw ValueError(
        fmt::format("[register_module] a child must be another module, once: \"{}\"", name));
  }
  children_.emplace_back(name, &child);
  std::vector<Item> items;
  child.collect(name + ".", items);
  for (const Item& item : items) {
    if (item.tensor) item.tensor->named(item.name);  // errors and traces show the whole path
  }
  child.train(training_);
}

void Module::collect(const std::string& prefix, std::vector<Item>& into) const {
  for (const Item& item : own_) {
    into.push_back(item);
    into.back().name = prefix + item.name;
  }
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", into);
}

std::vector<Module::Item> Module::items() const {
  std::vector<Item> items;
  collect("", items);
  return items;
}

State Module::named_parameters() const {
  State state;
  std::unordered_set<const void*> seen;
  for (const Item& item : items()) {
    if (item.trained && seen.insert(detail::TensorAccess::node(*item.tensor)).second) {
      state.emplace_back(item.name, *item.tensor);
    }
  }
  return state;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> tensors;
  for (auto& [name, tensor] : named_parameters()) tensors.push_back(tensor);
  return tensors;
}

State Module::state() const {
  State state;
  for (const Item& item : items()) {
    state.emplace_back(item.name,
                       item.tensor ? item.tensor->detach() : rng_to_tensor(*item.stream));
  }
  return state;
}

std::vector<std::string> Module::load_state(const State& state, bool strict) {
  const std::vector<Item> own = items();
  std::unordered_map<std::string, const Item*> by_name;
  for (const Item& item : own) by_name.emplace(item.name, &item);

  std::unordered_set<std::string> given;
  std::vector<std::string> unknown, missing;
  std::vector<std::pair<const Item*, const Tensor*>> tensors;
  std::vector<std::pair<Rng*, Rng>> streams;
  for (const auto& [name, tensor] : state) {
    if (!given.insert(name).second) {
      throw ValueError(
          fmt::format("[load_state] every name must come once: \"{}\" is doubled", name));
    }
    const auto known = by_name.find(name);
    if (known == by_name.end()) {
      unknown.push_back(name);
      continue;
    }
    detail::check_defined("load_state", name.c_str(), tensor);
    const Item& item = *known->second;
    if (item.stream) {
      streams.emplace_back(item.stream, rng_from_tensor(tensor));
      continue;
    }
    if (item.tensor->shape() != tensor.shape()) {
      throw ShapeError(fmt::format("[load_state] shapes must be equal: {} is {} here, {} there",
                                   name, to_string(item.tensor->shape()),
                                   to_string(tensor.shape())));
    }
    if (item.tensor->dtype() != tensor.dtype()) {
      throw DtypeError(
          fmt::format("[load_state] dtypes must be equal: {} is {} here, {} there; convert the "
                      "module with to()",
                      name, to_string(item.tensor->dtype()), to_string(tensor.dtype())));
    }
    tensors.emplace_back(&item, &tensor);
  }
  for (const Item& item : own) {
    if (!given.contains(item.name)) missing.push_back(item.name);
  }
  if (strict && !(unknown.empty() && missing.empty())) {
    throw ValueError(
        fmt::format("[load_state] names must be equal: missing [{}], unknown [{}]; "
                    "load_state(state, false) takes what fits",
                    fmt::join(missing, ", "), fmt::join(unknown, ", ")));
  }

  NoGrad guard;
  for (const auto& [item, tensor] : tensors) item->tensor->copy_(*tensor);
  for (auto& [stream, rng] : streams) *stream = std::move(rng);
  missing.insert(missing.end(), unknown.begin(), unknown.end());
  return missing;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

EvalMode::EvalMode(const std::vector<Module*>& modules) {
  for (Module* module : modules) remember(*module);
  for (Module* module : modules) module->eval();
}

EvalMode::~EvalMode() {
  for (const auto& [module, training] : modes_) module->training_ = training;
}

void EvalMode::remember(Module& module) {
  modes_.emplace_back(&module, module.training_);
  for (const auto& [name, child] : module.children_) remember(*child);
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) {
    throw DtypeError(fmt::format("[to] a module holds floats: asked for {}", to_string(dtype)));
  }
  for (const Item& item : items()) {
    if (!item.tensor || !is_floating(item.tensor->dtype()) || item.tensor->dtype() == dtype) {
      continue;
    }
    item.tensor->zero_grad();
    convert_leaf(*item.tensor, dtype);
  }
}

void Module::zero_grad() {
  for (const Item& item : items()) {
    if (item.trained) item.tensor->zero_grad();
  }
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : named_parameters()) count += tensor.numel();
  return count;
}

int Module::register_forward_hook(ForwardHook hook) {
  if (!hook) throw ValueError("[register_forward_hook] the hook is empty");
  forward_hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

int Module::register_backward_hook(GradientHook hook) {
  if (!hook) throw ValueError("[register_backward_hook] the hook is empty");
  backward_hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

void Module::remove_hook(int number) {
  const auto is_it = [number](const auto& hook) { return hook.first == number; };
  std::erase_if(forward_hooks_, is_it);
  std::erase_if(backward_hooks_, is_it);
}

Tensor Module::hooked(Tensor output) const {
  if (forward_hooks_.empty() && backward_hooks_.empty()) return output;
  // Hooks may remove themselves while they run.
  for (const auto& [number, hook] : std::vector(forward_hooks_)) {
    if (Tensor replaced = hook(*this, output); replaced.defined()) output = std::move(replaced);
  }
  if (backward_hooks_.empty() || !grad_enabled() || !output.requires_grad()) return output;
  // A tensor of its own: a layer may return its very input, whose gradient has other sources too.
  output = output.clone();
  for (const auto& [number, hook] : backward_hooks_) output.register_hook(hook);
  return output;
}

namespace detail {

State joined_parameters(const std::vector<const Module*>& modules) {
  State joined;
  std::unordered_map<const void*, std::string> seen;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    for (auto& [name, tensor] : modules[i]->named_parameters()) {
      std::string full = fmt::format("{}.{}", i, name);
      const auto [known, fresh] = seen.emplace(TensorAccess::node(tensor), full);
      if (!fresh) {
        throw ValueError(fmt::format("[parameters] every parameter must come once: {} is {} again",
                                     full, known->second));
      }
      joined.emplace_back(std::move(full), tensor);
    }
  }
  return joined;
}

}  // namespace detail

}  // namespace softtape
