// The anomaly guard's checks, called only while a guard lives.
#pragma once

#include "graph/node.hpp"

namespace softtape::detail {

/// Throws: ValueError when y holds a NaN or an infinity and every input is finite.
void check_result(const OpInfo& op, const Tensor& y, const TensorRef* inputs, std::size_t arity);
/// Throws: ValueError when the rule of `node` turned a finite gy into a gx that is not.
void check_gradient(const Node& node, int input, const Tensor& gx, const Tensor& gy);

}  // namespace softtape::detail
