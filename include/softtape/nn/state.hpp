// State: named tensors, the one form in which models, optimisers, schedules and streams are saved.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Names and tensors in a fixed order. Dots separate the levels of a name: "block.0.norm.weight".
/// Plain numbers are tensors of rank 0 (int64 or float64).
using State = std::vector<std::pair<std::string, Tensor>>;

/// What can be saved and brought back bit for bit.
class SOFTTAPE_API Stateful {
 public:
  virtual ~Stateful() = default;
  /// The present state: detached copies, or handles that share the numbers with the live object.
  virtual State state() const = 0;
  /// Takes a state over. All or nothing: it throws before anything has changed.
  /// Throws: ValueError naming a missing, unknown or doubled name; ShapeError or DtypeError naming
  /// the entry that does not fit, GraphError one that is undefined.
  virtual void load_state(const State& state) = 0;
};

/// The whole state of a generator, its buffered half word and spawn counter included, as one int64
/// tensor; and back. Throws: ValueError when the tensor is not such a state.
SOFTTAPE_API Tensor rng_to_tensor(const Rng& rng);
SOFTTAPE_API Rng rng_from_tensor(const Tensor& state);

}  // namespace softtape
