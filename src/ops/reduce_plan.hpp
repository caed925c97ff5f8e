// Reductions as loops see them: x as (outer, reduced, inner), and folds over the middle axis.
#pragma once

#include <limits>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "ops/vector_math.hpp"
#include "softtape/ops/reduce.hpp"

namespace softtape::detail {

/// The shape with the axes of `mask` at size 1, or without them.
Shape reduced_shape(const Shape& x, std::uint32_t mask, bool keepdim);

/// x as (outer, reduced, inner), row-major. Axes that do not lie so are permuted first.
struct ReducePlan {
  enum class Layout {
    any,   // as it lies
    rows,  // inner is 1: every result has a contiguous row
  };
  ReducePlan(const Tensor& x, std::uint32_t axes, bool keepdim, Layout layout = Layout::any);

  std::uint32_t mask;
  Tensor x;     // the input, or its permuted copy
  Shape shape;  // of the result
  std::int64_t outer = 1;
  std::int64_t reduced = 1;
  std::int64_t inner = 1;
};

/// For rules: a tensor of the result's shape, with the reduced axes back at size 1.
Tensor with_kept_axes(const Tensor& t, const Shape& x, std::uint32_t mask);

/// Elements of x that make one element of the result.
std::int64_t reduced_count(const Shape& x, std::uint32_t mask);

/// Throws: ValueError when a number is asked of nothing.
void check_not_empty(const char* op, const Tensor& x, const ReducePlan& plan);

// A fold takes numbers T one after the other into an Acc, and joins those of blocks in a Total.

template <class T>
struct SumFold {
  using Acc = T;
  using Total = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  static constexpr Acc zero = 0;
  static Acc add(Acc a, T x) { return a + x; }
  static Total join(Total a, Total b) { return a + b; }
};

template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();
template <class T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();

template <class T>
struct MaxFold {
  using Acc = T;
  using Total = T;
  static constexpr T zero = kLowest<T>;
  // A NaN wins, and then loses no comparison any more. Its branch is the one that is predicted.
  static T add(T a, T x) {
    const T top = x > a ? x : a;
    return x != x ? x : top;
  }
  static T join(T a, T b) { return add(a, b); }
};

template <class T>
struct MinFold {
  using Acc = T;
  using Total = T;
  static constexpr T zero = kHighest<T>;
  static T add(T a, T x) {
    const T bottom = x < a ? x : a;
    return x != x ? x : bottom;
  }
  static T join(T a, T b) { return add(a, b); }
};

// Booleans as their bytes, 0 or 1.
struct AnyFold {
  using Acc = unsigned char;
  using Total = unsigned char;
  static constexpr Acc zero = 0;
  static Acc add(Acc a, Acc x) { return a | x; }
  static Acc join(Acc a, Acc b) { return a | b; }
};

struct AllFold {
  using Acc = unsigned char;
  using Total = unsigned char;
  static constexpr Acc zero = 1;
  static Acc add(Acc a, Acc x) { return a & x; }
  static Acc join(Acc a, Acc b) { return a & b; }
};

constexpr std::int64_t kFoldTile = 256;  // columns that are folded side by side
constexpr std::int64_t kFoldRows = 64;   // rows of one block, whose results are joined
constexpr std::int64_t kFoldWidth = 64;  // narrower rows are folded several at a time

/// total[j] = fold of column j over `rows` rows of `width` <= kFoldTile columns.
template <class Fold, class T>
void fold_columns(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t width,
                  typename Fold::Total* total) {
  typename Fold::Acc acc[kFoldTile];
  std::fill_n(total, width, typename Fold::Total{Fold::zero});
  for (std::int64_t first = 0; first < rows; first += kFoldRows) {
    const std::int64_t last = std::min(rows, first + kFoldRows);
    std::fill_n(acc, width, Fold::zero);
    for (std::int64_t row = first; row < last; ++row) {
      const T* from = x + row * stride;
      for (std::int64_t j = 0; j < width; ++j) acc[j] = Fold::add(acc[j], from[j]);
    }
    for (std::int64_t j = 0; j < width; ++j) total[j] = Fold::join(total[j], acc[j]);
  }
}

/// The same over whole rows of few columns: as many rows side by side as fill the lanes.
template <class Fold, class T>
void fold_narrow(const T* x, std::int64_t rows, std::int64_t width, typename Fold::Total* total) {
  if constexpr (std::is_same_v<Fold, SumFold<T>> && std::is_floating_point_v<T>) {
    if (width == 1) {
      total[0] = static_cast<double>(sum_numbers(x, rows));
      return;
    }
  }
  if (width == 1 && rows < kFoldWidth / 2) {
    typename Fold::Acc acc = Fold::zero;
    for (std::int64_t i = 0; i < rows; ++i) acc = Fold::add(acc, x[i]);
    total[0] = acc;
    return;
  }
  const std::int64_t lanes = rows * width < 4 * kFoldWidth ? kFoldWidth / 4 : kFoldWidth;
  const std::int64_t side = lanes / width;
  const std::int64_t whole = side > 1 ? rows / side : 0;
  if (whole < 2) return fold_columns<Fold>(x, rows, width, width, total);
  typename Fold::Total wide[kFoldTile];
  fold_columns<Fold>(x, whole, side * width, side * width, wide);
  const T* rest = x + whole * side * width;
  fold_columns<Fold>(rest, rows - whole * side, width, width, total);
  for (std::int64_t i = 0; i < side * width; ++i) {
    total[i % width] = Fold::join(total[i % width], wide[i]);
  }
}

/// y = fold of plan.x over its middle axis. Long folds with few results are cut into blocks of
/// rows, by size alone, and joined in order.
template <class Fold, class T, class Y>
void fold(const ReducePlan& plan, Y* y) {
  using Total = typename Fold::Total;
  const T* x = numbers<T>(plan.x);
  const std::int64_t inner = plan.inner;
  const std::int64_t reduced = plan.reduced;
  const std::int64_t tiles = (inner + kFoldTile - 1) / kFoldTile;
  const auto fold_part = [&](std::int64_t outer, std::int64_t tile, std::int64_t first,
                             std::int64_t rows, Total* total) {
    const T* from = x + (outer * reduced + first) * inner + tile * kFoldTile;
    const std::int64_t width = std::min(kFoldTile, inner - tile * kFoldTile);
    if (inner * 2 <= kFoldWidth) {
      fold_narrow<Fold>(from, rows, inner, total);
    } else {
      fold_columns<Fold>(from, rows, inner, width, total);
    }
    return width;
  };

  constexpr std::int64_t kEnoughParts = 16;
  const std::int64_t parts = plan.outer * tiles;
  if (parts >= kEnoughParts || reduced * inner <= kGrain) {
    const std::int64_t cost = reduced * std::min(inner, kFoldTile);
    for_ranges(parts, row_grain(cost), [&](std::int64_t begin, std::int64_t end) {
      Total total[kFoldTile];
      std::int64_t outer = begin / tiles;
      std::int64_t tile = begin % tiles;
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t width = fold_part(outer, tile, 0, reduced, total);
        Y* into = y + outer * inner + tile * kFoldTile;
        for (std::int64_t j = 0; j < width; ++j) into[j] = static_cast<Y>(total[j]);
        if (++tile == tiles) {
          tile = 0;
          ++outer;
        }
      }
    });
    return;
  }

  const std::int64_t block = std::max(kFoldRows, kGrain / inner);
  const std::int64_t blocks = (reduced + block - 1) / block;
  const std::int64_t space = std::min(inner, kFoldTile);
  PoolVector<Total> totals(static_cast<std::size_t>(parts * blocks * space));
  parallel_for(parts * blocks, [&](std::int64_t i) {
    const std::int64_t part = i / blocks;
    const std::int64_t first = i % blocks * block;
    fold_part(part / tiles, part % tiles, first, std::min(block, reduced - first),
              totals.data() + i * space);
  });
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part % tiles * kFoldTile;
    for (std::int64_t j = 0; j < std::min(kFoldTile, inner - first); ++j) {
      const Total* from = totals.data() + part * blocks * space + j;
      Total total = Fold::zero;
      for (std::int64_t b = 0; b < blocks; ++b) total = Fold::join(total, from[b * space]);
      y[part / tiles * inner + first + j] = static_cast<Y>(total);
    }
  }
}

}  // namespace softtape::detail
