// The graph behind tensors, to be looked at: as a table, and as a drawing for Graphviz.
//
//     fmt::print("{}\n", trace(loss));
//     std::ofstream("graph.dot") << to_dot(loss);      // dot -Tsvg graph.dot > graph.svg
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "softtape/graph/arguments.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/study/formatter.hpp"

namespace softtape {

struct TraceOptions {
  /// Nodes shown: those the fewest steps away from the outputs.
  std::int64_t max_nodes = 1000;
  /// Read the numbers for their range, where they are still there.
  bool values = true;
};

/// Smallest and largest finite value, and how many are not finite.
struct ValueRange {
  double low = 0;
  double high = 0;
  std::int64_t not_finite = 0;
};

/// One tensor of a graph.
struct SOFTTAPE_API TraceRow {
  std::string op;    ///< empty for a leaf
  std::string name;  ///< as given by named()
  Shape shape;
  DType dtype = DType::float32;
  bool requires_grad = false;
  bool freed = false;                   ///< a backward pass took its inputs away
  std::vector<std::int64_t> inputs;     ///< rows; -1 for one that is left out
  std::optional<ValueRange> values;     ///< unless the numbers are gone, or there are none
  std::optional<double> gradient_norm;  ///< of `.grad()`, where there is one (see retain_grad)
  CallSite site;                        ///< the call, if it ran under an AnomalyGuard
};

/// Rows in the order of computation: inputs before what is made of them.
struct SOFTTAPE_API Trace {
  std::vector<TraceRow> rows;
  std::int64_t left_out = 0;  ///< nodes beyond max_nodes
};

/// Everything that `outputs` were computed from and that requires a gradient, or was an input of
/// such an op. Iterative: the depth of a graph is bounded by memory alone.
/// Throws: GraphError for an undefined output, ValueError unless max_nodes is at least 1.
SOFTTAPE_API Trace trace(const TensorList& outputs, const TraceOptions& options = {});

/// A table: number, op, name, shape, inputs, value range, gradient norm, line.
SOFTTAPE_API std::string to_string(const Trace& trace);

/// The same graph as DOT text; edges point from inputs to results. Throws: as trace.
SOFTTAPE_API std::string to_dot(const TensorList& outputs, const TraceOptions& options = {});

}  // namespace softtape

template <>
struct fmt::formatter<softtape::Trace> : softtape::detail::ReportFormatter {};
