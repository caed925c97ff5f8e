// Losses of rows against class indices: nll_loss and cross_entropy.
#include <fmt/format.h>

#include <cmath>

#include "ops/loss_common.hpp"
#include "ops/softmax_kernels.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"

namespace softtape {

namespace {

using detail::Lanes;
using detail::MaskRow;

// What the rule needs besides the inputs.
struct Classes {
  std::optional<std::int64_t> ignore_index;
  double smoothing;
  double factor;  // of the sum of losses
  bool has_weights;
  // Of each row, where cross_entropy is recorded: the largest logit, and the sum of e^(z - shift).
  // Not set for rows that are ignored.
  Tensor shift = {};
  Tensor sum = {};
};

// The targets as kernels read them. Their distribution over the classes of row i is
// sharp(i) onehot(t_i) + flat(c), and nothing where the row is ignored.
template <class T>
struct Rows {
  Rows(const Tensor& targets, const Tensor& weights, const Classes& of, std::int64_t class_count)
      : target(detail::numbers<std::int64_t>(targets)),
        weight(of.has_weights ? detail::numbers<T>(weights) : nullptr),
        classes(class_count),
        ignore_index(of.ignore_index),
        keep(static_cast<T>(1 - of.smoothing)),
        share(static_cast<T>(of.smoothing / static_cast<double>(class_count))),
        shift(of.shift.defined() ? detail::fresh_numbers<T>(of.shift) : nullptr),
        sum(of.sum.defined() ? detail::fresh_numbers<T>(of.sum) : nullptr) {
    if (share == 0) return;
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += weight ? static_cast<double>(weight[c]) : 1;
    flat_sum = static_cast<T>(total) * share;
  }
  bool counts(std::int64_t i) const { return !ignore_index || target[i] != *ignore_index; }
  T sharp(std::int64_t i) const { return weight ? keep * weight[target[i]] : keep; }
  T flat(std::int64_t c) const { return weight ? share * weight[c] : share; }

