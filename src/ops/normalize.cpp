// Layer norm and RMS norm: one kernel forward, one backward; the second order goes through public
// ops. RMS norm is layer norm without centring and bias, and shares everything.
#include "softtape/ops/normalize.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "ops/row_loops.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

using detail::map_row_lanes;
using detail::sum_row_lanes;

// What is subtracted from a row, in two parts, and what it is multiplied by.
template <class T>
struct RowStats {
  T shift = 0;
  T mean = 0;  // of x - shift
  T scale = 0;
};

// 1 / sqrt(mean(c^2) + eps) of centred numbers c; squares that overflow are scaled.
template <class T>
T inverse_root(const T* x, std::int64_t n, T shift, T mean, T eps) {
  const auto count = static_cast<T>(n);
  const T squares = sum_row_lanes<T>(n, [&](auto at) -> decltype(at(x)) {
    const auto v = at(x);
    return (v - shift - mean) * (v - shift - mean);
  });
  if (squares <= std::numeric_limits<T>::max()) return 1 / std::sqrt(squares / count + eps);
  T top = 0;
  for (std::int64_t i = 0; i < n; ++i) top = std::max(top, std::abs(x[i] - shift - mean));
  const T scaled = sum_row_lanes<T>(n, [&](auto at) -> decltype(at(x)) {
    const auto v = at(x);
    return ((v - shift - mean) / top) * ((v - shift - mean) / top);
  });
  return 1 / std::sqrt(scaled / count) / top;
}

template <class T>
RowStats<T> row_stats(const T* x, std::int64_t n, bool centred, T eps) {
  RowStats<T> s;
  if (centred) {
    // Differences to the first entry are exact where the row is a small change on a large offset.
    s.shift = x[0];
    const T sum = sum_row_lanes<T>(n, [&](auto at) -> decltype(at(x)) { return at(x) - s.shift; });
    s.mean = sum / static_cast<T>(n);
  }
  s.scale = inverse_root(x, n, s.shift, s.mean, eps);
  return s;
}

struct Norm {
  double eps;
  bool centred;
  bool has_weight;
  bool has_bias;
};

// A row of weight, or of ones where there is none.
template <class T>
class RowOr {
 public:
  RowOr(const Tensor& t, std::int64_t n, T otherwise) {
    if (t.defined()) {
      row_ = detail::numbers<T>(t);
    } else {
      constant_.assign(static_cast<std::size_t>(n), otherwise);
      row_ = constant_.data();
    }
  }
  const T* get() const { return row_; }

 private:
  const T* row_;
  detail::PoolVector<T> constant_;
};

template <class T>
void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, const Norm& norm,
                    Tensor& y) {
  const std::int64_t n = x.dim(-1);
  const RowOr<T> weights(weight, n, T{1});
  const RowOr<T> biases(bias, n, T{0});
  const T* w = weights.get();
  const T* b = biases.get();
  const T* from = detail::numbers<T>(x);
  T* into = detail::fresh_numbers<T>(y);
  detail::for_ranges(x.numel() / n, detail::row_grain(4 * n),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const T* row = from + i * n;
                         const auto s = row_stats(row, n, norm.centred, static_cast<T>(norm.eps));
                         map_row_lanes(into + i * n, n, [&](auto at) -> decltype(at(w)) {
                           const auto v = at(row);
                           const auto k = at(w);
                           const auto c = at(b);
                           return (v - s.shift - s.mean) * s.scale * k + c;
                         });
                       }
                     });
}

