// What tests compare tensors with, and how they make them.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "softtape/graph/format.hpp"
#include "softtape/ops/create.hpp"
#include "support/constants.hpp"

namespace test_support {

/// A constant and a leaf that asks for gradients, float64 unless another dtype is named.
inline softtape::Tensor numbers(const softtape::NestedNumbers& values,
                                softtape::DType dtype = softtape::DType::float64) {
  return softtape::tensor(values, {.dtype = dtype});
}
inline softtape::Tensor leaf(const softtape::NestedNumbers& values,
                             softtape::DType dtype = softtape::DType::float64) {
  return softtape::tensor(values, {.dtype = dtype, .requires_grad = true});
}

/// Normal float64 numbers.
inline softtape::Tensor random(std::uint64_t seed, const softtape::Shape& shape) {
  softtape::Rng rng(seed);
  return softtape::randn(rng, shape, kDouble);
}

/// Empty when `got` has the shape of `want` and each number is within rtol |want| + atol of it; a
/// NaN is met by NaN and an infinity by itself. Else the first place that differs.
/// `want` may be float64 where `got` is float32.
inline std::string mismatch(const softtape::Tensor& got, const softtape::Tensor& want,
                            double rtol = 0, double atol = 0) {
  if (!got.defined()) return "undefined";
  if (got.shape() != want.shape()) {
    return fmt::format("shape {}, expected {}", got.shape(), want.shape());
  }
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = want.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (same || std::abs(a[i] - b[i]) <= rtol * std::abs(b[i]) + atol) continue;
    return fmt::format("{:.17g} at {}, expected {:.17g}", a[i], i, b[i]);
  }
  return "";
}
inline std::string mismatch(const softtape::Tensor& got, const softtape::NestedNumbers& want,
                            double rtol = 0, double atol = 0) {
  return mismatch(got, numbers(want), rtol, atol);
}

/// Whether shape, dtype and every bit agree.
inline bool same_bits(const softtape::Tensor& a, const softtape::Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return softtape::visit_any(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto x = a.data<T>();
    return std::memcmp(x.data(), b.data<T>().data(), x.size_bytes()) == 0;
  });
}

inline bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

}  // namespace test_support

/// Every number as expected, see test_support::mismatch.
#define CHECK_NUMBERS(...) CHECK(test_support::mismatch(__VA_ARGS__) == "")
/// The call throws E, and its message begins with the tag and holds the words.
#define CHECK_THROWS_SAYING(E, tag, words, ...)                   \
  do {                                                            \
    std::string thrown = "nothing was thrown";                    \
    try {                                                         \
      (void)(__VA_ARGS__);                                        \
    } catch (const E& error) {                                    \
      thrown = error.what();                                      \
    } catch (const std::exception& error) {                       \
      thrown = std::string("another type: ") + error.what();      \
    }                                                             \
    CHECK_MESSAGE(thrown.rfind("[" tag "]", 0) == 0, thrown);     \
    CHECK_MESSAGE(test_support::contains(thrown, words), thrown); \
  } while (false)
