// Derivatives of functions of tensors: products with a Jacobian from either side, and whole ones.
//
// `f` is any callable of as many tensors as there are inputs (or of a span of them) that returns a
// float tensor. Every call evaluates it once, on copies of the handles that require gradients; the
// inputs themselves and their `.grad()` stay as they are. Results are constants, without a graph.
// What does not depend on an input has derivative zero.
//
// Throws (all): GraphError for an undefined tensor, DtypeError for one that is not float where it
// must be, ShapeError for shapes that do not fit, ValueError for a wrong number of tensors.
#pragma once

#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/study/function.hpp"

namespace softtape {

namespace detail {
SOFTTAPE_API std::vector<Tensor> vjp(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                     const Tensor& gy);
SOFTTAPE_API Tensor jvp(const TensorFunction& f, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& tangents);
SOFTTAPE_API Tensor jacobian(const TensorFunction& f, const Tensor& x);
SOFTTAPE_API Tensor hessian(const TensorFunction& f, const Tensor& x);
SOFTTAPE_API Tensor hvp(const TensorFunction& f, const Tensor& x, const Tensor& v);
}  // namespace detail

/// gy^T J for each input, J = d f / d input: the gradients of <gy, f(inputs)>.
/// Shapes: gy as f(inputs); result i as input i, undefined where input i is not float.
/// Cost: one forward and one backward pass.
template <class F>
std::vector<Tensor> vjp(F&& f, const TensorList& inputs, const Tensor& gy) {
  return detail::vjp(detail::tensor_function("vjp", f), *inputs, gy);
}

/// sum_i J_i tangent_i: how f moves when every input moves along its tangent.
/// Shapes: tangent i as input i, or undefined for an input that stays; result as f(inputs).
/// Cost: one forward and two backward passes (the vjp is linear in gy; its derivative is the jvp).
template <class F>
Tensor jvp(F&& f, const TensorList& inputs, const TensorList& tangents) {
  return detail::jvp(detail::tensor_function("jvp", f), *inputs, *tangents);
}

/// J[i..., j...] = d f(x)[i...] / d x[j...].
/// Shapes: f(x).shape + x.shape, at most 6 axes together. Cost: one backward pass per output
/// number.
template <class F>
Tensor jacobian(F&& f, const Tensor& x) {
  return detail::jacobian(detail::tensor_function("jacobian", f), x);
}

/// H[i..., j...] = d^2 f(x) / d x[i...] d x[j...], for an f that returns one number.
/// Shapes: x.shape + x.shape, at most 6 axes together. Cost: one backward pass through the gradient
/// per number of x.
template <class F>
Tensor hessian(F&& f, const Tensor& x) {
  return detail::hessian(detail::tensor_function("hessian", f), x);
}

/// H v without H, for an f that returns one number. Shapes: v and result as x.
/// Cost: one forward pass, one backward pass and one through that.
/// Source: Pearlmutter, "Fast Exact Multiplication by the Hessian", Neural Computation 6 (1994).
template <class F>
Tensor hvp(F&& f, const Tensor& x, const Tensor& v) {
  return detail::hvp(detail::tensor_function("hvp", f), x, v);
}

}  // namespace softtape
