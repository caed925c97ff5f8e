// Tensors from numbers, and numbers compared with a tolerance.
#pragma once

#include <cmath>
#include <vector>

#include "ops/support.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/constants.hpp"

namespace ops_test {

using test_support::kDouble;
using test_support::kInf;
using test_support::kNaN;

inline softtape::Tensor doubles(const std::vector<double>& numbers, const softtape::Shape& shape) {
  return softtape::tensor(numbers, shape, kDouble);
}
inline softtape::Tensor doubles(const std::vector<double>& numbers) {
  return softtape::tensor(numbers, kDouble);
}
/// A float64 leaf that asks for a gradient.
inline softtape::Tensor leaf(const std::vector<double>& numbers, const softtape::Shape& shape) {
  softtape::Tensor x = doubles(numbers, shape);
  x.requires_grad_();
  return x;
}

/// Every element within tolerance * max(1, |expected|).
inline void check_close(const softtape::Tensor& got, const std::vector<double>& expected,
                        double tolerance) {
  const auto numbers = got.to_vector();
  REQUIRE(numbers.size() == expected.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    CAPTURE(i);
    CAPTURE(numbers[i]);
    CAPTURE(expected[i]);
    CHECK(std::abs(numbers[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

/// The gradient of sum(y).
inline softtape::Tensor gradient(const softtape::Tensor& y, const softtape::Tensor& x) {
  return softtape::grad(softtape::sum(y), x).front();
}
/// The gradient of <y, gy>; `again` computes it the way it is done under create_graph.
inline softtape::Tensor gradient(const softtape::Tensor& y, const softtape::Tensor& x,
                                 const softtape::Tensor& gy, bool again = false) {
  return softtape::grad(y, x, {.grad_outputs = {gy}, .retain_graph = true, .create_graph = again})
      .front();
}

}  // namespace ops_test
