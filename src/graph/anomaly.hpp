// The anomaly guard's checks, called only while a guard lives.
#pragma once

#include "graph/node.hpp"

namespace softtape::detail {

/// Throws: ValueError when y holds a NaN and no input does, or an infinity and every input is
/// finite.
void check_result(const OpInfo& op, const Tensor& y, const TensorRef* inputs, std::size_t arity);
/// The same for what the rule of `node` made of gy.
void check_gradient(const Node& node, int input, const Tensor& gx, const Tensor& gy);
/// Throws: ValueError when gradients a and b that met at `node` are finite where their sum is not.
void check_sum(const Node& node, const Tensor& a, const Tensor& b);

}  // namespace softtape::detail
