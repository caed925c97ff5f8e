// matmul: rank rules, batches, and the rule that is matmul again. The product itself is gemm.cpp.
#include "softtape/ops/matmul.hpp"

#include <fmt/format.h>

#include "base/loops.hpp"
#include "ops/cotangent.hpp"
#include "ops/gemm.hpp"
#include "ops/map.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

// Not reshape with -1, which cannot tell the rows of an empty matrix.
Tensor as_rows(const Tensor& x) { return x.rank() == 2 ? x : flatten(x, 0, -2); }

const OpInfo kMatmul{"matmul",
                     [](Vjp& r) {
                       const auto [ta, tb] = r.attributes<MatmulOptions>();
                       const Tensor& g = r.gy();
                       if (r.needs(0)) {
                         const Tensor b = r.x(1);
                         Tensor ga = ta ? matmul(b, g, {.transpose_a = tb, .transpose_b = true})
                                        : matmul(g, b, {.transpose_b = !tb});
                         detail::set_summed(r, 0, std::move(ga));
                       }
                       if (r.needs(1)) {
                         Tensor a = r.x(0);
                         Tensor upstream = g;
                         if (!ta && a.rank() > 2 && r.x_shape(1).rank() == 2) {
                           // One weight for a whole batch: the sum over the batch is one long
                           // product.
                           a = as_rows(a);
                           upstream = as_rows(g);
                         }
                         Tensor gb =
                             tb ? matmul(upstream, a, {.transpose_a = true, .transpose_b = ta})
                                : matmul(a, upstream, {.transpose_a = !ta});
                         detail::set_summed(r, 1, std::move(gb));
                       }
                     },
                     saves_inputs};

struct Sizes {
  std::int64_t n, k, m;
  bool one_long;  // b serves every row of a: the batch is one product
  bool single;    // one product, so or because there is no batch
};

[[noreturn, gnu::cold, gnu::noinline]] void throw_inner_sizes(const Shape& a, const Shape& b,
                                                              const MatmulOptions& options) {
  const std::int64_t n = a.dim(options.transpose_a ? -1 : -2);
  const std::int64_t k = a.dim(options.transpose_a ? -2 : -1);
  const std::int64_t kb = b.dim(options.transpose_b ? -1 : -2);
  const std::int64_t m = b.dim(options.transpose_b ? -2 : -1);
  // The hint names the flag that would make the sizes meet, where there is one.
  const char* hint = "";
  if (k == m) {
    hint = options.transpose_b ? "; drop transpose_b" : "; pass {.transpose_b = true} for a b^T";
  } else if (n == kb) {
    hint = options.transpose_a ? "; drop transpose_a" : "; pass {.transpose_a = true} for a^T b";
  }
  throw ShapeError(fmt::format("[matmul] inner sizes must match: a is {}{}, b is {}{}, {} != {}{}",
                               to_string(a), options.transpose_a ? " transposed" : "", to_string(b),
                               options.transpose_b ? " transposed" : "", k, kb, hint));
}

Sizes check_sizes(const Shape& a, const Shape& b, const MatmulOptions& options) {
  Sizes s;
  s.n = a[a.rank() - (options.transpose_a ? 1 : 2)];
  s.k = a[a.rank() - (options.transpose_a ? 2 : 1)];
  s.m = b[b.rank() - (options.transpose_b ? 2 : 1)];
  if (s.k != b[b.rank() - (options.transpose_b ? 1 : 2)]) throw_inner_sizes(a, b, options);
  s.one_long = b.rank() == 2 && !options.transpose_a;
  s.single = s.one_long || (a.rank() == 2 && b.rank() == 2);
  if (s.one_long) {
    for (int axis = 0; axis < a.rank() - 2; ++axis) s.n *= a[axis];
  }
  return s;
}

Shape leading(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 2)));
}

