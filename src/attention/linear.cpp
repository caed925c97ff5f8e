// Linear attention, composed of public ops: differentiable to any order. The normaliser is one more
// column of ones in v.
#include "softtape/attention/linear.hpp"

#include <fmt/format.h>

#include "attention/paths.hpp"
#include "graph/node.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

constexpr const char* kLinear = "linear_attention";
constexpr std::int64_t kBlock = 64;  // tokens within which causal sums are quadratic

// a / b, and 0 where b is 0: a row that sees nothing.
Tensor share(const Tensor& a, const Tensor& b) { return div(a, where(eq(b, 0), 1, b)); }

// The n axis padded with zeros to whole blocks and cut: (..., blocks, kBlock, d).
Tensor in_blocks(const Tensor& x, std::int64_t blocks) {
  const std::int64_t missing = blocks * kBlock - x.dim(-2);
  std::vector<Padding> paddings(static_cast<std::size_t>(x.rank()));
  paddings[paddings.size() - 2].after = missing;
  const Tensor whole = missing ? pad(x, paddings) : x;
  return reshape(whole,
                 detail::joined(detail::leading_axes(x.shape()), {blocks, kBlock, x.dim(-1)}));
}

// sum over j <= i of (a_i . b_j) c_j, block by block: the keys of earlier blocks come as one
// matrix.
Tensor causal_sums(const Tensor& a, const Tensor& b, const Tensor& c) {
  const std::int64_t n = a.dim(-2);
  if (n <= kBlock) return matmul(tril(matmul(a, b, {.transpose_b = true})), c);
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  const Tensor queries = in_blocks(a, blocks);
  const Tensor keys = in_blocks(b, blocks);
  const Tensor values = in_blocks(c, blocks);
  const Tensor near = matmul(tril(matmul(queries, keys, {.transpose_b = true})), values);
  // Block i > 0 sees the sum of blocks 0 to i - 1.
  const Tensor states =
      cumsum(narrow(matmul(keys, values, {.transpose_a = true}), -3, 0, blocks - 1), -3);
  const Tensor far = matmul(narrow(queries, -3, 1, blocks - 1), states);
  const Tensor sums = cat({narrow(near, -3, 0, 1), add(narrow(near, -3, 1, blocks - 1), far)}, -3);
  const Tensor rows =
      reshape(sums, detail::joined(detail::leading_axes(a.shape()), {blocks * kBlock, c.dim(-1)}));
  return narrow(rows, -2, 0, n);
}

Tensor with_lead(const Tensor& x, const Shape& lead) {
  if (detail::leading_axes(x.shape()) == lead) return x;
  return broadcast_to(x, detail::joined(lead, {x.dim(-2), x.dim(-1)}));
}

}  // namespace

Tensor elu_plus_one(TensorArg x) {
  detail::check_float("elu_plus_one", "x", x);
  const Tensor positive = gt(*x, 0);
  return where(positive, add(*x, 1), exp(where(positive, 0, *x)));
}

Attention linear_attention(TensorArg q, TensorArg k, TensorArg v,
                           const LinearAttentionOptions& options) {
  const detail::AttentionSizes sizes = detail::check_inputs(kLinear, q, k, v, 0);
  if (q->dim(-1) != k->dim(-1) || q->dim(-1) == 0) {
    throw ShapeError(
        fmt::format("[{}] queries and keys must have one width dk, 1 or more: q is {}, k is {}",
                    kLinear, to_string(q->shape()), to_string(k->shape())));
  }
  if (options.causal && sizes.n != sizes.m) {
    throw ShapeError(fmt::format("[{}] causal needs as many queries as keys: q is {}, k is {}",
                                 kLinear, to_string(q->shape()), to_string(k->shape())));
  }
  if (sizes.lead.rank() > Shape::kMaxRank - 3) {
    throw ShapeError(fmt::format("[{}] needs rank 5 or less: q is {}, k is {}, v is {}", kLinear,
                                 to_string(q->shape()), to_string(k->shape()),
                                 to_string(v->shape())));
  }
  const Tensor features = elu_plus_one(q);
  const Tensor of_keys = elu_plus_one(k);
  Attention result;
  if (options.need_weights) {
    result.raw_scores = matmul(features, of_keys, {.transpose_b = true});
    result.scores = options.causal ? tril(result.raw_scores) : result.raw_scores;
    result.weights = share(result.scores, sum(result.scores, -1, {.keepdim = true}));
    result.output = matmul(result.weights, v);
    return result;
  }
  const Tensor counted =
      cat({*v, ones(v->shape().with(v->rank() - 1, 1), {.dtype = v->dtype()})}, -1);
  const Tensor sums =
      options.causal ? causal_sums(with_lead(features, sizes.lead), with_lead(of_keys, sizes.lead),
                                   with_lead(counted, sizes.lead))
                     : matmul(features, matmul(of_keys, counted, {.transpose_a = true}));
  result.output = share(narrow(sums, -1, 0, sizes.dv), narrow(sums, -1, sizes.dv, 1));
  return result;
}

}  // namespace softtape
