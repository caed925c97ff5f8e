// Whole tensors compared: one answer, no gradient. Elementwise comparisons are in elementwise.hpp.
#pragma once

#include "softtape/graph/arguments.hpp"

namespace softtape {

struct CloseOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;  ///< Count two NaN in one place as equal.
};

/// Whether |a - b| <= atol + rtol |b| everywhere; equal infinities are close. b may be a number.
/// Throws: ShapeError when shapes differ (nothing broadcasts here), DtypeError when dtypes do,
/// ValueError for a negative or NaN tolerance, GraphError for undefined tensors.
SOFTTAPE_API bool allclose(TensorArg a, Operand b, CloseOptions options = {});

/// Whether shape, dtype and every element are equal; a NaN equals nothing.
/// Throws: GraphError for undefined tensors.
SOFTTAPE_API bool equal(TensorArg a, TensorArg b);

}  // namespace softtape
