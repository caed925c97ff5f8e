// One matrix product over plain memory: what matmul is made of.
#pragma once

#include <algorithm>
#include <cstdint>

namespace softtape::detail {

/// A matrix in row-major memory: element (i, j) of the matrix as used is
/// data[i * stride + j], or data[j * stride + i] when transposed.
template <class T>
struct MatrixRef {
  const T* data;
  std::int64_t stride;
  bool transposed = false;

  MatrixRef rows_from(std::int64_t i) const {
    return {data + (transposed ? i : i * stride), stride, transposed};
  }
  MatrixRef columns_from(std::int64_t j) const {
    return {data + (transposed ? j * stride : j), stride, transposed};
  }
};

/// c = a b; a is (n, k), b is (k, m) as used, c is (n, m), row-major.
/// Runs on the calling thread. Fixed summation order for given sizes.
void gemm(const MatrixRef<float>& a, const MatrixRef<float>& b, float* c, std::int64_t n,
          std::int64_t k, std::int64_t m);
void gemm(const MatrixRef<double>& a, const MatrixRef<double>& b, double* c, std::int64_t n,
          std::int64_t k, std::int64_t m);

/// Rows of a product that one chunk of a parallel loop computes at least. Where b (k, m) stays in
/// cache from one chunk to the next: as few as are worth a chunk, so that every thread has its
/// share.
constexpr std::int64_t gemm_rows(std::int64_t k, std::int64_t m) {
  constexpr std::int64_t kInCache = 1 << 18;
  constexpr std::int64_t kWorthAChunk = 200'000;  // multiply-adds
  if (k * m > kInCache) return 192;
  return std::max<std::int64_t>(6, kWorthAChunk / std::max<std::int64_t>(1, k * m));
}

}  // namespace softtape::detail
