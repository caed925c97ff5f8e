// Probes of attention: how concentrated its weights are, what softmax lets through, and which keys
// a gradient still reaches.
//
// A probe reads numbers and records nothing: it needs no graph, and no `.grad()` changes. Keys are
// the last axis; a row is one query's weights P, scores S or their gradients, under any leading
// axes. Results are float64 whatever the input is. Hidden keys have weight 0 and count for nothing;
// a row that sees no key gives 0, a NaN poisons its own row alone. Logarithms are natural (nats).
// Entropy and Jacobians divide a row by its sum first, and take 1 - p of the winner as the sum of
// the other weights: a saturated row keeps its digits, in float32 too.
//
// Throws (all): GraphError for an undefined tensor, DtypeError unless float, ShapeError for rank 0
// or shapes that differ, ValueError for a negative weight (scores passed for weights) or an option
// out of range. Read next: starvation.hpp, the probes in one call.
#pragma once

#include "softtape/ops/mask.hpp"

namespace softtape {

/// -sum_j p_j ln p_j of each row, 0 ln 0 = 0: 0 for one key, ln m for m equal ones.
/// Shapes: weights (..., m), result (...).
SOFTTAPE_API Tensor entropy(const Tensor& weights);

/// 1 / sum_j p_j^2 of each row: 1 for one key, m for m equal ones.
SOFTTAPE_API Tensor effective_keys(const Tensor& weights);

/// The largest weight of each row.
SOFTTAPE_API Tensor max_weight(const Tensor& weights);

/// Gini coefficient of the visible weights of each row: 0 when all are equal, 1 - 1/m when one of m
/// has everything. Without a mask every key counts, those of weight 0 too.
SOFTTAPE_API Tensor gini(const Tensor& weights, const Mask& mask = {});

/// J = dp/ds = diag(p) - p p^T of each row. Its diagonal p_j (1 - p_j) is computed as p_j times the
/// sum of the others, so that no entry cancels and rows sum to 0.
/// Shapes: weights (..., m), result (..., m, m).
SOFTTAPE_API Tensor softmax_jacobian(const Tensor& weights);

/// ||J||_F of each row, a sum of positive terms centred on the winner: relative precision near that
/// of the weights however saturated they are. sqrt(sum p^2 - 2 sum p^3 + (sum p^2)^2) loses all
/// digits once 1 - max p is below 1e-8.
/// For two keys it is 2 p (1 - p); for T keys with scores of standard deviation 1, about sqrt(e/T).
SOFTTAPE_API Tensor jacobian_frobenius_norm(const Tensor& weights);

/// ||J||_2 of each row: the root of sum_j p_j / (p_j - x) = 0 between the two largest weights, by
/// bisection to the last bits (relative error below 1e-14 for double weights that are exact).
/// It lies between max p (1 - p) and twice that, and never exceeds 1/2. Cost 60 m divisions a row.
/// Source: Golub, "Some Modified Matrix Eigenvalue Problems", SIAM Review 15 (1973).
SOFTTAPE_API Tensor jacobian_spectral_norm(const Tensor& weights);

/// ||dL/ds|| of each row of a gradient of scores; squares neither overflow nor underflow.
SOFTTAPE_API Tensor row_gradient_norm(const Tensor& gscores);

/// (sum_j |ds_j|)^2 / sum_j ds_j^2 of each row: how many keys carry the gradient. 0 where there is
/// none. At two keys it is always 2: their gradients are equal and opposite.
SOFTTAPE_API Tensor keys_carrying_gradient(const Tensor& gscores);

struct DeadKeyOptions {
  /// How many samples the loss is a mean over. Gradients are multiplied by it first, so that the
  /// threshold means the same whatever the batch is; 1 for a loss that is a sum over samples.
  double samples = 1;
  /// Below it a gradient counts as dead.
  double threshold = 1e-6;
  /// The keys that count; without it all do.
  Mask mask = {};
};

/// Share of visible (query, key) pairs with |dL/ds| < threshold: the dead keys.
/// Edges: 0 when nothing is visible. A row with one visible key has dL/ds = 0 whatever its score,
/// and counts: 1 of 528 pairs of a causal mask over 32 tokens.
SOFTTAPE_API double dead_keys(const Tensor& gscores, const DeadKeyOptions& options = {});

/// Share of visible pairs with |dL/ds| < threshold ||dL/dP|| of their row, over its visible keys:
/// what softmax itself stops, whatever the size of the loss. Rows without upstream are left out.
SOFTTAPE_API double dead_keys_relative(const Tensor& gscores, const Tensor& gweights,
                                       const DeadKeyOptions& options = {});

/// Share of rows with ||dL/ds|| < threshold, among those that see two keys or more.
SOFTTAPE_API double starved_rows(const Tensor& gscores, const DeadKeyOptions& options = {});

/// What the rows of a probe amount to.
struct Summary {
  double mean = 0;
  double median = 0;  ///< of an even count the mean of the middle two, as in NumPy
  double min = 0;
  double max = 0;
};

/// Of all numbers of a tensor. Edges: a NaN makes all four NaN. Throws: ValueError over nothing.
SOFTTAPE_API Summary summarize(const Tensor& values);

}  // namespace softtape
