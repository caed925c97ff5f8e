// What the tests of attention share: inputs, comparisons with numbers, gradients of all inputs.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/support.hpp"
#include "softtape/attention/additive.hpp"
#include "softtape/attention/attention.hpp"
#include "softtape/attention/linear.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/constants.hpp"
#include "support/threads.hpp"

namespace attention_test {

using namespace softtape;

using test_support::kDouble;
using test_support::kInf;
using test_support::kNaN;
using test_support::ThreadCount;

inline Tensor normals(Rng& rng, const Shape& shape, DType dtype = DType::float64) {
  return to(randn(rng, shape, kDouble), dtype);
}
/// A float64 matrix, or a boolean one, in nested braces.
inline Tensor mat(const NestedNumbers& numbers) { return tensor(numbers, kDouble); }
inline Tensor flags(const NestedNumbers& numbers) {
  return tensor(numbers, {.dtype = DType::boolean});
}
inline Tensor leaf(const Tensor& x) {
  Tensor copy = x.detach().clone();
  copy.requires_grad_();
  return copy;
}
inline std::vector<Tensor> leaves(const std::vector<Tensor>& x) {
  std::vector<Tensor> copies;
  for (const Tensor& t : x) copies.push_back(leaf(t));
  return copies;
}

/// Empty when |got - want| <= atol + rtol |want| everywhere (NaN with NaN, Inf with Inf), else
/// where not.
inline std::string differs(const std::vector<double>& got, const std::vector<double>& want,
                           double rtol, double atol) {
  if (got.size() != want.size()) return fmt::format("{} numbers for {}", got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    if (!(std::abs(got[i] - want[i]) <= atol + rtol * std::abs(want[i]))) {
      return fmt::format("at {}: {:.17g}, expected {:.17g}", i, got[i], want[i]);
    }
  }
  return "";
}

inline double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.to_vector()) most = std::max(most, std::abs(v));
  return most;
}
inline bool all_zero(const Tensor& x) {
  const auto v = x.to_vector();
  return std::all_of(v.begin(), v.end(), [](double n) { return n == 0; });
}
inline bool any_nan(const Tensor& x) {
  const auto v = x.to_vector();
  return std::any_of(v.begin(), v.end(), [](double n) { return std::isnan(n); });
}

/// Gradients of <y, gy> in all inputs; zeros where one is not used.
inline std::vector<Tensor> gradients(const Tensor& y, const std::vector<Tensor>& inputs,
                                     const Tensor& gy, bool create_graph = false) {
  std::vector<Tensor> g =
      grad(y, inputs, {.grad_outputs = {gy}, .create_graph = create_graph, .allow_unused = true});
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined()) g[i] = zeros_like(inputs[i]);
  }
  return g;
}

/// Gradients of sum_i <gradient_i, direction_i>: second derivatives along directions.
inline std::vector<Tensor> second(const std::vector<Tensor>& first,
                                  const std::vector<Tensor>& inputs,
                                  const std::vector<Tensor>& directions) {
  Tensor total = zeros({}, {.dtype = inputs.front().dtype()});
  for (std::size_t i = 0; i < first.size(); ++i) {
    total = add(total, sum(mul(first[i], directions[i])));
  }
  std::vector<Tensor> g = grad(total, inputs, {.allow_unused = true});
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined()) g[i] = zeros_like(inputs[i]);
  }
  return g;
}

/// The two paths of one call.
inline AttentionOptions composed_path(AttentionOptions options = {}) {
  options.need_weights = true;
  return options;
}
inline AttentionOptions fused_path(AttentionOptions options = {}) {
  options.need_weights = false;
  return options;
}

}  // namespace attention_test

#define CHECK_NUMBERS(tensor_, want, rtol, atol)                                                 \
  do {                                                                                           \
    const std::string wrong_ = attention_test::differs((tensor_).to_vector(), want, rtol, atol); \
    CHECK_MESSAGE(wrong_.empty(), wrong_);                                                       \
  } while (false)
/// Every number within `bound` of the other's, in units of the largest one (at least 1).
#define CHECK_AGREES(a, b, bound)                                                                  \
  do {                                                                                             \
    const softtape::Tensor want_ = (b);                                                            \
    CHECK_NUMBERS(a, want_.to_vector(), 0, (bound)*std::max(1.0, attention_test::largest(want_))); \
  } while (false)
