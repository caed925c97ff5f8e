// How the hard cases are tried: value and gradient at once, along each axis, in each float type.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

namespace cases {

struct Evaluated {
  softtape::Tensor output;
  softtape::Tensor gradient;
};

/// f(x) and the gradient of <f(x), upstream>; an upstream of one number counts for all outputs.
template <class F>
Evaluated evaluate(F f, const softtape::Tensor& x, const softtape::Tensor& upstream) {
  softtape::Tensor at = x.clone();
  at.requires_grad_();
  const softtape::Tensor y = f(at);
  const softtape::Tensor gy = softtape::broadcast_to(softtape::to(upstream, y.dtype()), y.shape());
  return {y.detach(), softtape::grad(y, at, {.grad_outputs = {gy}})[0]};
}
template <class F>
Evaluated evaluate(F f, const softtape::Tensor& x) {
  return evaluate(f, x, softtape::scalar(1.0));
}

/// The second derivative: the gradient of <gx, direction>, gx as in evaluate.
template <class F>
softtape::Tensor second(F f, const softtape::Tensor& x, const softtape::Tensor& upstream,
                        const softtape::Tensor& direction) {
  softtape::Tensor at = x.clone();
  at.requires_grad_();
  const softtape::Tensor y = f(at);
  const softtape::Tensor gy = softtape::broadcast_to(softtape::to(upstream, y.dtype()), y.shape());
  const softtape::Tensor g = softtape::grad(y, at, {.grad_outputs = {gy}, .create_graph = true})[0];
  if (!g.requires_grad()) return softtape::zeros_like(x);
  const softtape::Tensor v = softtape::to(direction, x.dtype());
  const softtape::Tensor h = softtape::grad(g, at, {.grad_outputs = {v}, .allow_unused = true})[0];
  return h.defined() ? h : softtape::zeros_like(x);
}

/// f over rows, applied to a matrix whose rows have become columns; f takes the axis to work along.
template <class F>
auto along_columns(F f) {
  return
      [f](const softtape::Tensor& x) { return softtape::transpose(f(softtape::transpose(x), 0)); };
}
template <class F>
auto along_rows(F f) {
  return [f](const softtape::Tensor& x) { return f(x, -1); };
}

/// Output and gradient of f(x, axis) for a matrix of rows, with its rows as columns too, in float64
/// within the tolerances and in float32 within a few of its own units.
template <class F>
void check_rows(F f, const softtape::NestedNumbers& x, const softtape::NestedNumbers& upstream,
                const softtape::NestedNumbers& output, const softtape::NestedNumbers& gradient,
                double rtol = 1e-12, double atol = 1e-14) {
  for (const softtape::DType dtype : test_support::kFloats) {
    const bool exact = dtype == softtape::DType::float64;
    const double r = exact ? rtol : std::max(rtol, 1e-6);
    const double a = exact ? atol : std::max(atol, 1e-7);
    const softtape::Tensor at = test_support::numbers(x, dtype);
    const softtape::Tensor gy = test_support::numbers(upstream);
    CAPTURE(softtape::to_string(dtype));
    const Evaluated rows = evaluate(along_rows(f), at, gy);
    CHECK_NUMBERS(rows.output, output, r, a);
    CHECK_NUMBERS(rows.gradient, gradient, r, a);
    const Evaluated columns = evaluate(along_columns(f), at, gy);
    CHECK_NUMBERS(columns.output, output, r, a);
    CHECK_NUMBERS(columns.gradient, gradient, r, a);
  }
}

inline bool all_finite(const softtape::Tensor& x) {
  return softtape::all(softtape::isfinite(x)).item() != 0;
}

}  // namespace cases
