// Vectorised functions over contiguous numbers, on Eigen's packet math.
#include "ops/vector_math.hpp"

#include <algorithm>

#include "ops/lanes.hpp"

namespace softtape::detail {
namespace {

Lanes<float> tanh_lanes(const Lanes<float>& x) {
  // Eigen clamps its argument and would turn a NaN into a number.
  return (x == x).select(x.tanh(), x);
}
Lanes<double> tanh_lanes(const Lanes<double>& x) {
  Lanes<double> y;
  for (std::int64_t i = 0; i < kLanes; ++i) y[i] = std::tanh(x[i]);
  return y;
}

template <class T>
void gelu_tanh(const T* x, T* y, std::int64_t n) {
  constexpr T kScale = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
  constexpr T kCubic = static_cast<T>(0.044715);
  map_lanes<T>(x, y, n, T{0}, [=](const Lanes<T>& v) -> Lanes<T> {
    const Lanes<T> gate = T(0.5) * (1 + tanh_lanes(Lanes<T>(kScale * v * (1 + kCubic * v * v))));
    return (gate == 0).select(T{0}, v * gate);  // -Inf times 0 is 0 here
  });
}

// Blocks keep the error of a long sum at that of a short one.
constexpr std::int64_t kSumBlock = 1024;

template <class T>
T sum_block(const T* x, std::int64_t n) {
  if (n < kLanes) {
    T sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  Lanes<T> lanes = load_lanes(x);
  std::int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) lanes += load_lanes(x + i);
  if (i < n) lanes += load_lanes(x + i, n - i, T{0});
  return lanes.sum();
}

template <class T>
T sum(const T* x, std::int64_t n) {
  if (n <= kSumBlock) return sum_block(x, n);
  double total = 0;
  for (std::int64_t i = 0; i < n; i += kSumBlock) {
    total += static_cast<double>(sum_block(x + i, std::min(kSumBlock, n - i)));
  }
  return static_cast<T>(total);
}

}  // namespace

void exp_numbers(const float* x, float* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0f, exp_lanes<float>);
}
void exp_numbers(const double* x, double* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0, exp_lanes<double>);
}
void tanh_numbers(const float* x, float* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0f, [](const Lanes<float>& v) { return tanh_lanes(v); });
}
void tanh_numbers(const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
}
void gelu_tanh_numbers(const float* x, float* y, std::int64_t n) { gelu_tanh(x, y, n); }
void gelu_tanh_numbers(const double* x, double* y, std::int64_t n) { gelu_tanh(x, y, n); }
float sum_numbers(const float* x, std::int64_t n) { return sum(x, n); }
double sum_numbers(const double* x, std::int64_t n) { return sum(x, n); }

}  // namespace softtape::detail
