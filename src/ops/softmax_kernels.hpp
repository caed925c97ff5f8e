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
    top = larger(load_visible(x, j, row), top);
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

/// Rows of at most kLanes numbers go sixteen at a time, one row per lane: maxima and sums along a
/// row are then plain lane arithmetic, and few lanes are wasted on padding. Column j of the rows is
/// tile[j].
template <class T>
struct NarrowTile {
  typedef T Column __attribute__((vector_size(kLanes * sizeof(T))));
  Column columns[kLanes];

  Column& operator[](std::int64_t j) { return columns[j]; }
  T& at(std::int64_t row, std::int64_t j) { return reinterpret_cast<T*>(columns + j)[row]; }

  void fill(std::int64_t m, T value) {
    for (std::int64_t j = 0; j < m; ++j) columns[j] = Column{} + value;
  }
  void load(const T* x, std::int64_t rows, std::int64_t m) {
    fill(m, T{0});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < m; ++j) {
        at(r, j) = *x++;
        one_by_one(x);
      }
    }
  }
  void store(T* y, std::int64_t rows, std::int64_t m) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < m; ++j) {
        *y++ = at(r, j);
        one_by_one(y);
      }
    }
  }
  /// Keeps compilers from making vector code of a short loop whose numbers lie apart, which costs
  /// several times the loop.
  static void one_by_one(const T* position) { asm volatile("" : : "r"(position)); }
  /// Every entry of the first m columns.
  auto numbers(std::int64_t m) {
    return Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>, Eigen::AlignedMax>(
        reinterpret_cast<T*>(columns), m * kLanes);
  }
};

/// softmax_row for rows [first, first + rows) of m <= kLanes numbers.
template <class T>
void softmax_narrow(const T* x, T* p, std::int64_t m, std::int64_t first, std::int64_t rows,
                    const MaskRows& mask) {
  using Column = typename NarrowTile<T>::Column;
  NarrowTile<T> shifted;
  NarrowTile<T> weights;
  for (std::int64_t begin = first; begin < first + rows; begin += kLanes) {
    const std::int64_t count = std::min(kLanes, first + rows - begin);
    shifted.fill(m, kMinusInf<T>);
    for (std::int64_t r = 0; r < count; ++r) {
      const MaskRow row = mask.row(begin + r);
      const T* from = x + (begin + r) * m;
      for (std::int64_t j = row.begin; j < row.end; ++j) {
        if (!row.keep || row.keep[j]) shifted.at(r, j) = from[j];
        NarrowTile<T>::one_by_one(from);
      }
    }
    Column shift = Column{} + kMinusInf<T>;
    for (std::int64_t j = 0; j < m; ++j) shift = shifted[j] > shift ? shifted[j] : shift;
    shift = shift == kMinusInf<T> ? Column{} : shift;
    for (std::int64_t j = 0; j < m; ++j) shifted[j] -= shift;
    weights.numbers(m) = shifted.numbers(m).exp();
    // As exp_weights: exact 0 below the range of exp, NaN after a NaN.
    Column sum{};
    for (std::int64_t j = 0; j < m; ++j) {
      const Column e = shifted[j] < ExpRange<T>::low ? Column{} : weights[j];
      weights[j] = shifted[j] == shifted[j] ? e : shifted[j];
      sum += weights[j];
    }
    sum = sum == T{0} ? Column{} + T{1} : sum;
    for (std::int64_t j = 0; j < m; ++j) weights[j] /= sum;
    weights.store(p + begin * m, count, m);
  }
}

/// softmax_vjp_row for `rows` rows of m <= kLanes numbers.
template <class T>
void softmax_vjp_narrow(const T* p, const T* g, T* gx, std::int64_t m, std::int64_t rows) {
  using Column = typename NarrowTile<T>::Column;
  NarrowTile<T> weights;
  NarrowTile<T> centred;
  for (std::int64_t begin = 0; begin < rows; begin += kLanes) {
    const std::int64_t count = std::min(kLanes, rows - begin);
    weights.load(p + begin * m, count, m);
    centred.load(g + begin * m, count, m);
    Column best = weights[0];
    Column top = centred[0];
    for (std::int64_t j = 1; j < m; ++j) {
      top = weights[j] > best ? centred[j] : top;
      best = weights[j] > best ? weights[j] : best;
    }
    Column mean{};
    for (std::int64_t j = 0; j < m; ++j) {
      centred[j] -= top;
      mean += weights[j] == T{0} ? Column{} : weights[j] * centred[j];
    }
    for (std::int64_t j = 0; j < m; ++j) {
      weights[j] = weights[j] == T{0} ? Column{} : weights[j] * (centred[j] - mean);
    }
    weights.store(gx + begin * m, count, m);
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
    sums += zero_where_zero<T>(weight, weight * centred);
  }
  const T mean = sums.sum();
  for (std::int64_t j = 0; j < m; j += kLanes) {
    const std::int64_t n = std::min(kLanes, m - j);
    const Lanes<T> weight = n == kLanes ? load_lanes(p + j) : load_lanes(p + j, n, T{0});
    const Lanes<T> centred = (n == kLanes ? load_lanes(g + j) : load_lanes(g + j, n, T{0})) - top;
    const Lanes<T> out = zero_where_zero<T>(weight, weight * (centred - mean) * factor);
    n == kLanes ? store_lanes(out, gx + j) : store_lanes(out, gx + j, n);
  }
}

}  // namespace softtape::detail
