// Differentiation: the functional grad(), and what .backward() is made of.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "softtape/graph/tensor.hpp"

namespace softtape {

struct BackwardOptions {
  /// Upstream gradient; needed unless the tensor is a scalar. Same shape and dtype.
  Tensor gradient = {};
  /// Keep the graph for another pass. Without it saved values are freed on the way and a second
  /// pass over the same nodes throws.
  bool retain_graph = false;
};

struct GradOptions {
  /// One upstream gradient per output; an undefined one means 1 and needs a scalar output.
  std::vector<Tensor> grad_outputs = {};
  /// Keep the graph for another pass; unset means: as create_graph.
  std::optional<bool> retain_graph = {};
  /// Record the gradients, so that they can be differentiated again.
  bool create_graph = false;
  /// Return an undefined tensor for an input that no output depends on, instead of throwing.
  bool allow_unused = false;
};

/// A list of tensors; one tensor converts to a list of one.
class TensorList {
 public:
  // NOLINTBEGIN(google-explicit-constructor): call sites read like mathematics.
  TensorList(const Tensor& tensor) : tensors_{tensor} {}
  TensorList(std::initializer_list<Tensor> tensors) : tensors_(tensors) {}
  TensorList(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  // NOLINTEND(google-explicit-constructor)
  const std::vector<Tensor>& operator*() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

/// Gradients of sum_i <outputs_i, grad_outputs_i> with respect to each of `inputs`, leaves or
/// computed tensors. Stores nothing: `.grad()` is untouched. Only nodes between inputs and outputs
/// are visited; cost is about twice the forward pass. Iterative, so depth is bounded by memory.
/// Throws: GraphError for undefined tensors, inputs that require no gradient or are unused, a
/// non-scalar output without grad_outputs, a used-up graph, or a saved tensor changed since;
/// ShapeError or DtypeError for a grad_output that does not match.
SOFTTAPE_API std::vector<Tensor> grad(const TensorList& outputs, const TensorList& inputs,
                                      const GradOptions& options = {});

/// Whether ops on this thread are being recorded.
SOFTTAPE_API bool grad_enabled();

/// Switches recording off (or on) for a scope, also when it is left by an exception.
class SOFTTAPE_API GradMode {
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
/// `NoGrad guard;` computes values only.
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};
/// `EnableGrad guard;` records again inside a NoGrad scope.
class EnableGrad : public GradMode {
 public:
  EnableGrad() : GradMode(true) {}
};

/// While it lives, the first op on this thread that makes a NaN where no input has one, or an
/// infinity out of finite inputs, throws ValueError, in the forward pass or in its rule, with the
/// op, the names and ranges of its inputs and the line of the forward call. Ops that write
/// infinities on purpose are trusted (masked_fill, log_softmax). Costs one pass over every result.
class SOFTTAPE_API AnomalyGuard {
 public:
  AnomalyGuard();
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

 private:
  bool previous_;
};

/// Nodes (one per live tensor, recorded or not) and bytes in use, over all threads. Flat over
/// training steps, or something holds on to graphs.
struct GraphStats {
  std::int64_t live_nodes = 0;
  std::int64_t live_bytes = 0;
};
SOFTTAPE_API GraphStats graph_stats();

}  // namespace softtape
