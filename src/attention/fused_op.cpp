// The fused path of attention as one op: how tensors lie for the kernels, and the rule, which calls
// the backward kernel, or, while it is itself recorded, differentiates the composed form.
#include <algorithm>
#include <limits>
#include <vector>

#include "attention/fused.hpp"
#include "attention/paths.hpp"
#include "ops/finite.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape::detail {

namespace {

// What the rule needs beside the inputs and the output.
struct Kept {
  AttentionSizes sizes;
  Mask mask;
  double factor;
  Tensor shift;  // of each row of scores; see fused.hpp
  Tensor sum;
};

// Where the heads are: column blocks of a row, or the last leading axis.
struct Layout {
  std::int64_t batch;
  std::int64_t heads;
  bool blocks;

  explicit Layout(const AttentionSizes& sizes) : heads(1), blocks(sizes.heads > 0) {
    const Shape& lead = sizes.lead;
    if (blocks) heads = sizes.heads;
    if (!blocks && lead.rank() > 1) heads = lead[lead.rank() - 1];
    batch = blocks ? lead.numel() : lead.numel() / std::max<std::int64_t>(1, heads);
  }
  template <class T>
  HeadsView<T> view(T* data, std::int64_t rows, std::int64_t width) const {
    if (blocks) return {data, rows * heads * width, width, heads * width};
    return {data, heads * rows * width, rows * width, width};
  }
};

FusedProblem problem_of(const Kept& kept, const Layout& layout, const MaskRows& mask,
                        const Tensor& bias) {
  const AttentionSizes& s = kept.sizes;
  FusedProblem problem{.batch = layout.batch,
                       .heads = layout.heads,
                       .n = s.n,
                       .m = s.m,
                       .dk = s.dk,
                       .dv = s.dv,
                       .scale = kept.factor,
                       .mask = &mask,
                       .bias_strides = {}};
  if (!bias.defined()) return problem;
  problem.bias = visit_float(bias.dtype(), kAttention, [&](auto zero) -> const void* {
    return numbers<decltype(zero)>(bias);
  });
  // Key, row, head, then all that is batch: an axis of size 1 broadcasts. See plain_batch.
  const bool head_axis = s.heads > 0 || s.lead.rank() > 1;
  std::int64_t step = 1;
  for (int i = 0; i < bias.rank(); ++i) {
    const std::int64_t size = bias.dim(-1 - i);
    const int slot = i < 2 ? 3 - i : (i == 2 && head_axis ? 1 : 0);
    std::int64_t& stride = problem.bias_strides[slot];
    if (size != 1 && stride == 0) stride = step;
    step *= size;
  }
  return problem;
}

// The kernels know one stride for the whole batch: batch axes of a bias must all broadcast or none.
Tensor plain_batch(const Tensor& bias, const AttentionSizes& sizes) {
  const Shape scores = sizes.scores();
  const int batch_axes = scores.rank() - (sizes.heads > 0 || sizes.lead.rank() > 1 ? 3 : 2);
  Shape full = bias.shape();
  while (full.rank() < scores.rank()) full = full.inserted(0, 1);
  bool some = false;
  bool all = true;
  for (int axis = 0; axis < batch_axes; ++axis) {
    some |= full[axis] != 1;
    all &= full[axis] == scores[axis];
  }
  if (!some || all) return bias;
  for (int axis = 0; axis < batch_axes; ++axis) full = full.with(axis, scores[axis]);
  return broadcast_to(bias, full);
}

bool nothing_to_do(const Kept& kept) { return kept.sizes.scores().numel() == 0; }

// Value rows that no query sees, as zeros: the kernels never read them, and 0 times NaN is NaN.
Tensor seen_values(const Tensor& v, const Kept& kept) {
  if (kept.mask.empty() || all_finite(v)) return v;
  Tensor seen = any(kept.mask.visible(kept.sizes.scores()), -2);  // (..., m), heads before m
  if (kept.sizes.heads > 0) seen = any(seen, -2);
  return where(unsqueeze(seen, -1), v, 0);
}

// Differentiates the composed form on the saved inputs. Each enters through a view of its own,
// where the inner pass stops: one input may have been computed from another.
void recorded_vjp(Vjp& r, const Kept& kept) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> wanted;
  for (int i = 0; i < r.arity(); ++i) {
    const Tensor x = r.x(i);
    inputs.push_back(reshape(x, x.shape()));
    if (r.needs(i)) wanted.push_back(inputs.back());
  }
  const Attention again = composed_attention(inputs[0], inputs[1], seen_values(inputs[2], kept),
                                             {.mask = kept.mask,
                                              .bias = r.arity() > 3 ? inputs[3] : Tensor(),
                                              .scale = Scale::value(kept.factor),
                                              .heads = kept.sizes.heads});
  const std::vector<Tensor> gradients =
      grad(again.output, wanted, {.grad_outputs = {r.gy()}, .create_graph = true});
  for (int i = 0, next = 0; i < r.arity(); ++i) {
    if (r.needs(i)) r.set(i, gradients[static_cast<std::size_t>(next++)]);
  }
}

