// Losses of elements: mse_loss and binary_cross_entropy_with_logits.
#include "softtape/ops/loss.hpp"

#include <fmt/format.h>

#include <cmath>

#include "ops/lanes.hpp"
#include "ops/loss_common.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape {

namespace detail {

void check_mean(const char* op, Reduction reduction, const Shape& shape) {
  if (reduction == Reduction::mean && shape.numel() == 0) {
    throw ValueError(
        fmt::format("[{}] the mean needs at least one loss: got shape {}", op, to_string(shape)));
  }
}

}  // namespace detail

namespace {

using detail::Lanes;

// Checks two inputs of one shape; returns what the sum of losses is divided by.
double check_alike(const char* op, const char* a_name, const Tensor& a, const Tensor& target,
                   const char* target_name, Reduction reduction) {
  detail::check_same_float(op, a_name, a, target_name, target);
  if (a.shape() != target.shape()) {
    throw ShapeError(
        fmt::format("[{}] shapes must be equal, losses do not broadcast: {} is {}, {} "
                    "is {}",
                    op, a_name, to_string(a.shape()), target_name, to_string(target.shape())));
  }
  detail::check_mean(op, reduction, a.shape());
  return reduction == Reduction::mean ? static_cast<double>(a.numel()) : 1;
}

const OpInfo kMse{"mse_loss",
                  [](Vjp& r) {
                    const double factor = r.attributes<double>();
                    const Tensor gx = chain_mul(mul(r.gy(), 2 * factor), sub(r.x(0), r.x(1)));
                    if (r.needs(0)) r.set(0, gx);
                    if (r.needs(1)) r.set(1, neg(gx));
                  },
                  saves_inputs};

struct Bce {
  double pos_weight;
  double factor;
};

// Walks two rows in lanes; tails are padded, so a value never depends on where it stands.
template <class T, class F>
void map_pairs(const T* a, const T* b, T* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + detail::kLanes <= n; i += detail::kLanes) {
    detail::store_lanes<T>(f(detail::load_lanes(a + i), detail::load_lanes(b + i)), y + i);
  }
  if (i == n) return;
  const Lanes<T> tail =
      f(detail::load_lanes(a + i, n - i, T{0}), detail::load_lanes(b + i, n - i, T{0}));
  detail::store_lanes<T>(tail, y + i, n - i);
}

// Selections are plain loops: the compiler makes vector code of them, Eigen does not.

// a b, and 0 where a is: a side that does not count may be infinite.
template <class T>
Lanes<T> selected(const Lanes<T>& a, const Lanes<T>& b) {
  Lanes<T> y;
  for (int i = 0; i < detail::kLanes; ++i) y[i] = a[i] == 0 ? T{0} : a[i] * b[i];
  return y;
}

template <class T>
Lanes<T> bce_losses(const Lanes<T>& z, const Lanes<T>& t, T weight) {
  const Lanes<T> e = detail::exp_lanes<T>(-z.abs());
  const Lanes<T> log_part = e.log1p();
  const Lanes<T> positive = (-z).max(T{0}) + log_part;  // softplus(-z)
  const Lanes<T> negative = z.max(T{0}) + log_part;
  const Lanes<T> loss = selected<T>(weight * t, positive) + selected<T>(1 - t, negative);
  return loss + (e - e);  // max() may lose a NaN, e does not
}

template <class T>
Lanes<T> bce_slopes(const Lanes<T>& z, const Lanes<T>& t, T weight, T factor) {
  const Lanes<T> e = detail::exp_lanes<T>(-z.abs());
  Lanes<T> up;    // sigmoid(z) (1 + e)
  Lanes<T> down;  // sigmoid(-z) (1 + e)
  for (int i = 0; i < detail::kLanes; ++i) {
    up[i] = z[i] >= 0 ? T{1} : e[i];
    down[i] = z[i] >= 0 ? e[i] : T{1};
  }
  return factor * ((1 - t) * up - weight * t * down) / (1 + e);
}

