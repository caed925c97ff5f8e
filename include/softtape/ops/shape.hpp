// Ops that move numbers without changing them: new shapes, new orders, parts, joins. Any dtype.
//
// reshape, flatten, squeeze and unsqueeze share the numbers of their input; all others copy.
// Axes count from the end when negative.
//
// Throws (all): ShapeError for axes and sizes that do not fit, ValueError for an index out of
// range, GraphError for undefined tensors.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "softtape/graph/arguments.hpp"

namespace softtape {

/// The same numbers, row-major, under another shape. One size may be -1: it is worked out.
/// Vjp: gx = reshape(gy, x.shape()).
SOFTTAPE_API Tensor reshape(TensorArg x, const Shape& shape);
SOFTTAPE_API Tensor reshape(TensorArg x, std::span<const std::int64_t> sizes);
SOFTTAPE_API Tensor reshape(TensorArg x, std::initializer_list<std::int64_t> sizes);
/// Axes start to end, both included, become one; a rank 0 tensor becomes (1,).
SOFTTAPE_API Tensor flatten(TensorArg x, int start = 0, int end = -1);
/// Without all axes of size 1, or without one. Throws: ShapeError when that one is not of size 1.
SOFTTAPE_API Tensor squeeze(TensorArg x);
SOFTTAPE_API Tensor squeeze(TensorArg x, int axis);
/// With an axis of size 1 before `axis`; -1 puts it last.
SOFTTAPE_API Tensor unsqueeze(TensorArg x, int axis);

/// Axis i of the result is axis axes[i] of x. Vjp: gx = gy with the axes put back.
SOFTTAPE_API Tensor permute(TensorArg x, std::span<const int> axes);
SOFTTAPE_API Tensor permute(TensorArg x, std::initializer_list<int> axes);
/// Two axes exchanged. Products need no transpose: matmul takes flags.
SOFTTAPE_API Tensor transpose(TensorArg x, int a = -2, int b = -1);

/// x repeated along axes of size 1 and along new axes in front. Vjp: gx = sum_to(gy, x.shape()).
SOFTTAPE_API Tensor broadcast_to(TensorArg x, const Shape& shape);
/// broadcast_to where -1 keeps the size of an axis.
SOFTTAPE_API Tensor expand(TensorArg x, std::initializer_list<std::int64_t> sizes);

/// Python's x[start:stop:step] along one axis; a bound left out is the end on that side. Bounds may
/// be negative or beyond the ends. Vjp: slice_vjp, exact zeros outside.
/// Throws: ValueError when step is 0.
SOFTTAPE_API Tensor slice(TensorArg x, int axis, std::optional<std::int64_t> start,
                          std::optional<std::int64_t> stop = {}, std::int64_t step = 1);
/// Zeros of `shape`, with gy where slice with the same arguments reads.
SOFTTAPE_API Tensor slice_vjp(TensorArg gy, const Shape& shape, int axis,
                              std::optional<std::int64_t> start,
                              std::optional<std::int64_t> stop = {}, std::int64_t step = 1);
/// `length` entries from `start` on; a negative start counts from the end.
/// Throws: ValueError unless all of them exist.
SOFTTAPE_API Tensor narrow(TensorArg x, int axis, std::int64_t start, std::int64_t length);
/// Entry `index` along an axis, which goes away. x[i] is select(x, 0, i).
SOFTTAPE_API Tensor select(TensorArg x, int axis, std::int64_t index);

/// Tensors joined along an axis they have; all other sizes must agree. `cat({a, b}, -1)`.
/// Throws: ValueError for no tensors, DtypeError unless all have one dtype.
SOFTTAPE_API Tensor cat(std::span<const Tensor> tensors, int axis = 0);
SOFTTAPE_API Tensor cat(std::initializer_list<TensorArg> tensors, int axis = 0);
/// Tensors of one shape joined along a new axis.
SOFTTAPE_API Tensor stack(std::span<const Tensor> tensors, int axis = 0);
SOFTTAPE_API Tensor stack(std::initializer_list<TensorArg> tensors, int axis = 0);

/// Parts of `size` entries along an axis, the last one smaller where it must be.
SOFTTAPE_API std::vector<Tensor> split(TensorArg x, std::int64_t size, int axis = 0);
/// Parts of the given sizes, which must add up to the size of the axis.
SOFTTAPE_API std::vector<Tensor> split(TensorArg x, std::span<const std::int64_t> sizes,
                                       int axis = 0);
SOFTTAPE_API std::vector<Tensor> split(TensorArg x, std::initializer_list<std::int64_t> sizes,
                                       int axis = 0);
/// At most n parts of ceil(size / n) entries, as in PyTorch.
SOFTTAPE_API std::vector<Tensor> chunk(TensorArg x, std::int64_t n, int axis = 0);

/// Entries to put before and after an axis.
struct Padding {
  std::int64_t before = 0;
  std::int64_t after = 0;
};
/// x framed by `value`: one Padding per axis, outermost first, `pad(x, {{0, 0}, {1, 2}})`.
/// Throws: DtypeError when a fractional value meets integers.
SOFTTAPE_API Tensor pad(TensorArg x, std::span<const Padding> paddings, double value = 0);
SOFTTAPE_API Tensor pad(TensorArg x, std::initializer_list<Padding> paddings, double value = 0);

/// The last two axes with zeros above (tril) or below (triu) a diagonal: 0 is the main one,
/// positive ones lie above it. Vjp: the same on gy; exact zeros where the result has them.
SOFTTAPE_API Tensor tril(TensorArg x, std::int64_t diagonal = 0);
SOFTTAPE_API Tensor triu(TensorArg x, std::int64_t diagonal = 0);

/// Entries in reverse order along an axis.
SOFTTAPE_API Tensor flip(TensorArg x, int axis);
/// Entries moved `shift` places along an axis; what leaves at one end comes in at the other.
SOFTTAPE_API Tensor roll(TensorArg x, std::int64_t shift, int axis);

}  // namespace softtape
