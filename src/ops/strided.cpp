// Strided copies: contiguous runs, repeated numbers, blocked transposes.
#include "ops/strided.hpp"

#include <algorithm>
#include <cstring>

#include "base/loops.hpp"

namespace softtape::detail {

namespace {

// Sides of the squares that a transpose goes through: one fits the first cache, in both orders.
constexpr std::int64_t kTile = 16;
// Runs of up to these bytes are moved as one unit, whatever the numbers in them.
constexpr std::int64_t kLargestUnit = 64;

// n units of N bytes, `from_step` and `into_step` bytes apart.
template <std::int64_t N>
void copy_run(const char* from, std::int64_t from_step, char* into, std::int64_t into_step,
              std::int64_t n) {
  if (from_step == N && into_step == N) {
    std::memcpy(into, from, static_cast<std::size_t>(n * N));
    return;
  }
  struct Unit {
    char bytes[N];
  };
  if (from_step == 0 && into_step == N) {
    Unit unit;
    std::memcpy(&unit, from, N);
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(into + i * N, &unit, N);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(into + i * into_step, from + i * from_step, N);
}

template <std::int64_t N>
void copy_rows(const StridedCopy& copy, const char* from, char* into) {
  const int last = copy.rank - 1;
  const std::int64_t inner = copy.sizes[last];
  const std::int64_t from_step = copy.from_steps[last];
  const std::int64_t into_step = copy.into_steps[last];
  const std::int64_t rows = copy.places(last);
  if (rows == 1) {  // a single long run is cut itself
    for_ranges(inner, kGrain, [&](std::int64_t begin, std::int64_t end) {
      copy_run<N>(from + begin * from_step, from_step, into + begin * into_step, into_step,
                  end - begin);
    });
    return;
  }
  for_ranges(rows, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    Places row(copy, last, begin);
    for (std::int64_t i = begin; i < end; ++i, row.next()) {
      copy_run<N>(from + row.from, from_step, into + row.into, into_step, inner);
    }
  });
}

// A tile of the last two axes, n_a by n_b units: read along the first, written along the second.
template <std::int64_t N>
void copy_tile(const char* from, std::int64_t from_step, std::int64_t n_a, char* into,
               std::int64_t into_step, std::int64_t n_b) {
  // Rows of a power of two bytes would drive each other out of the cache: they pass through here.
  char tile[kTile][kTile * N];
  for (std::int64_t b = 0; b < n_b; ++b) {
    std::memcpy(tile[b], from + b * from_step, static_cast<std::size_t>(n_a * N));
  }
  for (std::int64_t a = 0; a < n_a; ++a) {
    char* row = into + a * into_step;
    for (std::int64_t b = 0; b < n_b; ++b) std::memcpy(row + b * N, tile[b] + a * N, N);
  }
}

// The last axis is contiguous in the target, the one before it in the source.
template <std::int64_t N>
void copy_transposed(const StridedCopy& copy, const char* from, char* into) {
  const int a = copy.rank - 2;
  const int b = copy.rank - 1;
  const std::int64_t bands = (copy.sizes[a] + kTile - 1) / kTile;
  const auto tiles = [&](std::int64_t band) {
    const Places plane(copy, a, band / bands);
    const std::int64_t i = band % bands * kTile;
    const std::int64_t n_a = std::min(kTile, copy.sizes[a] - i);
    const char* source = from + plane.from + i * N;
    char* target = into + plane.into + i * copy.into_steps[a];
    for (std::int64_t j = 0; j < copy.sizes[b]; j += kTile) {
      const std::int64_t n_b = std::min(kTile, copy.sizes[b] - j);
      const char* tile_from = source + j * copy.from_steps[b];
      char* tile_into = target + j * N;
      if (n_a == kTile && n_b == kTile) {  // constant sizes are faster
        copy_tile<N>(tile_from, copy.from_steps[b], kTile, tile_into, copy.into_steps[a], kTile);
      } else {
        copy_tile<N>(tile_from, copy.from_steps[b], n_a, tile_into, copy.into_steps[a], n_b);
      }
    }
  };
  for_ranges(copy.places(a) * bands, row_grain(kTile * copy.sizes[b]),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t band = begin; band < end; ++band) tiles(band);
             });
}

template <std::int64_t N>
void run_units(StridedCopy copy, const char* from, char* into) {
  const int last = copy.rank - 1;
  // Units of half a cache line and more gain nothing from tiles.
  if (N < 32 && copy.into_steps[last] == N && copy.from_steps[last] > N) {
    for (int axis = last - 1; axis >= 0; --axis) {
      if (copy.from_steps[axis] != N) continue;
      // Axes that are walked one by one may stand in any order.
      std::swap(copy.sizes[axis], copy.sizes[last - 1]);
      std::swap(copy.from_steps[axis], copy.from_steps[last - 1]);
      std::swap(copy.into_steps[axis], copy.into_steps[last - 1]);
      copy_transposed<N>(copy, from, into);
      return;
    }
  }
  copy_rows<N>(copy, from, into);
}

}  // namespace

void StridedCopy::axis(std::int64_t size, std::int64_t from_step, std::int64_t into_step) {
  if (size == 1) return;
  // Two axes that are one in both places are walked as one.
  if (rank > 0 && from_steps[rank - 1] == from_step * size &&
      into_steps[rank - 1] == into_step * size) {
    sizes[rank - 1] *= size;
    from_steps[rank - 1] = from_step;
    into_steps[rank - 1] = into_step;
    return;
  }
  sizes[rank] = size;
  from_steps[rank] = from_step;
  into_steps[rank] = into_step;
  ++rank;
}

void StridedCopy::run(DType dtype, const char* from, char* into) const {
  StridedCopy copy = *this;
  auto unit = static_cast<std::int64_t>(size_of(dtype));
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.sizes[i] == 0) return;
    copy.from_steps[i] *= unit;
    copy.into_steps[i] *= unit;
  }
  // Only widths matter: a short contiguous run is one wide number.
  const int last = copy.rank - 1;
  if (last >= 0 && copy.from_steps[last] == unit && copy.into_steps[last] == unit) {
    const std::int64_t bytes = copy.sizes[last] * unit;
    if (bytes <= kLargestUnit && (bytes & (bytes - 1)) == 0) {
      unit = bytes;
      --copy.rank;
    }
  }
  if (copy.rank == 0) {
    copy.rank = 1;
    copy.sizes[0] = 1;
    copy.from_steps[0] = copy.into_steps[0] = unit;
  }
  switch (unit) {
    case 1:
      return run_units<1>(copy, from, into);
    case 2:
      return run_units<2>(copy, from, into);
    case 4:
      return run_units<4>(copy, from, into);
    case 8:
      return run_units<8>(copy, from, into);
    case 16:
      return run_units<16>(copy, from, into);
    case 32:
      return run_units<32>(copy, from, into);
    default:
      return run_units<kLargestUnit>(copy, from, into);
  }
}

void fill_zeros(Tensor& y) {
  std::memset(fresh_numbers<char>(y), 0, static_cast<std::size_t>(y.numel()) * size_of(y.dtype()));
}

}  // namespace softtape::detail
