// Sizes and checks of attention: all of them before any work.
#include <fmt/format.h>

#include <cmath>

#include "attention/paths.hpp"
#include "ops/mask_rows.hpp"
#include "softtape/ops/shape.hpp"
namespace softtape::detail {

namespace {

// Leading axes of the scores as far as `b` and `c` fit to them.
Shape common_lead(const char* op, const Shape& a, const char* b_name, const Shape& b,
                  const Tensor& q, const Tensor& other) {
  try {
    return broadcast(op, a, b);
  } catch (const ShapeError&) {
    throw ShapeError(fmt::format("[{}] leading axes must broadcast: q is {}, {} is {}", op,
                                 to_string(q.shape()), b_name, to_string(other.shape())));
  }
}

void check_heads(const char* op, const char* name, const Tensor& x, std::int64_t heads) {
  if (x.dim(-1) % heads == 0 && x.rank() < Shape::kMaxRank) return;
  throw ShapeError(
      fmt::format("[{}] the last axis must split into heads, rank 5 or less: {} is {}, heads is {}",
                  op, name, to_string(x.shape()), heads));
}

}  // namespace

Shape joined(const Shape& lead, std::initializer_list<std::int64_t> last) {
  Shape shape = lead;
  for (const std::int64_t size : last) shape = shape.inserted(shape.rank(), size);
  return shape;
}

Shape leading_axes(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 2)));
}

Shape AttentionSizes::scores() const {
  return heads ? joined(lead, {heads, n, m}) : joined(lead, {n, m});
}

Shape AttentionSizes::output() const {
  return joined(lead, {n, dv * std::max<std::int64_t>(1, heads)});
}

AttentionSizes check_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                            std::int64_t heads) {
  check_same_float(op, "q", q, "k", k);
  check_same_float(op, "q", q, "v", v);
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) {
    throw ShapeError(fmt::format("[{}] needs rank 2 or more: q is {}, k is {}, v is {}", op,
                                 to_string(q.shape()), to_string(k.shape()), to_string(v.shape())));
  }
  if (heads < 0) {
    throw ValueError(fmt::format("[{}] heads must not be negative: got {}", op, heads));
  }
  if (k.dim(-2) != v.dim(-2)) {
    throw ShapeError(fmt::format("[{}] needs one value per key: k is {}, v is {}, {} != {}", op,
                                 to_string(k.shape()), to_string(v.shape()), k.dim(-2), v.dim(-2)));
  }
  AttentionSizes sizes;
  sizes.lead = common_lead(op, leading_axes(q.shape()), "k", leading_axes(k.shape()), q, k);
  sizes.lead = common_lead(op, sizes.lead, "v", leading_axes(v.shape()), q, v);
  if (heads > 0) {
    check_heads(op, "q", q, heads);
    check_heads(op, "k", k, heads);
    check_heads(op, "v", v, heads);
  }
  const std::int64_t parts = std::max<std::int64_t>(1, heads);
  sizes.heads = heads;
  sizes.n = q.dim(-2);
  sizes.m = k.dim(-2);
  sizes.dk = q.dim(-1) / parts;
  sizes.dv = v.dim(-1) / parts;
  return sizes;
}

void check_score_options(const char* op, DType dtype, const Shape& scores, const Mask& mask,
                         const Tensor& bias, double dropout, const Rng* rng) {
  if (!(dropout >= 0 && dropout <= 1)) {
    throw ValueError(fmt::format("[{}] dropout must lie in [0, 1]: got {}", op, dropout));
  }
  if (dropout > 0 && !rng) {
    throw ValueError(
        fmt::format("[{}] dropout of {} needs a generator: pass {{.rng = &rng}}", op, dropout));
  }
  if (!mask.empty()) MaskRows(op, mask, scores);  // throws where it does not fit
  if (!bias.defined()) return;
  check_float(op, "bias", bias);
  if (bias.dtype() != dtype) {
    throw DtypeError(fmt::format("[{}] bias must have the dtype of q: got {} and {}", op,
                                 to_string(bias.dtype()), to_string(dtype)));
  }
  bool fits = bias.rank() <= scores.rank();
  for (int axis = 1; fits && axis <= bias.rank(); ++axis) {
    fits = bias.dim(-axis) == 1 || bias.dim(-axis) == scores.dim(-axis);
  }
  if (!fits) {
    throw ShapeError(
        fmt::format("[{}] bias must broadcast to the scores: bias is {}, scores are {}", op,
                    to_string(bias.shape()), to_string(scores)));
  }
}

Tensor with_lead(const Tensor& x, const Shape& lead) {
  if (leading_axes(x.shape()) == lead) return x;
  return broadcast_to(x, joined(lead, {x.dim(-2), x.dim(-1)}));
}

}  // namespace softtape::detail
