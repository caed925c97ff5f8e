// Vectorised functions over contiguous numbers. The result for one element depends on its value
// alone, never on where it stands: work goes in blocks of fixed width, and tails are padded.
#pragma once

#include <cstdint>

namespace softtape::detail {

/// y = e^x; exact 0 at -Inf, NaN stays NaN. x and y may be the same memory (all functions here).
void exp_numbers(const float* x, float* y, std::int64_t n);
void exp_numbers(const double* x, double* y, std::int64_t n);

/// y = tanh(x).
void tanh_numbers(const float* x, float* y, std::int64_t n);
void tanh_numbers(const double* x, double* y, std::int64_t n);

/// y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
void gelu_tanh_numbers(const float* x, float* y, std::int64_t n);
void gelu_tanh_numbers(const double* x, double* y, std::int64_t n);

/// y = x Phi(x), Phi the normal distribution function; relative error below 1e-6 in float32 down to
/// x = -13, where Phi(x) leaves the normal range and counts as 0.
void gelu_erf_numbers(const float* x, float* y, std::int64_t n);
void gelu_erf_numbers(const double* x, double* y, std::int64_t n);
/// Its slope, y = Phi(x) + x phi(x), phi the normal density; 0 or 1 far out.
void gelu_erf_slope_numbers(const float* x, float* y, std::int64_t n);
void gelu_erf_slope_numbers(const double* x, double* y, std::int64_t n);

/// Sum in one fixed order: 16 lanes, blocks of 1024, block sums in double.
float sum_numbers(const float* x, std::int64_t n);
double sum_numbers(const double* x, std::int64_t n);

}  // namespace softtape::detail
