// starvation: what a softmax lets through of a loss's gradient, in one call on a live graph.
//
//     auto attended = head.attend(x);
//     Tensor loss = cross_entropy(unembed(attended.output), targets);
//     fmt::print("{}\n", starvation(loss, attended));
//     loss.backward();                                  // the graph is still there
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "softtape/study/probes.hpp"
#include "softtape/study/scores.hpp"

namespace softtape {

struct StarvationOptions {
  /// How many samples the loss is a mean over; gradients are multiplied by it, so that they are
  /// those of one sample's loss whatever the batch is. Unset: the rows of `attended.output`, right
  /// for a mean over all tokens (B T of them, or B with one query each). Pass B for a mean over
  /// sequences, 1 for a sum.
  std::optional<double> samples = {};
  /// Below it |dL/ds| counts as dead, and below it times ||dL/dP|| as relatively dead.
  double threshold = 1e-6;
};

/// What starvation() found; definitions and units are those of probes.hpp. Prints itself.
struct Starvation {
  double samples = 1;
  double threshold = 1e-6;
  std::int64_t rows = 0;     ///< queries, of every head
  std::int64_t visible = 0;  ///< (query, key) pairs

  // One number per row, over rows that see at least one key.
  Summary entropy;
  Summary effective_keys;
  Summary max_weight;
  Summary jacobian;          ///< ||J||_F
  Summary row_gradient;      ///< ||dL/ds||
  Summary carrying;          ///< keys carrying gradient
  double dead_keys = 0;      ///< share with |dL/ds| < threshold
  double dead_relative = 0;  ///< share with |dL/ds| < threshold ||dL/dP||
  double starved_rows = 0;   ///< share of rows with ||dL/ds|| < threshold
  ScoreStatistics scores;    ///< as they enter softmax

  // Constants, multiplied by `samples`: (..., n, m).
  Tensor gweights;  ///< dL/dP
  Tensor gscores;   ///< dL/dS
};

/// Differentiates `loss` with respect to `attended.weights` and `attended.scores` and reads every
/// probe off them. The graph is kept, nothing is stored and no `.grad()` changes; hooks on the way
/// run. Cost: a backward pass down to the scores. Works under NoGrad, with heads and any leading
/// axes. Weights and Jacobians are those before dropout, softmax(scores); dL/dP is that of
/// `attended.weights`.
/// Throws: GraphError when weights and scores were not kept (fused path), the loss does not depend
/// on them, or its graph was used up; ShapeError unless the loss is one number; ValueError for
/// options out of range and for attention without a softmax.
SOFTTAPE_API Starvation starvation(const Tensor& loss, const Attention& attended,
                                   const StarvationOptions& options = {});

/// Eight lines: sizes, weights, Jacobian, gradients, dead keys, scores.
SOFTTAPE_API std::string to_string(const Starvation& found);

}  // namespace softtape

template <>
struct fmt::formatter<softtape::Starvation> : softtape::detail::ReportFormatter {};
