// One row of softmax, forward and backward: shared by the ops and by attention.
#pragma once

#include "ops/lanes.hpp"
#include "ops/mask_rows.hpp"

namespace softtape::detail {

template <class T>
constexpr T kMinusInf = -std::numeric_limits<T>::infinity();

/// Lanes [j, j + 16) of a row with hidden keys and the padding at -Inf.
template <class T>
Lanes<T> load_visible(const T* x, std::int64_t j, const MaskRow& row) {
  const std::int64_t n = std::min(kLanes, row.end - j);
  if (n == kLanes && !row.keep) return load_lanes(x + j);
  Lanes<T> v = Lanes<T>::Constant(kMinusInf<T>);
  for (std::int64_t i = 0; i < n; ++i) {
    if (!row.keep || row.keep[j + i]) v[i] = x[j + i];
  }
  return v;
}

/// The largest visible score, or 0 where there is none: what a row is shifted by. A NaN never wins.
template <class T>
T row_shift(const T* x, const MaskRow& row) {
  Lanes<T> top = Lanes<T>::Constant(kMinusInf<T>);
  for (std::int64_t j = row.begin; j < row.end; j += kLanes) {
    const Lanes<T> v = load_visible(x, j, row);
    top = (v > top).select(v, top);
  }
  const T shift = top.maxCoeff();
  return shift == kMinusInf<T> ? T{0} : shift;
}

template <class T>
struct ShiftedSum {
  T shift;
  T sum;  // of exp(x - shift) over the visible part; 0 when nothing is visible, NaN after a NaN
};

/// logsumexp(x) = shift + ln(sum), in its two parts.
template <class T>
ShiftedSum<T> softmax_sum(const T* x, const MaskRow& row) {
  const T shift = row_shift(x, row);
  Lanes<T> sums = Lanes<T>::Zero();
  for (std::int64_t j = row.begin; j < row.end; j += kLanes) {
    sums += exp_weights<T>(load_visible(x, j, row) - shift);
  }
  return {shift, sums.sum()};
}

/// p = softmax of the visible part of x (m numbers), zeros elsewhere; p may be the memory of x.
template <class T>
ShiftedSum<T> softmax_row(const T* x, T* p, std::int64_t m, const MaskRow& row) {
  const T shift = row_shift(x, row);
  Lanes<T> sums = Lanes<T>::Zero();
  for (std::int64_t j = row.begin; j < row.end; j += kLanes) {
    const Lanes<T> e = exp_weights<T>(load_visible(x, j, row) - shift);
    sums += e;
    store_lanes<T>(e, p + j, std::min(kLanes, row.end - j));
  }
  std::fill(p, p + row.begin, T{0});
  std::fill(p + row.end, p + m, T{0});
  const T sum = sums.sum();
  if (sum == 0) return {shift, sum};  // nothing visible: the weights are exact zeros already
  std::int64_t j = row.begin;
  for (; j + kLanes <= row.end; j += kLanes) store_lanes<T>(load_lanes(p + j) / sum, p + j);
  for (; j < row.end; ++j) p[j] /= sum;
  return {shift, sum};
}

/// Rows of at most kLanes numbers, `rows` of them from row `first` on: each is laid out in lanes of
/// its own first, since a load right after narrower stores would wait for them.
template <class T>
void softmax_narrow(const T* x, T* p, std::int64_t m, std::int64_t first, std::int64_t rows,
                    const MaskRows& mask) {
  constexpr std::int64_t kTile = 16;
  alignas(64) T tile[kTile * kLanes];
  for (std::int64_t begin = first; begin < first + rows; begin += kTile) {
    const std::int64_t count = std::min(kTile, first + rows - begin);
    for (std::int64_t r = 0; r < count; ++r) {
      T* lanes = tile + r * kLanes;
      store_lanes<T>(Lanes<T>::Constant(kMinusInf<T>), lanes);
      const MaskRow row = mask.row(begin + r);
      const T* from = x + (begin + r) * m;
      for (std::int64_t j = row.begin; j < row.end; ++j) {
        if (!row.keep || row.keep[j]) lanes[j] = from[j];
      }
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const Lanes<T> v = load_lanes(tile + r * kLanes);
      const T top = v.template maxCoeff<Eigen::PropagateNumbers>();
      const Lanes<T> e = exp_weights<T>(v - (top == kMinusInf<T> ? T{0} : top));
      const T sum = e.sum();
      store_lanes<T>(e / (sum == 0 ? T{1} : sum), tile + r * kLanes);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(tile + r * kLanes, m, p + (begin + r) * m);
    }
  }
}

/// gx = p (g' - sum p g') with g' = g - g[argmax p], over m numbers. Where p is 0, gx is 0.
/// gx may be the memory of g.
template <class T>
void softmax_vjp_row(const T* p, const T* g, T* gx, std::int64_t m, T factor = T{1}) {
  std::int64_t winner = 0;
  for (std::int64_t j = 1; j < m; ++j) {
    if (p[j] > p[winner]) winner = j;
  }
  const T top = g[winner];
  Lanes<T> sums = Lanes<T>::Zero();
  for (std::int64_t j = 0; j < m; j += kLanes) {
    const std::int64_t n = std::min(kLanes, m - j);
    const Lanes<T> weight = n == kLanes ? load_lanes(p + j) : load_lanes(p + j, n, T{0});
    const Lanes<T> centred = (n == kLanes ? load_lanes(g + j) : load_lanes(g + j, n, T{0})) - top;
    sums += (weight == 0).select(T{0}, weight * centred);
  }
  const T mean = sums.sum();
  for (std::int64_t j = 0; j < m; j += kLanes) {
    const std::int64_t n = std::min(kLanes, m - j);
    const Lanes<T> weight = n == kLanes ? load_lanes(p + j) : load_lanes(p + j, n, T{0});
    const Lanes<T> centred = (n == kLanes ? load_lanes(g + j) : load_lanes(g + j, n, T{0})) - top;
    const Lanes<T> out = (weight == 0).select(T{0}, weight * (centred - mean) * factor);
    n == kLanes ? store_lanes(out, gx + j) : store_lanes(out, gx + j, n);
  }
}

}  // namespace softtape::detail
