// Small matrices: the product that gemm.cpp and the fused attention are made of, and the transpose.
// No set-up, the result held in registers, wide enough for any vector unit. Each result is one
// chain of multiply-adds in the order of the inner index, whichever way the tile is cut.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/lanes.hpp"

namespace softtape::detail {

// Rows and packets of results in registers: with a packet row of b and one number of a, what fits.
constexpr int kRegisters = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS;
constexpr int kProductPackets = kRegisters >= 32 ? 4 : 2;
constexpr int product_rows_of(int packets) { return 12 * packets <= kRegisters * 3 / 4 ? 12 : 6; }

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
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) sum[i][j] = pset1<Packet<T>>(T{0});
  }
  for (std::int64_t p = 0; p < t.depth; ++p) {
    Packet<T> right[P];
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) right[j] = ploadu<Packet<T>>(b + j * kWidth);
#pragma GCC unroll 12
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
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
    T* c = t.c + (row + i) * t.c_stride + column;
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j, c += kWidth) {
      if (stored >= (j + 1) * kWidth) {
        pstoreu(c, kInto == Into::sum ? pmadd(sum[i][j], factor, ploadu<Packet<T>>(c))
                                      : pmul(sum[i][j], factor));
        continue;
      }
      alignas(64) T part[kWidth] = {};
      const std::int64_t count = std::max<std::int64_t>(0, stored - j * kWidth);
      if (kInto == Into::sum) std::copy_n(c, count, part);
      pstoreu(part, kInto == Into::sum ? pmadd(sum[i][j], factor, ploadu<Packet<T>>(part))
                                       : pmul(sum[i][j], factor));
      std::copy_n(part, count, c);
    }
  }
}

// Rows from `row` on, R at a time, then fewer.
template <Left kLeft, Into kInto, int R, int P, class T>
void product_rows(const TileProduct<T>& t, std::int64_t row, std::int64_t column) {
  for (; row + R <= t.rows; row += R) product_in_registers<kLeft, kInto, R, P>(t, row, column);
  constexpr int kFewer = R > 6 ? 6 : R > 4 ? 4 : R / 2;
  if constexpr (kFewer > 0) product_rows<kLeft, kInto, kFewer, P>(t, row, column);
}

template <Left kLeft, Into kInto, int P, class T>
void product_columns(const TileProduct<T>& t, std::int64_t column) {
  if constexpr (P > 1) {
    if (t.columns - column <= (P - 1) * kPacket<T>) {
      product_columns<kLeft, kInto, P - 1>(t, column);
      return;
    }
  }
  product_rows<kLeft, kInto, product_rows_of(P), P>(t, 0, column);
}

template <Left kLeft, Into kInto, class T>
void tile_product(const TileProduct<T>& t) {
  constexpr std::int64_t kStep = std::int64_t{kProductPackets} * kPacket<T>;
  for (std::int64_t column = 0; column < t.columns; column += kStep) {
    product_columns<kLeft, kInto, kProductPackets>(t, column);
  }
}

/// A square of packets. Deduced, since a compiler warns where an argument names a vector type.
template <int kSide, class P>
Eigen::internal::PacketBlock<P, kSide> square_of(const P&) {
  return {};
}

/// to (columns, rows) = the transpose of from (rows, columns), its rows filled up with zeros to
/// whole lanes.
template <class T>
void transpose_tile(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                    T* to, std::int64_t to_stride) {
  constexpr int kSide = kPacket<T>;
  for (std::int64_t i = 0; i < padded(rows); i += kSide) {
    const std::int64_t count = std::clamp<std::int64_t>(rows - i, 0, kSide);
    std::int64_t j = 0;
    for (; count == kSide && j + kSide <= columns; j += kSide) {
      auto square = square_of<kSide>(Packet<T>());
      for (int r = 0; r < kSide; ++r) {
        square.packet[r] = Eigen::internal::ploadu<Packet<T>>(from + (i + r) * stride + j);
      }
      if constexpr (kSide > 1) Eigen::internal::ptranspose(square);
      for (int r = 0; r < kSide; ++r) {
        Eigen::internal::pstoreu(to + (j + r) * to_stride + i, square.packet[r]);
      }
    }
    for (; j < columns; ++j) {
      T* into = to + j * to_stride + i;
      for (std::int64_t r = 0; r < count; ++r) into[r] = from[(i + r) * stride + j];
      std::fill(into + count, into + kSide, T{0});
    }
  }
}

}  // namespace softtape::detail
