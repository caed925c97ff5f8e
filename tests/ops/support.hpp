// What the tests of ops share: refused calls, and the two identities every linear op must keep.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "softtape/base/error.hpp"
#include "softtape/graph/format.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/shape.hpp"

namespace ops_test {

/// The message of the E that a call throws; else, or when it leaves a node behind, what is wrong.
template <class E, class F>
std::string refusal(F call) {
  const auto nodes = softtape::graph_stats().live_nodes;
  std::string message = "nothing was thrown";
  try {
    call();
  } catch (const E& error) {
    message = error.what();
  } catch (const std::exception& error) {
    message = std::string("another type: ") + error.what();
  }
  if (softtape::graph_stats().live_nodes != nodes) message = "left a node behind: " + message;
  return message;
}

/// The numbers of an int64 tensor.
inline std::vector<std::int64_t> integers(const softtape::Tensor& x) {
  return x.to_vector<std::int64_t>();
}

/// 0, 1, 2, ... as int64.
inline softtape::Tensor count(const softtape::Shape& shape) {
  return softtape::reshape(softtape::arange(shape.numel()), shape);
}

/// float64 integers from -9 to 9: sums of their products are exact.
inline softtape::Tensor small_integers(softtape::Rng& rng, const softtape::Shape& shape) {
  const auto numbers = softtape::randint(rng, -9, 10, shape).to_vector<double>();
  return softtape::tensor(numbers, shape, {.dtype = softtape::DType::float64});
}

inline double dot(const softtape::Tensor& a, const softtape::Tensor& b) {
  const auto x = a.to_vector();
  const auto y = b.to_vector();
  REQUIRE(x.size() == y.size());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

/// For linear f: <f(v), w> = <v, vjp(w)>, and differentiating vjp(w) in w gives f again; all exact.
template <class F>
void check_linear(F f, const softtape::Shape& shape, std::uint64_t seed = 1) {
  softtape::Rng rng(seed);
  softtape::Tensor x = small_integers(rng, shape);
  x.requires_grad_();
  const softtape::Tensor y = f(x);
  REQUIRE(y.requires_grad());
  softtape::Tensor w = small_integers(rng, y.shape());
  w.requires_grad_();
  const softtape::Tensor v = small_integers(rng, shape);
  const softtape::Tensor g =
      softtape::grad(y, x, {.grad_outputs = {w}, .create_graph = true}).front();
  CHECK(dot(f(v), w) == dot(v, g));
  const softtape::Tensor again = softtape::grad(g, w, {.grad_outputs = {v}}).front();
  CHECK(softtape::equal(again, f(v)));
}

}  // namespace ops_test

/// The call throws E with a message that begins so, and leaves nothing behind.
#define CHECK_REFUSED(E, beginning, ...)                                            \
  do {                                                                              \
    const std::string refused = ops_test::refusal<E>([&] { (void)(__VA_ARGS__); }); \
    CHECK_MESSAGE(refused.rfind(beginning, 0) == 0, refused);                       \
  } while (false)

/// Equal in shape, dtype and every element.
#define CHECK_SAME(a, ...)                                                                 \
  do {                                                                                     \
    const softtape::Tensor left = (a);                                                     \
    const softtape::Tensor right = (__VA_ARGS__);                                          \
    CHECK_MESSAGE(softtape::equal(left, right), left.shape(), left, right.shape(), right); \
  } while (false)