  const std::int64_t* target;
  const T* weight;
  std::int64_t classes;
  std::optional<std::int64_t> ignore_index;
  T keep;
  T share;
  T* shift;
  T* sum;
  T flat_sum = 0;
};

// sum of e^(z - shift) without entry t.
template <class T>
T sum_of_others(const T* z, std::int64_t n, std::int64_t t, T shift) {
  Lanes<T> sums = Lanes<T>::Zero();
  for (std::int64_t j = 0; j < n; j += detail::kLanes) {
    Lanes<T> v = detail::load_visible(z, j, MaskRow{0, n, nullptr});
    if (t >= j && t < j + detail::kLanes) v[t - j] = detail::kMinusInf<T>;
    sums += detail::exp_weights<T>(v - shift);
  }
  return sums.sum();
}

template <class T>
T row_loss(const T* z, const Rows<T>& rows, std::int64_t i) {
  if (!rows.counts(i)) return 0;
  const std::int64_t t = rows.target[i];
  const std::int64_t n = rows.classes;
  const auto terms = detail::softmax_sum(z, MaskRow{0, n, nullptr});
  const T shift = terms.shift;
  const T sum = terms.sum;
  if (rows.shift) {
    rows.shift[i] = shift;
    rows.sum[i] = sum;
  }
  if (sum == 0) return std::numeric_limits<T>::infinity();  // every logit is -Inf
  const T log_sum = std::log(sum);
  // shift and log_sum apart: their sum would lose log_sum beside a huge shift.
  const auto cost = [&](T logit) { return log_sum - (logit - shift); };
  const T sharp = rows.sharp(i);
  T loss = 0;
  if (sharp != 0) {
    // A target that is nearly certain: what is left of 1 is summed for itself.
    const bool certain = z[t] == shift && sum < T(1.01);
    loss = sharp * (certain ? std::log1p(sum_of_others(z, n, t, shift)) : cost(z[t]));
  }
  if (rows.share == 0) return loss;
  for (std::int64_t c = 0; c < n; ++c) {
    if (rows.flat(c) != 0) loss += rows.flat(c) * cost(z[c]);
  }
  return loss;
}

// gz = k (a softmax(z) - distribution), a the distribution's sum.
template <class T>
void row_vjp(const T* z, const Rows<T>& rows, std::int64_t i, T k, T* gz) {
  const std::int64_t n = rows.classes;
  if (!std::isfinite(k) && rows.counts(i)) {  // inside the formula it would meet itself
    row_vjp(z, rows, i, T{1}, gz);
    for (std::int64_t c = 0; c < n; ++c) gz[c] *= k;
    return;
  }
  const T sharp = rows.counts(i) ? k * rows.sharp(i) : T{0};
  const T flat_sum = rows.counts(i) ? k * rows.flat_sum : T{0};
  if (sharp == 0 && flat_sum == 0) {
    std::fill_n(gz, n, T{0});
    return;
  }
  const T shift = rows.shift[i];
  const T all = sharp + flat_sum;
  const T scale = rows.sum[i] == 0 ? T{0} : all / rows.sum[i];
  detail::map_lanes<T>(z, gz, n, detail::kMinusInf<T>, [shift, scale](const Lanes<T>& v) {
    return Lanes<T>(detail::exp_weights<T>(v - shift) * scale);
  });
  T& target = gz[rows.target[i]];
  if (rows.share == 0) {
    // The others' sum, where the target is nearly certain: its own loses its digits beside 1.
    T others = sharp - target;
    if (std::abs(target) > std::abs(sharp) / 2) {
      target = 0;
      others = detail::sum_numbers(gz, n);
    }
    target = -others;
    return;
  }
  for (std::int64_t c = 0; c < n; ++c) gz[c] -= k * rows.flat(c);
  target -= sharp;
}

// A tensor of constants: f(rows, i, row) writes the row of target i.
template <class F>
Tensor constant_rows(const Shape& shape, DType dtype, const Tensor& targets, const Tensor& weights,
                     const Classes& of, std::int64_t classes, F f) {
  Tensor y = detail::make_tensor(shape, dtype);
  visit_float(dtype, "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> rows(targets, weights, of, classes);
    const std::int64_t width = shape[shape.rank() - 1];
    T* into = detail::fresh_numbers<T>(y);
    for (std::int64_t i = 0; i < targets.numel(); ++i) f(rows, i, into + i * width);
  });
  return y;
}

// An upstream gradient of one number, or of one per row, that broadcasts over the classes.
Tensor per_row(Vjp& r) { return r.gy().rank() == 0 ? r.gy() : unsqueeze(r.gy(), -1); }

void nll_vjp(Vjp& r) {
  const Classes& of = r.attributes<Classes>();
  const Shape& shape = r.x_shape(0);
  const Tensor slopes =
      constant_rows(shape, r.x_dtype(0), r.x(1), of.has_weights ? r.x(2) : Tensor(), of,
                    shape.dim(-1), [&]<class T>(const Rows<T>& rows, std::int64_t i, T* row) {
                      std::fill_n(row, rows.classes, T{0});
                      if (rows.counts(i))
                        row[rows.target[i]] = -rows.sharp(i) * static_cast<T>(of.factor);
                    });
  r.set(0, chain_mul(per_row(r), slopes));
}

// For gradients of gradients: softmax and products with constants.
Tensor composed_vjp(Vjp& r, const Tensor& logits, const Tensor& targets, const Tensor& weights) {
  const Classes& of = r.attributes<Classes>();
  const Shape& shape = logits.shape();
  const DType dtype = logits.dtype();
  const std::int64_t n = shape.dim(-1);
  const Tensor total = constant_rows(shape.with(shape.rank() - 1, 1), dtype, targets, weights, of,
                                     n, []<class T>(const Rows<T>& rows, std::int64_t i, T* row) {
                                       *row = rows.counts(i) ? rows.sharp(i) + rows.flat_sum : T{0};
                                     });
  const Tensor distribution =
      constant_rows(shape, dtype, targets, weights, of, n,
                    []<class T>(const Rows<T>& rows, std::int64_t i, T* row) {
                      const bool counts = rows.counts(i);
                      for (std::int64_t c = 0; c < rows.classes; ++c)
                        row[c] = counts ? rows.flat(c) : T{0};
                      if (counts) row[rows.target[i]] += rows.sharp(i);
                    });
  // Rows that count for nothing may hold anything: they are cut out before the softmax.
  const Tensor p = softmax(where(ne(total, 0), logits, 0));
  return chain_mul(mul(per_row(r), of.factor), sub(mul(total, p), distribution));
}

void cross_entropy_vjp(Vjp& r) {
  const Classes& of = r.attributes<Classes>();
  const Tensor logits = r.x(0);
  const Tensor targets = r.x(1);
  const Tensor weights = of.has_weights ? r.x(2) : Tensor();
  if (r.recording()) return r.set(0, composed_vjp(r, logits, targets, weights));
  Tensor gz = detail::make_tensor(logits.shape(), logits.dtype());
  visit_float(gz.dtype(), "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = logits.dim(-1);
    const Rows<T> rows(targets, weights, of, n);
    const T* z = detail::numbers<T>(logits);
    const T* up = detail::numbers<T>(r.gy());
    T* into = detail::fresh_numbers<T>(gz);
    const bool one = r.gy().rank() == 0;
    const T factor = static_cast<T>(of.factor);
    detail::for_ranges(targets.numel(), detail::row_grain(8 * n),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) {
                           row_vjp(z + i * n, rows, i, up[one ? 0 : i] * factor, into + i * n);
                         }
                       });
  });
  r.set(0, std::move(gz));
}

const OpInfo kNll{"nll_loss", nll_vjp, saves_input(1) | saves_input(2)};
const OpInfo kCrossEntropy{"cross_entropy", cross_entropy_vjp, saves_inputs};