void kernel_vjp(Vjp& r, const Kept& kept) {
  const bool has_bias = r.arity() > 3;
  const Tensor bias = has_bias ? r.x(3) : Tensor();
  const Shape scores = kept.sizes.scores();
  if (nothing_to_do(kept)) {
    for (int i = 0; i < r.arity(); ++i) {
      if (r.needs(i)) r.set(i, zeros(r.x_shape(i), {.dtype = r.x_dtype(i)}));
    }
    return;
  }
  const Layout layout(kept.sizes);
  const MaskRows rows(kAttention, kept.mask, scores);
  const FusedProblem problem = problem_of(kept, layout, rows, bias);
  const Tensor x[] = {r.x(0), r.x(1), r.x(2)};
  const Tensor o = r.y();
  Tensor gx[3];
  for (int i = 0; i < 3; ++i) {
    if (r.needs(i)) gx[i] = make_tensor(x[i].shape(), x[i].dtype());
  }
  const Tensor gbias = has_bias && r.needs(3) ? make_tensor(scores, bias.dtype()) : Tensor();
  const AttentionSizes& size = kept.sizes;
  visit_float(o.dtype(), kAttention, [&](auto zero) {
    using T = decltype(zero);
    const auto fresh = [](const Tensor& t) { return t.defined() ? fresh_numbers<T>(t) : nullptr; };
    fused_backward<T>(problem, layout.view(numbers<T>(x[0]), size.n, size.dk),
                      layout.view(numbers<T>(x[1]), size.m, size.dk),
                      layout.view(numbers<T>(x[2]), size.m, size.dv),
                      layout.view(numbers<T>(o), size.n, size.dv), numbers<T>(kept.shift),
                      numbers<T>(kept.sum), layout.view(numbers<T>(r.gy()), size.n, size.dv),
                      layout.view(fresh(gx[0]), size.n, size.dk),
                      layout.view(fresh(gx[1]), size.m, size.dk),
                      layout.view(fresh(gx[2]), size.m, size.dv), fresh(gbias));
  });
  for (int i = 0; i < 3; ++i) r.set(i, std::move(gx[i]));
  if (gbias.defined()) r.set(3, sum_to(gbias, bias.shape()));
}

const OpInfo kFused{kAttention,
                    [](Vjp& r) {
                      const Kept& kept = r.attributes<Kept>();
                      r.recording() ? recorded_vjp(r, kept) : kernel_vjp(r, kept);
                    },
                    saves_inputs | saves_output};

}  // namespace

Attention fused_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                          const AttentionOptions& options, const AttentionSizes& sizes) {
  const bool learned = options.scale.is_learned();
  const Tensor q = with_lead(learned ? mul(q_in, scale_tensor(options.scale)) : q_in, sizes.lead);
  const Tensor k = with_lead(k_in, sizes.lead);
  const Tensor v = with_lead(v_in, sizes.lead);
  const Tensor bias = options.bias.defined() ? plain_batch(options.bias, sizes) : options.bias;
  const Shape scores = sizes.scores();
  const Shape rows_of_scores = scores.without(scores.rank() - 1);
  Kept kept{.sizes = sizes,
            .mask = options.mask,
            .factor = learned ? 1 : options.scale.factor(sizes.dk),
            .shift = make_tensor(rows_of_scores, q.dtype()),
            .sum = make_tensor(rows_of_scores, q.dtype())};
  Tensor o = make_tensor(sizes.output(), q.dtype());
  Attention result;
  result.logsumexp = make_tensor(rows_of_scores, q.dtype());
  visit_float(q.dtype(), kAttention, [&](auto zero) {
    using T = decltype(zero);
    T* shift = fresh_numbers<T>(kept.shift);
    T* sum = fresh_numbers<T>(kept.sum);
    T* logsumexp = fresh_numbers<T>(result.logsumexp);
    if (nothing_to_do(kept)) {
      std::fill_n(fresh_numbers<T>(o), o.numel(), T{0});
      std::fill_n(sum, kept.sum.numel(), T{0});
      std::fill_n(logsumexp, kept.sum.numel(), -std::numeric_limits<T>::infinity());
    } else {
      const Layout layout(sizes);
      const MaskRows rows(kAttention, kept.mask, scores);
      fused_forward<T>(problem_of(kept, layout, rows, bias),
                       layout.view(numbers<T>(q), sizes.n, sizes.dk),
                       layout.view(numbers<T>(k), sizes.m, sizes.dk),
                       layout.view(numbers<T>(v), sizes.m, sizes.dv),
                       layout.view(fresh_numbers<T>(o), sizes.n, sizes.dv), shift, sum, logsumexp);
    }
  });
  result.output = bias.defined() ? record(kFused, std::move(o), {q, k, v, bias}, std::move(kept))
                                 : record(kFused, std::move(o), {q, k, v}, std::move(kept));
  return result;
}

}  // namespace softtape::detail
