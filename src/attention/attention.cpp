// Scaled dot-product attention: the choice between the paths, and the composed one, which is what a
// class reads. The fused path is fused_op.cpp around the kernels of fused.hpp.
#include "softtape/attention/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/paths.hpp"
#include "ops/finite.hpp"
#include "ops/softmax_kernels.hpp"
#include "softtape/attention/mask_scores.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/normalize.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"

namespace softtape {
namespace detail {

namespace {

// Heads as column blocks, and back: (..., n, H d) <-> (..., H, n, d).
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  const Shape parts = joined(x.shape().without(x.rank() - 1),
                             {heads, x.dim(-1) / std::max<std::int64_t>(1, heads)});
  return transpose(reshape(x, parts), -3, -2);
}

Tensor merge_heads(const Tensor& x) {
  const Tensor rows = transpose(x, -3, -2);
  return reshape(rows, joined(leading_axes(rows.shape()), {rows.dim(-2) * rows.dim(-1)}));
}

Tensor product(const Tensor& q, const Tensor& k) { return matmul(q, k, {.transpose_b = true}); }

// q k^T. Where a mask hides a key that holds NaN or Inf, 0 times it must not reach the gradient of
// q either, so non-finite keys and unseeing queries enter as constants.
Tensor raw_scores(const Tensor& q, const Tensor& k, const Mask& mask) {
  if (mask.empty() || (all_finite(q) && all_finite(k))) return product(q, k);
  Tensor plain;
  {
    const NoGrad values_only;
    plain = product(q, k);
  }
  const Tensor sees = any(mask.visible(plain.shape()), -1, {.keepdim = true});  // (..., n, 1)
  const Tensor finite = unsqueeze(all(isfinite(k), -1), -2);                    // (..., 1, m)
  const Tensor clean = product(where(sees, q, 0), where(isfinite(k), k, 0));
  return where(logical_and(sees, finite), clean, plain);
}

template <class T>
T largest(const T* x, std::int64_t n) {
  return Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>(x, n)
      .template maxCoeff<Eigen::PropagateNaN>();
}

// ln sum exp of each row of scores, read off the largest weight: ln p = score - logsumexp.
Tensor row_logsumexp(const Tensor& scores, const Tensor& weights) {
  Tensor y = make_tensor(scores.shape().without(scores.rank() - 1), scores.dtype());
  const std::int64_t m = scores.dim(-1);
  visit_float(scores.dtype(), kAttention, [&](auto zero) {
    using T = decltype(zero);
    const T* s = numbers<T>(scores);
    const T* p = numbers<T>(weights);
    T* into = fresh_numbers<T>(y);
    for_ranges(y.numel(), row_grain(m), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T top = m ? largest(p + row * m, m) : T{0};
        into[row] = top == 0 ? kMinusInf<T> : largest(s + row * m, m) - std::log(top);
      }
    });
  });
  return y;
}

}  // namespace

Tensor scale_tensor(const Scale& scale) {
  return scale.tensor().rank() == 0 ? scale.tensor() : reshape(scale.tensor(), Shape{});
}

Attention attend(Tensor scores, const Tensor& v, const ScoreOptions& options) {
  if (options.bias.defined()) scores = add(scores, options.bias);
  if (!options.mask.empty()) scores = mask_scores(scores, options.mask);
  Attention result;
  result.weights = softmax(scores, {.mask = options.mask});
  result.logsumexp = row_logsumexp(scores, result.weights);
  result.scores = std::move(scores);
  if (options.dropout > 0) {
    result.weights = dropout(result.weights, options.dropout, *options.rng);
  }
  result.output = matmul(result.weights, v);
  return result;
}

