// What the ways to compute attention share: checked sizes, the composed tail from scores to output,
// and the two paths of scaled dot-product attention.
#pragma once

#include "softtape/attention/attention.hpp"

namespace softtape::detail {

constexpr const char* kAttention = "scaled_dot_product_attention";

/// Sizes of one call.
struct AttentionSizes {
  Shape lead;  // leading axes of the scores, without an axis of heads
  std::int64_t heads = 0;
  std::int64_t n = 0;
  std::int64_t m = 0;
  std::int64_t dk = 0;  // of one head
  std::int64_t dv = 0;

  Shape scores() const;
  Shape output() const;
};

/// `lead` with axes behind it.
Shape joined(const Shape& lead, std::initializer_list<std::int64_t> last);
/// Without the last two axes.
Shape leading_axes(const Shape& shape);

/// Checks of all that is attention: floats of one dtype, ranks, m, leading axes. Widths are the
/// caller's. Throws: GraphError, DtypeError, ShapeError naming `op` and the argument.
AttentionSizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                            std::int64_t heads);
/// Checks of what happens to scores. Throws: ShapeError, DtypeError, ValueError.
void check_score_options(const char* op, DType dtype, const Shape& scores, const Mask& mask,
                         const Tensor& bias, double dropout, const Rng* rng);

/// How scores become an output.
struct ScoreOptions {
  const Mask& mask;
  const Tensor& bias;
  double dropout = 0;
  Rng* rng = nullptr;
};
/// Scaled scores + bias, masked, softmax, dropout, times v. raw_scores is left to the caller.
Attention attend(Tensor scores, const Tensor& v, const ScoreOptions& options);

/// Every step a node of its own. Inputs have passed all checks and need no qk_norm any more.
Attention composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options);
/// One op around the kernels of fused.hpp: output and logsumexp alone.
Attention fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options, const AttentionSizes& sizes);

/// x (..., n, d) with these leading axes; a copy only where they are not its own.
Tensor with_lead(const Tensor& x, const Shape& lead);

/// A learned factor as a tensor of rank 0.
Tensor scale_tensor(const Scale& scale);

}  // namespace softtape::detail
