// The product of small matrices that the fused kernels are made of: no packing, no set-up, the
// result held in registers. Wide enough for any vector unit; each result is one chain of
// multiply-adds in the order of the inner index, whichever way the tile is cut.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/lanes.hpp"

namespace softtape::detail {

// Rows and packets of results in registers: with a packet row of b and one number of a, what fits.
constexpr int kProductRows = 6;
constexpr int kProductPackets = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 ? 4 : 2;

/// c = factor * (a b), or c += factor * (a b): a is (rows, depth), b (depth, columns), c
/// (rows, columns). Rows of b and c are contiguous; those of b are read up to the next whole packet
/// of numbers, of which any finite or non-finite ones stay without effect.
template <class T>
struct TileProduct {
  const T* a;
  std::int64_t a_stride;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  T factor = T{1};
};

/// How a lies in memory: element (i, p) at i * stride + p, or at p * stride + i.
enum class Left { plain, transposed };
enum class Into { fresh, sum };

template <Left kLeft, Into kInto, int R, int P, class T>
void product_in_registers(const TileProduct<T>& t, std::int64_t row, std::int64_t column) {
  using namespace Eigen::internal;
  constexpr int kWidth = kPacket<T>;
  const T* a = t.a + (kLeft == Left::plain ? row * t.a_stride : row);
  const T* b = t.b + column;
  Packet<T> sum[R][P];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) sum[i][j] = pset1<Packet<T>>(T{0});
  }
  for (std::int64_t p = 0; p < t.depth; ++p) {
    Packet<T> right[P];
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) right[j] = ploadu<Packet<T>>(b + j * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const Packet<T> left = pset1<Packet<T>>(kLeft == Left::plain ? a[i * t.a_stride] : a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) sum[i][j] = pmadd(left, right[j], sum[i][j]);
    }
    a += kLeft == Left::plain ? 1 : t.a_stride;
    b += t.b_stride;
  }
  const Packet<T> factor = pset1<Packet<T>>(t.factor);
  const std::int64_t stored = std::min<std::int64_t>(t.columns - column, P * kWidth);
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
    T* c = t.c + (row + i) * t.c_stride + column;
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j, c += kWidth) {
      if (stored >= (j + 1) * kWidth) {
        pstoreu(c, kInto == Into::sum ? pmadd(sum[i][j], factor, ploadu<Packet<T>>(c))
                                      : pmul(sum[i][j], factor));
        continue;
      }
      alignas(64) T last[kWidth];
      pstoreu(last, pmul(sum[i][j], factor));
      for (std::int64_t q = 0; q < stored - j * kWidth; ++q) {
        c[q] = kInto == Into::sum ? c[q] + last[q] : last[q];
      }
    }
  }
}

template <Left kLeft, Into kInto, int R, int P, class T>
void product_rows(const TileProduct<T>& t, std::int64_t row, std::int64_t column) {
  if (t.rows - row == R) {
    product_in_registers<kLeft, kInto, R, P>(t, row, column);
  } else if constexpr (R > 1) {
    product_rows<kLeft, kInto, R - 1, P>(t, row, column);
  }
}

template <Left kLeft, Into kInto, int P, class T>
void product_columns(const TileProduct<T>& t, std::int64_t column) {
  if constexpr (P > 1) {
    if (t.columns - column <= (P - 1) * kPacket<T>) {
      product_columns<kLeft, kInto, P - 1>(t, column);
      return;
    }
  }
  std::int64_t row = 0;
  for (; row + kProductRows <= t.rows; row += kProductRows) {
    product_in_registers<kLeft, kInto, kProductRows, P>(t, row, column);
  }
  product_rows<kLeft, kInto, kProductRows - 1, P>(t, row, column);
}

template <Left kLeft, Into kInto, class T>
void tile_product(const TileProduct<T>& t) {
  constexpr std::int64_t kStep = std::int64_t{kProductPackets} * kPacket<T>;
  for (std::int64_t column = 0; column < t.columns; column += kStep) {
    product_columns<kLeft, kInto, kProductPackets>(t, column);
  }
}

}  // namespace softtape::detail