[[gnu::noinline]] Shape batched_shape(const Shape& a, const Shape& b, const Sizes& s) {
  if (s.one_long) return a.with(a.rank() - 1, s.m);
  const Shape batch = broadcast("matmul", leading(a), leading(b));
  return batch.inserted(batch.rank(), s.n).inserted(batch.rank() + 1, s.m);
}

template <class T>
detail::MatrixRef<T> as_used(const Tensor& b, bool transposed, const Sizes& s) {
  return {detail::numbers<T>(b), transposed ? s.k : s.m, transposed};
}

// Rows [begin, begin + rows) of one product.
template <class T>
void multiply_rows(const T* a, bool transpose_a, const detail::MatrixRef<T>& b, T* y,
                   const Sizes& s, std::int64_t begin, std::int64_t rows) {
  const detail::MatrixRef<T> left{a, transpose_a ? s.n : s.k, transpose_a};
  detail::gemm(left.rows_from(begin), b, y + begin * s.m, rows, s.k, s.m);
}

// Rows in blocks of whole tiles; the last block takes the remaining rows too, so that no row is
// computed in another way than the others. A multiple of four blocks, so that threads have the same
// share.
struct RowBlocks {
  RowBlocks(std::int64_t rows, std::int64_t least)
      : n(rows), count(std::max<std::int64_t>(1, n / least)) {
    if (count >= 4) count = count / 4 * 4;
  }
  std::int64_t begin(std::int64_t block) const {
    constexpr std::int64_t kTile = 6;
    return detail::cut(n, kTile, count, block);
  }

  std::int64_t n;
  std::int64_t count;
};

// Chunks: several small products, or a block of rows of a large one.
template <class T>
[[gnu::noinline]] void multiply_blocks(const Tensor& a, const Tensor& b, const Tensor& y,
                                       const MatmulOptions& options, const Sizes& s) {
  const Shape batch = s.single ? Shape{} : leading(y.shape());
  const detail::BroadcastPlan plan(batch, s.single ? Shape{} : leading(a.shape()),
                                   s.single ? Shape{} : leading(b.shape()));
  // Each block of rows transposes what it needs of b.
  const std::int64_t least =
      std::max<std::int64_t>(detail::gemm_rows(s.k, s.m), options.transpose_b ? 192 : 1);
  const RowBlocks rows(s.n, least);
  const std::int64_t blocks = rows.count;
  const std::int64_t cost = s.n / blocks * s.k * s.m / 8;
  const T* pa = detail::numbers<T>(a);
  T* py = detail::fresh_numbers<T>(y);
  const detail::MatrixRef<T> right = as_used<T>(b, options.transpose_b, s);
  detail::for_ranges(
      batch.numel() * blocks, detail::row_grain(cost), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          std::int64_t ia, ib;
          plan.element(i / blocks, ia, ib);
          const std::int64_t row = rows.begin(i % blocks);
          detail::MatrixRef<T> b_i = right;
          b_i.data += ib * s.k * s.m;
          multiply_rows(pa + ia * s.n * s.k, options.transpose_a, b_i, py + i / blocks * s.n * s.m,
                        s, row, rows.begin(i % blocks + 1) - row);
        }
      });
}

// Whether to cut a product along the inner size: a long one whose result is small beside its
// inputs. Of a gradient of a weight, a^T g, each thread then reads the rows of the batch that it
// wrote itself, where blocks of the result would read all of both on every thread. Of few rows
// there are no blocks to share out.
bool has_long_inner(const Sizes& s, const MatmulOptions& options) {
  constexpr std::int64_t kLong = 512;
  constexpr std::int64_t kWorthTwoChunks = 400'000;  // multiply-adds
  const bool few_rows = s.n < 12;
  const bool small_result = s.n * s.m <= (s.n + s.m) * kLong / 4;
  return s.single && s.k >= kLong && s.n * s.k * s.m >= kWorthTwoChunks && small_result &&
         (options.transpose_a || few_rows);
}

