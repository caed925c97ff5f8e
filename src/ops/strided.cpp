// Strided copies: contiguous runs, repeated numbers, blocked transposes.
#include "ops/strided.hpp"

#include <algorithm>
#include <cstring>

#include "base/loops.hpp"

namespace softtape::detail {

namespace {

// A side of the squares that a transpose works on: both sides of one fit the first cache.
constexpr std::int64_t kTile = 32;

template <class T>
void copy_run(const T* from, std::int64_t from_step, T* into, std::int64_t into_step,
              std::int64_t n) {
  if (into_step != 1) {
    for (std::int64_t i = 0; i < n; ++i) into[i * into_step] = from[i * from_step];
  } else if (from_step == 1) {
    std::copy_n(from, n, into);
  } else if (from_step == 0) {
    std::fill_n(into, n, *from);
  } else {
    for (std::int64_t i = 0; i < n; ++i) into[i] = from[i * from_step];
  }
}

template <class T>
void copy_rows(const StridedCopy& copy, const T* from, T* into) {
  const int last = copy.rank - 1;
  const std::int64_t inner = copy.sizes[last];
  const std::int64_t rows = copy.places(last);
  // A single long run is cut itself.
  if (rows == 1) {
    for_ranges(inner, kGrain, [&](std::int64_t begin, std::int64_t end) {
      copy_run(from + begin * copy.from_steps[last], copy.from_steps[last],
               into + begin * copy.into_steps[last], copy.into_steps[last], end - begin);
    });
    return;
  }
  for_ranges(rows, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    Places row(copy, last, begin);
    for (std::int64_t i = begin; i < end; ++i, row.next()) {
      copy_run(from + row.from, copy.from_steps[last], into + row.into, copy.into_steps[last],
               inner);
    }
  });
}

// The last axis is contiguous in the target, the one before it in the source.
template <class T>
void copy_transposed(const StridedCopy& copy, const T* from, T* into) {
  const int a = copy.rank - 2;
  const int b = copy.rank - 1;
  const std::int64_t bands = (copy.sizes[a] + kTile - 1) / kTile;
  const std::int64_t planes = copy.places(a);
  for_ranges(planes * bands, row_grain(kTile * copy.sizes[b]),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t band = begin; band < end; ++band) {
                 const Places plane(copy, a, band / bands);
                 const std::int64_t first = band % bands * kTile;
                 const std::int64_t limit = std::min(copy.sizes[a], first + kTile);
                 for (std::int64_t j = 0; j < copy.sizes[b]; j += kTile) {
                   const std::int64_t n = std::min(kTile, copy.sizes[b] - j);
                   for (std::int64_t i = first; i < limit; ++i) {
                     copy_run(from + plane.from + i + j * copy.from_steps[b], copy.from_steps[b],
                              into + plane.into + i * copy.into_steps[a] + j, std::int64_t{1}, n);
                   }
                 }
               }
             });
}

template <class T>
void run_copy(StridedCopy copy, const char* from, char* into) {
  const auto* source = reinterpret_cast<const T*>(from);
  auto* target = reinterpret_cast<T*>(into);
  const int last = copy.rank - 1;
  if (copy.into_steps[last] == 1 && copy.from_steps[last] > 1) {
    for (int axis = last - 1; axis >= 0; --axis) {
      if (copy.from_steps[axis] != 1) continue;
      // Axes that are walked one by one may stand in any order.
      std::swap(copy.sizes[axis], copy.sizes[last - 1]);
      std::swap(copy.from_steps[axis], copy.from_steps[last - 1]);
      std::swap(copy.into_steps[axis], copy.into_steps[last - 1]);
      copy_transposed(copy, source, target);
      return;
    }
  }
  copy_rows(copy, source, target);
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
  if (copy.rank == 0) {
    copy.rank = 1;
    copy.sizes[0] = copy.from_steps[0] = copy.into_steps[0] = 1;
  }
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.sizes[i] == 0) return;
  }
  visit_any(dtype, [&](auto zero) { run_copy<decltype(zero)>(copy, from, into); });
}

void fill_zeros(Tensor& y) {
  std::memset(fresh_numbers<char>(y), 0, static_cast<std::size_t>(y.numel()) * size_of(y.dtype()));
}

}  // namespace softtape::detail
