// Matrix products.
#pragma once

#include "softtape/graph/arguments.hpp"

namespace softtape {

/// Read an operand with its last two axes swapped; nothing is copied for it.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

/// y = a b over the last two axes, NumPy's rank rules: leading axes broadcast, a rank-1 operand is
/// a row (a) or a column (b) whose axis is dropped again. Shapes: (..., n, k) (..., k, m) -> (...,
/// n, m). Cost 2 n k m per product, forward and per gradient. Vjp: ga = gy b^T, gb = a^T gy, summed
/// over broadcast axes; matmul is closed under differentiation through its flags, so a transpose is
/// never materialised. Saves each input only if the other one needs a gradient. Edges: k = 0 gives
/// zeros. Throws: ShapeError when inner sizes or leading axes do not fit or an operand has rank 0;
/// DtypeError unless both are of one float type.
SOFTTAPE_API Tensor matmul(TensorArg a, TensorArg b, const MatmulOptions& options = {});

}  // namespace softtape
