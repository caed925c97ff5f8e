// Gradient clipping.
#pragma once

#include "softtape/optim/optimizer.hpp"

namespace softtape {

/// Scales all gradients by max_norm / norm when their joint 2-norm exceeds max_norm; returns the
/// norm before. Sums run in double, in one order.
/// Edges: a norm that is not finite is returned, and the gradients stay as they are: the step that
/// follows is refused. Parameters without gradient do not count; max_norm may be infinite.
/// Throws: ValueError when max_norm is negative or NaN.
/// Source: Pascanu, Mikolov and Bengio 2013. PyTorch divides by norm + 1e-6 instead.
SOFTTAPE_API double clip_grad_norm_(const ParameterList& parameters, double max_norm);

/// Limits every entry of the gradients to [-limit, limit]; returns the largest magnitude before.
/// Edges: one that is not finite is returned, and the gradients stay as they are.
/// Throws: ValueError when limit is negative or NaN.
SOFTTAPE_API double clip_grad_value_(const ParameterList& parameters, double limit);

}  // namespace softtape
