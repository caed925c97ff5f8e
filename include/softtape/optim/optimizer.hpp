// Optimizer: what every optimiser is. It holds parameters in groups, each with a rate of its own,
// and refuses to step on a gradient that is not finite.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "softtape/nn/module.hpp"
#include "softtape/nn/state.hpp"

namespace softtape {

/// Parameters by name: of a module, of several (`parameters(a, b)`), or plain tensors, which get
/// their own names, or else their numbers.
class SOFTTAPE_API ParameterList {
 public:
  // NOLINTBEGIN(google-explicit-constructor): whatever holds parameters is a list of them.
  ParameterList() = default;
  ParameterList(State named) : named_(std::move(named)) {}
  ParameterList(const Module& module) : named_(module.named_parameters()) {}
  ParameterList(const std::vector<Tensor>& tensors);
  ParameterList(std::initializer_list<Tensor> tensors)
      : ParameterList(std::vector<Tensor>(tensors)) {}
  // NOLINTEND(google-explicit-constructor)
  const State& operator*() const { return named_; }
  const State* operator->() const { return &named_; }

 private:
  State named_;
};

/// Parameters that share options: `AdamGroup{{wq, wk}, {.lr = 1e-4}}`.
template <class Options>
struct ParameterGroup {
  ParameterList parameters;
  Options options = {};
};

/// Base of optimisers. The gradients are those of `.grad()`; a parameter without one is skipped.
///
/// All or nothing: step() checks every gradient before it changes anything. The state holds each
/// group's rate, and for each parameter that has been updated its moments and its count of updates.
class SOFTTAPE_API Optimizer : public Stateful {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient.
  /// Throws: ValueError naming the first parameter whose gradient holds a NaN or an infinity;
  /// DtypeError for a parameter that was converted to another type after its first update.
  void step();
  /// Forgets the gradients of all parameters.
  void zero_grad();

  /// All parameters, in order of the groups.
  State parameters() const;
  int group_count() const { return static_cast<int>(rates_.size()); }
  /// Learning rate of a group. Throws: ValueError for a group that is not there.
  double lr(int group = 0) const;
  /// Throws: ValueError also for a rate that is negative or not finite.
  void set_lr(double lr, int group = 0);

  /// "groups.0.lr", ...; then for each parameter "NAME.steps" and "NAME.MOMENT".
  State state() const override;
  void load_state(const State& state) override;

 protected:
  /// What the optimiser knows of one parameter.
  struct Entry {
    std::string name;
    Tensor parameter;
    int group = 0;
    std::int64_t steps = 0;       ///< updates made, this one included while update() runs
    std::vector<Tensor> moments;  ///< one per moment name; zeros before the first update
  };

  /// `name` is the tag of error messages; `moments` names the tensors kept per parameter.
  Optimizer(std::string name, std::vector<std::string> moments);
  /// A name that an earlier group has too becomes "groups.N.NAME".
  /// Throws: ValueError for no parameters, one that is there already, a name twice in the list, or
  /// a bad rate; GraphError for an undefined or computed tensor; DtypeError unless float.
  void add_group(const ParameterList& parameters, double lr);
  /// Whether the parameters of a group have moments at all.
  virtual bool keeps_moments(int group) const;
  /// Updates elements [begin, end) of one parameter and its moments in place, each by its own
  /// numbers alone. Runs after all checks, on several threads side by side: it must not throw, nor
  /// copy a Tensor, whose counts are not atomic.
  virtual void update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
                      std::int64_t end) const = 0;

  /// Throws: ValueError "[name] rule: key = value" unless `holds`.
  void require(bool holds, const char* rule, const char* key, double value) const;

 private:
  [[noreturn]] void throw_not_finite() const;

  std::string name_;
  std::vector<std::string> moment_names_;
  std::vector<double> rates_;
  std::vector<Entry> entries_;
};

}  // namespace softtape