// The two halves of the inner size side by side, then their sum.
template <class T>
[[gnu::noinline]] void multiply_halves(const Tensor& a, const Tensor& b, const Tensor& y,
                                       const MatmulOptions& options, const Sizes& s) {
  const std::int64_t results = s.n * s.m;
  const Tensor second = detail::make_tensor({results}, y.dtype());
  const detail::MatrixRef<T> left{detail::numbers<T>(a), options.transpose_a ? s.n : s.k,
                                  options.transpose_a};
  const detail::MatrixRef<T> right = as_used<T>(b, options.transpose_b, s);
  T* sum = detail::fresh_numbers<T>(y);
  T* more = detail::fresh_numbers<T>(second);
  const std::int64_t half = s.k / 2;
  const RowBlocks rows(s.n, std::max<std::int64_t>(30, detail::gemm_rows(half, s.m)));
  parallel_for(2 * rows.count, [=](std::int64_t chunk) {
    const bool later = chunk >= rows.count;
    const std::int64_t row = rows.begin(chunk % rows.count);
    const std::int64_t count = rows.begin(chunk % rows.count + 1) - row;
    const std::int64_t inner = later ? half : 0;
    detail::gemm(left.rows_from(row).columns_from(inner), right.rows_from(inner),
                 (later ? more : sum) + row * s.m, count, later ? s.k - half : half, s.m);
  });
  detail::for_ranges(results, detail::kGrain / 4, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum[i] += more[i];
  });
}

// Ranks below 2: a vector is a row on the left and a column on the right.
Tensor with_vectors(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  if (a.rank() == 0 || b.rank() == 0) {
    throw ShapeError(
        fmt::format("[matmul] needs rank 1 or more: a is {}, b is {}; use mul for numbers",
                    to_string(a.shape()), to_string(b.shape())));
  }
  if (a.rank() == 1) {
    if (options.transpose_a) {
      throw ShapeError(
          fmt::format("[matmul] transpose_a needs rank 2 or more: a is {}", to_string(a.shape())));
    }
    const Tensor y = matmul(unsqueeze(a, 0), b, options);
    return squeeze(y, b.rank() == 1 ? -1 : -2);
  }
  if (options.transpose_b) {
    throw ShapeError(
        fmt::format("[matmul] transpose_b needs rank 2 or more: b is {}", to_string(b.shape())));
  }
  return squeeze(matmul(a, unsqueeze(b, 1), options), -1);
}

}  // namespace

Tensor matmul(TensorArg a, TensorArg b, const MatmulOptions& options) {
  detail::check_same_float("matmul", "a", a, "b", b);
  const Shape& sa = detail::shape_of(a);
  const Shape& sb = detail::shape_of(b);
  if (sa.rank() < 2 || sb.rank() < 2) return with_vectors(a, b, options);
  const DType dtype = detail::TensorAccess::node(a)->dtype;
  const Sizes s = check_sizes(sa, sb, options);
  const bool matrices = sa.rank() == 2 && sb.rank() == 2;
  Tensor y = detail::make_tensor(matrices ? Shape{s.n, s.m} : batched_shape(sa, sb, s), dtype);
  visit_float(dtype, "matmul", [&](auto zero) {
    using T = decltype(zero);
    if (s.single && s.n * s.k * s.m <= detail::kGrain) {
      multiply_rows(detail::numbers<T>(a), options.transpose_a,
                    as_used<T>(b, options.transpose_b, s), detail::fresh_numbers<T>(y), s, 0, s.n);
    } else if (has_long_inner(s, options)) {
      multiply_halves<T>(a, b, y, options, s);
    } else {
      multiply_blocks<T>(a, b, y, options, s);
    }
  });
  return detail::record_with(kMatmul, detail::saves_of_product(a, b), std::move(y), {*a, *b},
                             options);
}

}  // namespace softtape
