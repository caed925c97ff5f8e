// Products: loops of fixed width for small ones, tiles in registers for the rest.
#include "ops/gemm.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "ops/tile.hpp"

namespace softtape::detail {
namespace {

// Below this many multiplications the set-up of a blocked product costs more than the product.
constexpr std::int64_t kSmall = 6000;
constexpr std::int64_t kSmallColumns = 64;

// A row of b or c as the small products see it: one vector of a power of two of columns.
template <class T, int width>
struct RowOf {
  typedef T type __attribute__((vector_size(width * sizeof(T))));
};

/// `rows` rows of c (n, M) = a b, with b in rows of a whole vector each: both widths are constants,
/// so the sums stay in registers.
template <class T, int M, int rows>
void small_rows(const T* a, std::int64_t a_row, std::int64_t a_column, const T* b, T* c,
                std::int64_t c_stride, std::int64_t k) {
  constexpr auto kWidth = static_cast<int>(std::bit_ceil(static_cast<unsigned>(M)));
  using Row = typename RowOf<T, kWidth>::type;
  Row sum[rows] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    Row b_row;
    std::memcpy(&b_row, b + p * kWidth, sizeof(Row));
    for (int i = 0; i < rows; ++i) sum[i] += b_row * a[i * a_row + p * a_column];
  }
  for (int i = 0; i < rows; ++i) {
    T* row = c + i * c_stride;
    std::memcpy(row, &sum[i], M * sizeof(T));
  }
}

template <class T, int M>
void small_product(const T* a, std::int64_t a_row, std::int64_t a_column, const MatrixRef<T>& b,
                   T* c, std::int64_t c_stride, std::int64_t n, std::int64_t k) {
  constexpr auto kWidth = static_cast<int>(std::bit_ceil(static_cast<unsigned>(M)));
  using Row = typename RowOf<T, kWidth>::type;
  T packed[kSmall];
  const T* rows = b.data;
  if (b.transposed || b.stride != M || M != kWidth) {
    const std::int64_t b_row = b.transposed ? 1 : b.stride;
    const std::int64_t b_column = b.transposed ? b.stride : 1;
    for (std::int64_t p = 0; p < k; ++p) {
      Row row{};
      for (int j = 0; j < M; ++j) row[j] = b.data[p * b_row + j * b_column];
      std::memcpy(packed + p * kWidth, &row, sizeof(Row));
    }
    rows = packed;
  }
  constexpr int kRows = kWidth <= 8 ? 4 : 2;
  std::int64_t i = 0;
  for (; i + kRows <= n; i += kRows) {
    small_rows<T, M, kRows>(a + i * a_row, a_row, a_column, rows, c + i * c_stride, c_stride, k);
  }
  for (; i < n; ++i) {
    small_rows<T, M, 1>(a + i * a_row, a_row, a_column, rows, c + i * c_stride, c_stride, k);
  }
}

template <class T>
using SmallProduct = void (*)(const T*, std::int64_t, std::int64_t, const MatrixRef<T>&, T*,
                              std::int64_t, std::int64_t, std::int64_t);
template <class T, int... M>
constexpr auto small_products(std::integer_sequence<int, M...>) {
  return std::array<SmallProduct<T>, sizeof...(M)>{small_product<T, M + 1>...};
}

template <class T>
void product_by_loops(const MatrixRef<T>& a, const MatrixRef<T>& b, T* c, std::int64_t n,
                      std::int64_t k, std::int64_t m) {
  static constexpr auto kProducts = small_products<T>(std::make_integer_sequence<int, 16>());
  const std::int64_t a_row = a.transposed ? 1 : a.stride;
  const std::int64_t a_column = a.transposed ? a.stride : 1;
  if (m <= 16) {
    kProducts[static_cast<std::size_t>(m - 1)](a.data, a_row, a_column, b, c, m, n, k);
    return;
  }
  for (std::int64_t j = 0; j < m; j += 16) {
    const std::int64_t width = std::min<std::int64_t>(16, m - j);
    kProducts[static_cast<std::size_t>(width - 1)](a.data, a_row, a_column, b.columns_from(j),
                                                   c + j, m, n, k);
  }
}

// Rows and columns of b that one pass over the rows of a reads: they stay in the innermost cache.
constexpr std::int64_t kDepth = 128;
template <class T>
constexpr std::int64_t kPanel = 256 / sizeof(T);

/// `rows` by `columns` numbers of b from (row, column) on, as the right side of a tile product:
/// where they lie, or copied where they are columns or no whole packets.
template <class T>
struct Panel {
  const T* data;
  std::int64_t stride;