Attention composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
  if (options.heads > 0) {
    AttentionOptions one_head = options;
    one_head.heads = 0;
    Attention result =
        composed_attention(split_heads(q, options.heads), split_heads(k, options.heads),
                           split_heads(v, options.heads), one_head);
    result.output = merge_heads(result.output);
    return result;
  }
  Tensor raw = raw_scores(q, k, options.mask);
  Tensor scores = raw;
  if (options.scale.is_learned()) {
    scores = mul(raw, scale_tensor(options.scale));
  } else if (const double factor = options.scale.factor(q.dim(-1)); factor != 1) {
    scores = mul(raw, factor);
  }
  if (const double cap = options.soft_cap; cap > 0) scores = mul(tanh(mul(scores, 1 / cap)), cap);
  Attention result = attend(
      std::move(scores), v,
      {.mask = options.mask, .bias = options.bias, .dropout = options.dropout, .rng = options.rng});
  result.raw_scores = std::move(raw);
  return result;
}

namespace {

Tensor normalised(const Tensor& x, std::int64_t heads) {
  if (heads <= 1) return rms_norm(x);
  const Shape parts = joined(x.shape().without(x.rank() - 1), {heads, x.dim(-1) / heads});
  return reshape(rms_norm(reshape(x, parts)), x.shape());
}

AttentionSizes check(const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options) {
  const AttentionSizes sizes = check_inputs(kAttention, q, k, v, options.heads);
  if (q.dim(-1) != k.dim(-1)) {
    throw ShapeError(
        fmt::format("[{}] queries and keys must have one width dk: q is {}, k is {}, "
                    "{} != {}",
                    kAttention, to_string(q.shape()), to_string(k.shape()), q.dim(-1), k.dim(-1)));
  }
  if (sizes.dk == 0) {
    throw ShapeError(fmt::format("[{}] dk must be 1 or more: q is {}, k is {}", kAttention,
                                 to_string(q.shape()), to_string(k.shape())));
  }
  if (options.scale.is_learned()) {
    if (options.scale.tensor().dtype() != q.dtype()) {
      throw DtypeError(fmt::format("[{}] a learned scale must have the dtype of q: got {} and {}",
                                   kAttention, to_string(options.scale.tensor().dtype()),
                                   to_string(q.dtype())));
    }
  } else if (const double factor = options.scale.factor(sizes.dk);
             q.dtype() == DType::float32 && !std::isfinite(static_cast<float>(factor))) {
    throw ValueError(
        fmt::format("[{}] scale must be finite in float32: got {}", kAttention, factor));
  }
  if (!(options.soft_cap >= 0 && std::isfinite(options.soft_cap))) {
    throw ValueError(fmt::format("[{}] soft_cap must be finite and not negative: got {}",
                                 kAttention, options.soft_cap));
  }
  if (const auto cap = static_cast<float>(options.soft_cap);
      options.soft_cap > 0 && q.dtype() == DType::float32 &&
      !(std::isfinite(cap) && std::isfinite(1 / cap))) {
    throw ValueError(
        fmt::format("[{}] soft_cap and its reciprocal must be finite in float32: got {}",
                    kAttention, options.soft_cap));
  }
  check_score_options(kAttention, q.dtype(), sizes.scores(), options.mask, options.bias,
                      options.dropout, options.rng);
  return sizes;
}

}  // namespace
}  // namespace detail

Attention scaled_dot_product_attention(TensorArg q, TensorArg k, TensorArg v,
                                       const AttentionOptions& options) {
  const detail::AttentionSizes sizes = detail::check(q, k, v, options);
  const Tensor queries = options.qk_norm ? detail::normalised(q, options.heads) : *q;
  const Tensor keys = options.qk_norm ? detail::normalised(k, options.heads) : *k;
  if (!options.need_weights && options.dropout == 0 && options.soft_cap == 0) {
    return detail::fused_attention(queries, keys, v, options, sizes);
  }
  // Scores have every leading axis, those of values too: masks and biases are made for them.
  const Tensor every = detail::with_lead(queries, sizes.lead);
  Attention result = detail::composed_attention(every, keys, v, options);
  if (!options.need_weights) result.weights = result.scores = result.raw_scores = Tensor();
  return result;
}

}  // namespace softtape