// gz for each element; gy is one number, or one per element.
Tensor bce_vjp(const Tensor& logits, const Tensor& targets, const Tensor& gy, const Bce& bce) {
  Tensor gz = detail::make_tensor(logits.shape(), logits.dtype());
  visit_float(gz.dtype(), "binary_cross_entropy_with_logits", [&](auto zero) {
    using T = decltype(zero);
    const T* z = detail::numbers<T>(logits);
    const T* t = detail::numbers<T>(targets);
    const T* up = detail::numbers<T>(gy);
    T* into = detail::fresh_numbers<T>(gz);
    const bool one = gy.rank() == 0;
    const T factor = static_cast<T>(bce.factor) * (one ? *up : T{1});
    detail::for_ranges(gz.numel(), detail::row_grain(8), [&](std::int64_t begin, std::int64_t end) {
      map_pairs(z + begin, t + begin, into + begin, end - begin,
                [&](const Lanes<T>& a, const Lanes<T>& b) {
                  return bce_slopes<T>(a, b, static_cast<T>(bce.pos_weight), factor);
                });
      for (std::int64_t i = begin; i < end; ++i) {
        const T g = one ? factor : up[i];
        into[i] = g == 0 ? T{0} : one ? into[i] : into[i] * g;
      }
    });
  });
  return gz;
}

const OpInfo kBce{"binary_cross_entropy_with_logits",
                  [](Vjp& r) {
                    const Bce& bce = r.attributes<Bce>();
                    const Tensor z = r.x(0);
                    const Tensor t = r.x(1);
                    const Tensor scaled = mul(r.gy(), bce.factor);
                    if (r.needs(0)) {
                      if (!r.recording()) {
                        r.set(0, bce_vjp(z, t, r.gy(), bce));
                      } else {
                        const Tensor up = mul(sub(1, t), sigmoid(z));
                        const Tensor down = mul(mul(bce.pos_weight, t), sigmoid(neg(z)));
                        r.set(0, chain_mul(scaled, sub(up, down)));
                      }
                    }
                    if (r.needs(1)) {
                      const Tensor slope = sub(mul(bce.pos_weight, softplus(neg(z))), softplus(z));
                      r.set(1, chain_mul(scaled, slope));
                    }
                  },
                  saves_inputs};

}  // namespace

Tensor mse_loss(TensorArg prediction, TensorArg target, LossOptions options) {
  const double divisor =
      check_alike("mse_loss", "prediction", prediction, target, "target", options.reduction);
  Tensor y = visit_float(prediction->dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    const T* p = detail::numbers<T>(prediction);
    const T* t = detail::numbers<T>(target);
    return detail::reduce_losses<T>(prediction->shape(), options.reduction, 1, divisor,
                                    [&](std::int64_t begin, std::int64_t end, T* out) {
                                      for (std::int64_t i = begin; i < end; ++i)
                                        *out++ = (p[i] - t[i]) * (p[i] - t[i]);
                                    });
  });
  return record(kMse, std::move(y), {*prediction, *target}, 1 / divisor);
}

Tensor binary_cross_entropy_with_logits(TensorArg logits, TensorArg targets, BceOptions options) {
  const char* op = "binary_cross_entropy_with_logits";
  if (!(options.pos_weight > 0 && std::isfinite(options.pos_weight))) {
    throw ValueError(
        fmt::format("[{}] pos_weight must be positive and finite: got {}", op, options.pos_weight));
  }
  const double divisor = check_alike(op, "logits", logits, targets, "targets", options.reduction);
  Tensor y = visit_float(logits->dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    const T* z = detail::numbers<T>(logits);
    const T* t = detail::numbers<T>(targets);
    return detail::reduce_losses<T>(logits->shape(), options.reduction, 8, divisor,
                                    [&](std::int64_t begin, std::int64_t end, T* out) {
                                      map_pairs(z + begin, t + begin, out, end - begin,
                                                [&](const Lanes<T>& a, const Lanes<T>& b) {
                                                  return bce_losses<T>(
                                                      a, b, static_cast<T>(options.pos_weight));
                                                });
                                    });
  });
  return record(kBce, std::move(y), {*logits, *targets}, Bce{options.pos_weight, 1 / divisor});
}

}  // namespace softtape
