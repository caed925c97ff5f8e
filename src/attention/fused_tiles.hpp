// What both directions of the fused kernels share: tile sizes, scratch memory, which pairs of a
// tile are visible, and how tiles are laid out for the products.
//
// A tile is a block of queries times a block of keys. Scores are dot products over the whole width,
// scaled afterwards, in both directions: the same chain of operations gives the same bits, so that
// exp(score - shift) repeats exactly even where scores are huge.
#pragma once

#include <algorithm>

#include "attention/fused.hpp"
#include "base/loops.hpp"
#include "base/pool.hpp"
#include "ops/lanes.hpp"
#include "ops/tile.hpp"

namespace softtape::detail {

constexpr std::int64_t kTileQueries = 64;
constexpr std::int64_t kTileKeys = 64;

/// Uninitialised numbers for the length of one task, from the pool.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t numbers)
      : size_class_(size_class_of(static_cast<std::size_t>(numbers) * sizeof(T))),
        next_(static_cast<T*>(take_block(size_class_))),
        block_(next_) {}
  ~Scratch() { give_block(block_, size_class_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// The next `numbers` of them; a multiple of kLanes keeps rows aligned.
  T* take(std::int64_t numbers) {
    T* part = next_;
    next_ += numbers;
    return part;
  }

 private:
  std::uint32_t size_class_;
  T* next_;
  void* block_;
};

inline std::int64_t query_blocks(const FusedProblem& p) {
  return (p.n + kTileQueries - 1) / kTileQueries;
}

enum class Visible { none, some, all };

/// The visible keys of kTileQueries queries of a head, from query `first` on, at a glance; the row
/// of a single query comes from the mask.
struct QueryBlock {
  QueryBlock() = default;
  QueryBlock(const FusedProblem& p, std::int64_t b_, std::int64_t first_)
      : mask(p.mask),
        b(b_),
        first(first_),
        count(std::min(kTileQueries, p.n - first_)),
        end(0),
        all_begin(0),
        all_end(p.m) {
    begin = p.m;
    for (std::int64_t i = 0; i < count; ++i) {
      const MaskRow visible = row(i);
      all_begin = std::max(all_begin, visible.begin);
      all_end = std::min(all_end, visible.end);
      if (visible.begin == visible.end) continue;
      begin = std::min(begin, visible.begin);
      end = std::max(end, visible.end);
    }
  }

  MaskRow row(std::int64_t i) const { return mask->row(b, first + i); }

  /// How much of the tile with keys [from, to) is visible.
  Visible keys(std::int64_t from, std::int64_t to) const {
    if (to <= begin || from >= end || from >= to) return Visible::none;
    const bool inside = all_begin <= from && to <= all_end;
    if (!mask->has_tensor()) return inside ? Visible::all : Visible::some;
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const MaskRow visible = row(i);
      const std::int64_t stop = std::min(to, visible.end);
      for (std::int64_t j = std::max(from, visible.begin); j < stop; ++j) seen += visible.keep[j];
    }
    if (seen == 0) return Visible::none;
    return seen == count * (to - from) ? Visible::all : Visible::some;
  }

  const MaskRows* mask;
  std::int64_t b;
  std::int64_t first;
  std::int64_t count;
  std::int64_t begin;  // outside [begin, end) all keys are hidden from all queries
  std::int64_t end;
  std::int64_t all_begin;  // inside [all_begin, all_end) the intervals of all rows overlap
  std::int64_t all_end;
};

/// The bias of one head: where its row of a query starts, and the step between keys.
template <class T>
struct BiasView {
  const T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t key_stride = 0;

  BiasView(const FusedProblem& p, std::int64_t b)
      : row_stride(p.bias_strides[2]), key_stride(p.bias_strides[3]) {
    if (!p.bias) return;
    data = static_cast<const T*>(p.bias) + b / p.heads * p.bias_strides[0] +
           b % p.heads * p.bias_strides[1];
  }
  T at(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * key_stride]; }
};

/// A matrix as the right side of a product: itself where rows are whole packets, else a copy with
/// padded rows.
template <class T>
struct RightSide {
  const T* data;
  std::int64_t stride;

  static std::int64_t scratch(std::int64_t rows, std::int64_t width) {
    return width % kPacket<T> == 0 ? 0 : rows * padded(width);
  }
  RightSide(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t width, T* copy)
      : data(from), stride(from_stride) {
    if (width % kPacket<T> == 0) return;
    data = copy;
    stride = padded(width);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(from + i * from_stride, width, copy + i * stride);
      std::fill_n(copy + i * stride + width, stride - width, T{0});
    }
  }
};

/// No NaN and no infinity in the matrix.
template <class T>
bool all_finite(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t width) {
  Lanes<T> zeros = Lanes<T>::Zero();
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = x + i * stride;
    std::int64_t j = 0;
    for (; j + kLanes <= width; j += kLanes) zeros += load_lanes(row + j) * T{0};
    if (j < width) zeros += load_lanes(row + j, width - j, T{0}) * T{0};
  }
  return zeros.sum() == T{0};
}

/// y += factor * x over `width` numbers.
template <class T>
void add_scaled(T factor, const T* x, T* y, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) y[j] += factor * x[j];
}

}  // namespace softtape::detail