  Panel(const MatrixRef<T>& b, std::int64_t row, std::int64_t rows, std::int64_t column,
        std::int64_t columns, T* copy)
      : data(b.data + row * b.stride + column), stride(b.stride) {
    if (!b.transposed && columns % kPacket<T> == 0) return;
    if (b.transposed) {
      transpose_tile(b.data + column * b.stride + row, b.stride, columns, rows, copy, kPanel<T>);
    } else {
      for (std::int64_t i = 0; i < rows; ++i) {
        std::copy_n(data + i * stride, columns, copy + i * kPanel<T>);
        std::fill(copy + i * kPanel<T> + columns, copy + (i + 1) * kPanel<T>, T{0});
      }
    }
    data = copy;
    stride = kPanel<T>;
  }
};

template <Into kInto, class T>
void add_tile(bool a_transposed, const TileProduct<T>& tile) {
  if (a_transposed) {
    tile_product<Left::transposed, kInto>(tile);
  } else {
    tile_product<Left::plain, kInto>(tile);
  }
}

template <class T>
void product_by_tiles(const MatrixRef<T>& a, const MatrixRef<T>& b, T* c, std::int64_t n,
                      std::int64_t k, std::int64_t m) {
  alignas(64) T copy[kDepth * kPanel<T>];
  for (std::int64_t p = 0; p == 0 || p < k; p += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - p);
    for (std::int64_t j = 0; j < m; j += kPanel<T>) {
      const std::int64_t columns = std::min(kPanel<T>, m - j);
      const Panel<T> panel(b, p, depth, j, columns, copy);
      const TileProduct<T> tile{.a = a.columns_from(p).data,
                                .a_stride = a.stride,
                                .b = panel.data,
                                .b_stride = panel.stride,
                                .c = c + j,
                                .c_stride = m,
                                .rows = n,
                                .columns = columns,
                                .depth = depth};
      if (p == 0) {
        add_tile<Into::fresh>(a.transposed, tile);
      } else {
        add_tile<Into::sum>(a.transposed, tile);
      }
    }
  }
}

// One row or one column, which fill no tile: y[i] = the sum over p of rows[i * stride + p] * x[p].
template <class T>
void dot_rows(const T* rows, std::int64_t stride, const T* x, T* y, std::int64_t n,
              std::int64_t k) {
  using Vector = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>>;
  const Vector column(x, k);
  for (std::int64_t i = 0; i < n; ++i) y[i] = Vector(rows + i * stride, k).dot(column);
}

template <class T>
void product(const MatrixRef<T>& a, const MatrixRef<T>& b, T* c, std::int64_t n, std::int64_t k,
             std::int64_t m) {
  if (n == 0 || m == 0) return;
  const bool b_contiguous = b.transposed || b.stride == 1;
  if (m == 1 && b_contiguous && !a.transposed) {
    dot_rows(a.data, a.stride, b.data, c, n, k);
  } else if (m == 1 && b_contiguous) {
    // The transpose of both sides: its row is read as a lies.
    product_by_tiles(MatrixRef<T>{b.data, k}, MatrixRef<T>{a.data, a.stride}, c, 1, k, n);
  } else if (n == 1 && b.transposed && (!a.transposed || a.stride == 1)) {
    dot_rows(b.data, b.stride, a.data, c, m, k);
  } else if (n * k * m <= kSmall && m <= kSmallColumns && k * 16 <= kSmall) {
    product_by_loops(a, b, c, n, k, m);
  } else {
    product_by_tiles(a, b, c, n, k, m);
  }
}

}  // namespace

void gemm(const MatrixRef<float>& a, const MatrixRef<float>& b, float* c, std::int64_t n,
          std::int64_t k, std::int64_t m) {
  product(a, b, c, n, k, m);
}
void gemm(const MatrixRef<double>& a, const MatrixRef<double>& b, double* c, std::int64_t n,
          std::int64_t k, std::int64_t m) {
  product(a, b, c, n, k, m);
}

}  // namespace softtape::detail
