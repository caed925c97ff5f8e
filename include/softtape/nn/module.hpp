// Module: what every layer is. It knows its parameters, buffers and children by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "softtape/graph/arguments.hpp"
#include "softtape/nn/state.hpp"

namespace softtape {

class Module;

/// Sees the output of a module; may return a replacement, or an undefined tensor to keep it.
using ForwardHook = std::function<Tensor(const Module& module, const Tensor& output)>;

/// Base of layers. A layer registers its parameters and children explicitly, in its constructor,
/// and has an `operator()` that returns the output tensor. Modules stay where they are: children
/// are known by address, so a module can be neither copied nor moved. Calling a layer is const:
/// only the streams that dropout draws from move.
class SOFTTAPE_API Module : public Stateful {
 public:
  Module() = default;
  ~Module() override = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Parameters of this module and its children, depth first in order of registration, with dotted
  /// names. The handles are the live parameters; one that is shared comes once, as in PyTorch.
  State named_parameters() const;
  std::vector<Tensor> parameters() const;
  /// Parameters, buffers and random streams, as handles that share the live numbers: clone what is
  /// to stay. load_state copies into the live tensors.
  State state() const override;
  void load_state(const State& state) override { load_state(state, true); }
  /// Not strict: names that are only on one side are left alone; returns those names. What is on
  /// both sides must fit all the same.
  std::vector<std::string> load_state(const State& state, bool strict);

  /// Switches dropout and the like, for all children too.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  /// Converts parameters and float buffers in place to another float type: they stay the tensors
  /// that optimisers and other modules know. Gradients are forgotten, recorded graphs refuse to go
  /// on, and an optimiser with moments of the old type refuses to step.
  /// Throws: DtypeError unless float.
  void to(DType dtype);
  void zero_grad();
  /// Number of parameters, counted in elements.
  std::int64_t parameter_count() const;

  /// Runs after every call, with the output; returns a number for remove_hook.
  /// Throws (both): ValueError for an empty hook.
  int register_forward_hook(ForwardHook hook);
  /// Runs in the backward pass with the gradient of the output of every call made after this; may
  /// return a replacement.
  int register_backward_hook(GradientHook hook);
  void remove_hook(int number);

 protected:
  /// Registers a leaf that requires a gradient and names it. Throws: ValueError for a name that is
  /// empty, dotted or taken; DtypeError unless float.
  void register_parameter(const std::string& name, Tensor& parameter);
  /// Registers a constant that is saved with the model and never trained.
  void register_buffer(const std::string& name, Tensor& buffer);
  /// Registers a random stream, saved as an int64 tensor, so that a resumed run draws on.
  void register_stream(const std::string& name, Rng& stream);
  /// Registers a child. All that is registered must outlive the module, as its members do.
  void register_module(const std::string& name, Module& child);
  /// What a layer's operator() returns its result through, so that hooks run.
  Tensor hooked(Tensor output) const;

 private:
  struct Item {
    std::string name;
    Tensor* tensor;  // null for a stream
    Rng* stream;
    bool trained;
  };
  friend class EvalMode;
  void collect(const std::string& prefix, std::vector<Item>& into) const;
  std::vector<Item> items() const;
  void check_name(const char* kind, const std::string& name) const;

  std::vector<Item> own_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::pair<int, ForwardHook>> forward_hooks_;
  std::vector<std::pair<int, GradientHook>> backward_hooks_;
  int next_hook_ = 0;
  bool training_ = true;
};

/// While it lives, the modules and all their children are in eval(). In the end each of them gets
/// back the mode that it had itself: a child in eval() below a parent in train() stays there.
///
///     {
///       const EvalMode guard(model);
///       validate(model);  // no dropout; if it throws, the modes come back all the same
///     }
///
/// The modules must outlive the guard.
class SOFTTAPE_API EvalMode {
 public:
  explicit EvalMode(Module& module) : EvalMode(std::vector<Module*>{&module}) {}
  /// Of several, which may contain one another.
  explicit EvalMode(const std::vector<Module*>& modules);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  void remember(Module& module);

  std::vector<std::pair<Module*, bool>> modes_;
};

/// A module from one tensor to one: what Sequential is made of.
class SOFTTAPE_API Layer : public Module {
 public:
  virtual Tensor operator()(TensorArg x) const = 0;
};

/// The parameters of several modules as one list, prefixed by position ("0.weight", "2.wq").
/// Throws: ValueError when a parameter comes twice.
template <class... Modules>
State parameters(const Modules&... modules);

namespace detail {
SOFTTAPE_API State joined_parameters(const std::vector<const Module*>& modules);
}
template <class... Modules>
State parameters(const Modules&... modules) {
  return detail::joined_parameters({&modules...});
}

}  // namespace softtape