void check_weights(const char* op, const Tensor& x, const Tensor& weights) {
  detail::check_same_float(op, "the input", x, "class_weights", weights);
  if (weights.rank() != 1 || weights.dim(0) != x.dim(-1)) {
    throw ShapeError(fmt::format("[{}] class_weights must have one entry per class: got {} for {}",
                                 op, to_string(weights.shape()), to_string(x.shape())));
  }
  if (weights.requires_grad()) {
    throw GraphError(fmt::format("[{}] class_weights are constants: detach() them", op));
  }
  for (const double w : weights.to_vector()) {
    if (!(w >= 0 && std::isfinite(w))) {
      throw ValueError(
          fmt::format("[{}] class_weights must be 0 or more and finite: got {}", op, w));
    }
  }
}

void check_targets(const char* op, const Tensor& x, const Tensor& targets,
                   std::optional<std::int64_t> ignore_index) {
  detail::check_float(op, "the input", x);
  if (detail::node_of(op, "targets", targets).dtype != DType::int64) {
    throw DtypeError(fmt::format("[{}] targets must be class indices in int64: got {}", op,
                                 to_string(targets.dtype())));
  }
  if (x.rank() == 0 || targets.shape() != x.shape().without(x.rank() - 1)) {
    throw ShapeError(
        fmt::format("[{}] targets must have the input's shape without its last axis, "
                    "the classes: the input is {}, targets are {}",
                    op, to_string(x.shape()), to_string(targets.shape())));
  }
  const std::int64_t classes = x.dim(-1);
  const auto* target = detail::numbers<std::int64_t>(targets);
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    const bool ignored = ignore_index && target[i] == *ignore_index;
    if (!ignored && (target[i] < 0 || target[i] >= classes)) {
      throw ValueError(
          fmt::format("[{}] a target must be one of {} classes, 0 <= target < {}: got "
                      "{} at position {}; set ignore_index to skip such rows",
                      op, classes, classes, target[i], i));
    }
  }
}

// Checks, computes f(rows, i) for every row, reduces and records.
template <class F>
Tensor class_loss(const OpInfo& op, const Tensor& x, const Tensor& targets,
                  const Tensor& class_weights, Reduction reduction, Classes of, bool keeps_sums,
                  F f) {
  check_targets(op.name, x, targets, of.ignore_index);
  if (of.has_weights) check_weights(op.name, x, class_weights);
  detail::check_mean(op.name, reduction, targets.shape());
  const TensorRef input = x;
  if (keeps_sums && detail::will_record(&input, 1)) {
    of.shift = detail::make_tensor(targets.shape(), x.dtype());
    of.sum = detail::make_tensor(targets.shape(), x.dtype());
  }
  Tensor y = visit_float(x.dtype(), op.name, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = x.dim(-1);
    const Rows<T> rows(targets, class_weights, of, n);
    double divisor = 1;
    if (reduction == Reduction::mean) {
      divisor = 0;
      for (std::int64_t i = 0; i < targets.numel(); ++i) {
        if (!rows.counts(i)) continue;
        divisor += rows.weight ? static_cast<double>(rows.weight[rows.target[i]]) : 1;
      }
      of.factor = divisor == 0 ? 0 : 1 / divisor;
    }
    const T* numbers = detail::numbers<T>(x);
    return detail::reduce_losses<T>(targets.shape(), reduction, 8 * n, divisor,
                                    [&](std::int64_t begin, std::int64_t end, T* out) {
                                      for (std::int64_t i = begin; i < end; ++i) {
                                        *out++ = f(numbers + i * n, rows, i);
                                      }
                                    });
  });
  return of.has_weights ? record(op, std::move(y), {x, targets, class_weights}, std::move(of))
                        : record(op, std::move(y), {x, targets}, std::move(of));
}

}  // namespace

Tensor nll_loss(TensorArg log_probs, TensorArg targets, const NllOptions& options) {
  const Classes of{options.ignore_index, 0, 1, options.class_weights.defined()};
  return class_loss(kNll, log_probs, targets, options.class_weights, options.reduction, of, false,
                    []<class T>(const T* row, const Rows<T>& rows, std::int64_t i) {
                      if (!rows.counts(i) || rows.sharp(i) == 0) return T{0};
                      return -rows.sharp(i) * row[rows.target[i]];
                    });
}

Tensor cross_entropy(TensorArg logits, TensorArg targets, const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw ValueError(fmt::format("[cross_entropy] label_smoothing must lie in [0, 1]: got {}",
                                 options.label_smoothing));
  }
  const Classes of{options.ignore_index, options.label_smoothing, 1,
                   options.class_weights.defined()};
  return class_loss(kCrossEntropy, logits, targets, options.class_weights, options.reduction, of,
                    true, []<class T>(const T* row, const Rows<T>& rows, std::int64_t i) {
                      return row_loss(row, rows, i);
                    });
}

std::int64_t cross_entropy_count(const Tensor& targets, std::optional<std::int64_t> ignore_index) {
  if (detail::node_of("cross_entropy_count", "targets", targets).dtype != DType::int64) {
    throw DtypeError(fmt::format("[cross_entropy_count] targets must be int64: got {}",
                                 to_string(targets.dtype())));
  }
  if (!ignore_index) return targets.numel();
  const auto* target = detail::numbers<std::int64_t>(targets);
  return targets.numel() - std::count(target, target + targets.numel(), *ignore_index);
}

}  // namespace softtape
