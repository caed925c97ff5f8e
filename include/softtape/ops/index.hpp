// Ops that read and write where an int64 tensor says.
//
// An index must lie in [0, size): negative ones are errors, as in PyTorch. Where several numbers
// meet in one place they are added in the order of the index, whatever the number of threads.
//
// Throws (all): ValueError for an index out of range, ShapeError for shapes and axes that do not
// fit, DtypeError for an index that is not int64, GraphError for undefined tensors.
#pragma once

#include "softtape/graph/arguments.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

/// y[i, j, ...] = x[index[i, j, ...], j, ...] for axis 0, and so on: along other axes the index may
/// be shorter than x. Shapes: y has that of the index. Vjp: scatter_add into zeros.
SOFTTAPE_API Tensor gather(TensorArg x, int axis, TensorArg index);
/// x with src[i, j, ...] added at x[index[i, j, ...], j, ...], for axis 0, and so on. Float or
/// int64. Shapes: src has that of the index. Vjp: gx = gy, gsrc = gather(gy, axis, index).
SOFTTAPE_API Tensor scatter_add(TensorArg x, int axis, TensorArg index, TensorArg src);
/// Entries of an axis in the order of an index, which may repeat them. An index of any rank: its
/// shape takes the place of the axis. Vjp: index_select_vjp.
SOFTTAPE_API Tensor index_select(TensorArg x, int axis, TensorArg index);
/// Zeros of `shape` with every entry of gy added where index_select reads it.
SOFTTAPE_API Tensor index_select_vjp(TensorArg gy, const Shape& shape, int axis, TensorArg index);
/// Embedding lookup: index_select on axis 0. Shapes: table (n, ...), ids any, y ids.shape + (...).
/// Vjp: each row of the table gets the sum of the rows of gy that it went to.
SOFTTAPE_API Tensor take_rows(TensorArg table, TensorArg ids);

/// 1 where the last, new axis meets its id, 0 elsewhere; default_dtype unless one is named.
/// Throws: ShapeError when classes is negative.
SOFTTAPE_API Tensor one_hot(TensorArg ids, std::int64_t classes, TensorOptions options = {});

/// `value` where the mask is true, x elsewhere; the mask broadcasts to x. Infinities are fine.
/// Vjp: gx = gy with exact zeros where the mask is true.
SOFTTAPE_API Tensor masked_fill(TensorArg x, TensorArg mask, double value);

}  // namespace softtape