// gx for each row; gradients of weight and bias per chunk of rows, added up in order.
template <class T>
void normalize_vjp_rows(const Tensor& x, const Tensor& weight, const Tensor& gy, const Norm& norm,
                        Tensor& gx, Tensor& gw, Tensor& gb) {
  const std::int64_t n = x.dim(-1);
  const std::int64_t rows = x.numel() / n;
  const RowOr<T> weights(weight, n, T{1});
  const T* w = weights.get();
  const T* from = detail::numbers<T>(x);
  const T* up = detail::numbers<T>(gy);
  T* into = gx.defined() ? detail::fresh_numbers<T>(gx) : nullptr;
  const bool sums = gw.defined() || gb.defined();
  const std::int64_t grain = std::clamp<std::int64_t>(detail::row_grain(8 * n), 16, 256);
  const std::int64_t chunks = (rows + grain - 1) / grain;
  detail::PoolVector<T> partial(sums ? static_cast<std::size_t>(2 * n * chunks) : 0, T{0});
  parallel_for(chunks, [&](std::int64_t chunk) {
    T* w_sum = sums ? partial.data() + 2 * n * chunk : nullptr;
    T* b_sum = sums ? w_sum + n : nullptr;
    for (std::int64_t i = chunk * grain; i < std::min(rows, (chunk + 1) * grain); ++i) {
      const T* row = from + i * n;
      const T* g = up + i * n;
      const auto s = row_stats(row, n, norm.centred, static_cast<T>(norm.eps));
      const auto normal = [&](auto at) -> decltype(at(w)) {
        const auto v = at(row);
        return (v - s.shift - s.mean) * s.scale;
      };
      if (into) {
        const auto slope = [&](auto at) -> decltype(at(w)) {
          const auto u = at(g);
          const auto k = at(w);
          return u * k;
        };
        const T count = static_cast<T>(n);
        const T mean = norm.centred ? sum_row_lanes<T>(n, slope) / count : T{0};
        const T along = sum_row_lanes<T>(
                            n, [&](auto at) -> decltype(at(w)) { return slope(at) * normal(at); }) /
                        count;
        map_row_lanes(into + i * n, n, [&](auto at) -> decltype(at(w)) {
          return (slope(at) - mean - normal(at) * along) * s.scale;
        });
      }
      if (sums) {
        map_row_lanes(w_sum, n, [&](auto at) -> decltype(at(w)) {
          const auto u = at(g);
          const auto total = at(static_cast<const T*>(w_sum));
          return total + u * normal(at);
        });
        map_row_lanes(b_sum, n, [&](auto at) -> decltype(at(w)) {
          const auto u = at(g);
          const auto total = at(static_cast<const T*>(b_sum));
          return total + u;
        });
      }
    }
  });
  const auto add_up = [&](Tensor& total, std::int64_t offset) {
    if (!total.defined()) return;
    detail::PoolVector<double> column(static_cast<std::size_t>(n));
    for (std::int64_t c = 0; c < chunks; ++c) {
      const T* part = partial.data() + 2 * n * c + offset;
      for (std::int64_t j = 0; j < n; ++j) column[static_cast<std::size_t>(j)] += part[j];
    }
    std::transform(column.begin(), column.end(), detail::fresh_numbers<T>(total),
                   [](double sum) { return static_cast<T>(sum); });
  };
  add_up(gw, 0);
  add_up(gb, n);
}

// The same in public ops, for gradients of gradients.
void composed_vjp(Vjp& r, const Norm& norm, const Tensor& x, const Tensor& weight, int bias) {
  const ReduceOptions keep{.keepdim = true};
  const Tensor gy = r.gy();
  Tensor centred = x;
  if (norm.centred) {
    // The shift is a constant: it cancels.
    const Tensor shifted = sub(x, slice(x.detach(), -1, 0, 1));
    centred = sub(shifted, mean(shifted, -1, keep));
  }
  const Tensor scale = rsqrt(add(mean(square(centred), -1, keep), norm.eps));
  const Tensor normal = mul(centred, scale);
  if (r.needs(0)) {
    const Tensor slope = weight.defined() ? mul(gy, weight) : gy;
    Tensor rest = sub(slope, mul(normal, mean(mul(slope, normal), -1, keep)));
    if (norm.centred) rest = sub(rest, mean(slope, -1, keep));
    r.set(0, mul(rest, scale));
  }
  if (norm.has_weight && r.needs(1)) r.set(1, sum_to(mul(gy, normal), r.x_shape(1)));
  if (norm.has_bias && r.needs(bias)) r.set(bias, sum_to(gy, r.x_shape(bias)));
}

void normalize_vjp(Vjp& r) {
  const Norm& norm = r.attributes<Norm>();
  const Tensor x = r.x(0);
  const Tensor weight = norm.has_weight ? r.x(1) : Tensor();
  const int bias = norm.has_weight ? 2 : 1;
  if (r.recording()) return composed_vjp(r, norm, x, weight, bias);
  const auto fresh = [&](bool wanted, int i) {
    return wanted && r.needs(i) ? detail::make_tensor(r.x_shape(i), x.dtype()) : Tensor();
  };
  Tensor gx = fresh(true, 0);
  Tensor gw = fresh(norm.has_weight, 1);
  Tensor gb = fresh(norm.has_bias, bias);
  visit_float(x.dtype(), "layer_norm", [&](auto zero) {
    normalize_vjp_rows<decltype(zero)>(x, weight, r.gy(), norm, gx, gw, gb);
  });
  r.set(0, std::move(gx));
  if (norm.has_weight) r.set(1, std::move(gw));
  if (norm.has_bias) r.set(bias, std::move(gb));
}

const OpInfo kLayerNorm{"layer_norm", normalize_vjp, saves_input(0) | saves_input(1)};
const OpInfo kRmsNorm{"rms_norm", normalize_vjp, saves_input(0) | saves_input(1)};

void check_row(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (!t.defined()) return;
  detail::check_same_float(op, "x", x, name, t);
  if (t.rank() != 1 || t.dim(0) != x.dim(-1)) {
    throw ShapeError(fmt::format("[{}] {} must have the size of the last axis: {} is {}, x is {}",
                                 op, name, name, to_string(t.shape()), to_string(x.shape())));
  }
}

Tensor normalize(const OpInfo& op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 Norm norm) {
  detail::check_float(op.name, "x", x);
  if (x.rank() == 0 || x.dim(-1) == 0) {
    throw ShapeError(fmt::format("[{}] needs a last axis of one or more entries: x is {}", op.name,
                                 to_string(x.shape())));
  }
  check_row(op.name, "weight", weight, x);
  check_row(op.name, "bias", bias, x);
  Tensor y = visit_float(x.dtype(), op.name, [&](auto zero) {
    using T = decltype(zero);
    const T eps = static_cast<T>(norm.eps);
    if (!(eps > 0 && std::isfinite(eps))) {
      throw ValueError(fmt::format("[{}] eps must be positive and finite: got {} in {}", op.name,
                                   norm.eps, to_string(x.dtype())));
    }
    Tensor result = detail::make_tensor(x.shape(), x.dtype());
    normalize_rows<T>(x, weight, bias, norm, result);
    return result;
  });
  // Inputs that are there, in order: record takes no undefined ones.
  const TensorRef inputs[] = {x, norm.has_weight ? weight : bias, bias};
  const std::size_t arity = 1u + norm.has_weight + norm.has_bias;
  std::unique_ptr<detail::Attributes> kept;
  if (detail::will_record(inputs, arity)) {
    kept = std::make_unique<detail::AttributesOf<Norm>>(norm);
  }
  const Saves saves = norm.has_weight ? op.saves : saves_input(0);
  return detail::record(op, saves, std::move(y), inputs, arity, std::move(kept));
}

}  // namespace

Tensor layer_norm(TensorArg x, const Tensor& weight, const Tensor& bias, LayerNormOptions options) {
  return normalize(kLayerNorm, x, weight, bias,
                   {options.eps, true, weight.defined(), bias.defined()});
}

Tensor rms_norm(TensorArg x, const Tensor& weight, RmsNormOptions options) {
  return normalize(kRmsNorm, x, weight, {}, {options.eps, false, weight.defined(), false});
}

}  // namespace softtape
