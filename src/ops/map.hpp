// Loops of elementwise ops: one function over the elements of one or two tensors, broadcast.
#pragma once

#include <type_traits>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "softtape/ops/reduce.hpp"

namespace softtape::detail {

/// Strides of two inputs over their broadcast shape, with axes merged where both allow it.
struct BroadcastPlan {
  int rank = 0;
  std::int64_t sizes[Shape::kMaxRank] = {};
  std::int64_t a_strides[Shape::kMaxRank] = {};
  std::int64_t b_strides[Shape::kMaxRank] = {};

  BroadcastPlan(const Shape& y, const Shape& a, const Shape& b);
  /// Offsets of the inputs for element i of the result.
  void element(std::int64_t i, std::int64_t& a_offset, std::int64_t& b_offset) const {
    const std::int64_t inner = sizes[rank - 1];
    offsets(i / inner, a_offset, b_offset);
    a_offset += i % inner * a_strides[rank - 1];
    b_offset += i % inner * b_strides[rank - 1];
  }
  /// Offsets of the inputs where row `row` of the innermost axis begins.
  void offsets(std::int64_t row, std::int64_t& a_offset, std::int64_t& b_offset) const {
    a_offset = b_offset = 0;
    for (int axis = rank - 2; axis >= 0; --axis) {
      const std::int64_t index = row % sizes[axis];
      row /= sizes[axis];
      a_offset += index * a_strides[axis];
      b_offset += index * b_strides[axis];
    }
  }
};

/// y[i] = f(x[i]).
template <class X, class Y, class F>
void map_numbers(const X* x, Y* __restrict y, std::int64_t n, F f) {
  for_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

template <class X, class Y, class F>
void map_row(const X* a, std::int64_t a_stride, const X* b, std::int64_t b_stride, Y* __restrict y,
             std::int64_t n, F f) {
  if (a_stride && b_stride) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (a_stride) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(a[i], *b);
  } else if (b_stride) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(*a, b[i]);
  } else {
    const Y value = f(*a, *b);
    for (std::int64_t i = 0; i < n; ++i) y[i] = value;
  }
}

// Apart from map_broadcast, so that a single number does not pay for the registers of the loops.
template <class X, class Y, class F>
[[gnu::noinline]] void map_broadcast_loops(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const X* pa = numbers<X>(a);
  const X* pb = numbers<X>(b);
  Y* py = fresh_numbers<Y>(y);
  const std::int64_t n = shape_of(y).numel();
  const std::int64_t an = shape_of(a).numel();
  const std::int64_t bn = shape_of(b).numel();
  const bool a_full = an == n;
  const bool b_full = bn == n;
  if ((a_full || an == 1) && (b_full || bn == 1)) {
    for_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      map_row(a_full ? pa + begin : pa, a_full, b_full ? pb + begin : pb, b_full, py + begin,
              end - begin, f);
    });
    return;
  }
  const BroadcastPlan plan(shape_of(y), shape_of(a), shape_of(b));
  const std::int64_t inner = plan.sizes[plan.rank - 1];
  const std::int64_t rows = inner ? n / inner : 0;
  for_ranges(rows, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t a_offset, b_offset;
      plan.offsets(row, a_offset, b_offset);
      map_row(pa + a_offset, plan.a_strides[plan.rank - 1], pb + b_offset,
              plan.b_strides[plan.rank - 1], py + row * inner, inner, f);
    }
  });
}

/// y = f(a, b) over the broadcast shape that y has.
template <class X, class Y, class F>
void map_broadcast(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  if (shape_of(y).numel() == 1) {
    *fresh_numbers<Y>(y) = f(*numbers<X>(a), *numbers<X>(b));
  } else {
    map_broadcast_loops<X, Y>(a, b, y, f);
  }
}

/// A whole unary float op: checks, values, record. Saves what `op` says.
template <class F>
Tensor unary_op(const OpInfo& op, const Tensor& x, F f) {
  check_float(op.name, "x", x);
  const Node& from = *TensorAccess::node(x);
  Tensor y = make_tensor(from.shape, from.dtype);
  visit_float(from.dtype, op.name, [&](auto zero) {
    using T = decltype(zero);
    map_numbers(numbers<T>(x), fresh_numbers<T>(y), from.shape.numel(), f);
  });
  return record(op, std::move(y), {x});
}

/// An operand as a tensor; a number becomes a scalar of the other operand's dtype.
/// Throws: DtypeError when a fractional number meets an int64 tensor, or both are numbers.
class OperandPair {
 public:
  [[gnu::always_inline]] OperandPair(const char* op, const Operand& a, const Operand& b) {
    if (a.is_tensor() && b.is_tensor()) {
      a_ = &a.tensor();
      b_ = &b.tensor();
      const Node& left = node_of(op, "a", *a_);
      const Node& right = node_of(op, "b", *b_);
      if (left.dtype != right.dtype) throw_mixed_dtypes(op, left.dtype, right.dtype);
    } else {
      meet_number(op, a, b);
    }
  }
  const Tensor& a() const { return *a_; }
  const Tensor& b() const { return *b_; }

 private:
  [[noreturn]] static void throw_mixed_dtypes(const char* op, DType a, DType b);
  void meet_number(const char* op, const Operand& a, const Operand& b);

  const Tensor* a_;
  const Tensor* b_;
  Tensor number_;
};

/// The same shape, or the broadcast one.
inline Shape result_shape(const char* op, const Tensor& a, const Tensor& b) {
  const Shape& sa = shape_of(a);
  const Shape& sb = shape_of(b);
  return sa == sb ? sa : broadcast(op, sa, sb);
}

/// A fresh tensor of the shape that result_shape gives.
[[gnu::always_inline]] inline Tensor make_result(const char* op, const Tensor& a, const Tensor& b,
                                                 DType dtype) {
  const Shape& sa = shape_of(a);
  const Shape& sb = shape_of(b);
  if (sa == sb) return make_tensor(sa, dtype);  // from where it lies: a copy would cost as much
  return make_tensor(broadcast(op, sa, sb), dtype);
}

/// What a product saves: each input only when the other one wants a gradient.
inline Saves saves_of_product(const Tensor& a, const Tensor& b) {
  return {(TensorAccess::node(b)->requires_grad ? 1u : 0u) |
          (TensorAccess::node(a)->requires_grad ? 2u : 0u)};
}

[[gnu::always_inline]] inline Tensor record_with(const OpInfo& op, Saves saves, Tensor&& y,
                                                 std::initializer_list<TensorRef> inputs) {
  if (!t_grad_enabled && !t_anomaly) return std::move(y);
  return record(op, saves, std::move(y), inputs.begin(), inputs.size(), nullptr);
}

template <class A>
Tensor record_with(const OpInfo& op, Saves saves, Tensor&& y,
                   std::initializer_list<TensorRef> inputs, A attributes) {
  std::unique_ptr<Attributes> kept;
  if (will_record(inputs.begin(), inputs.size())) {
    kept = std::make_unique<AttributesOf<A>>(std::move(attributes));
  }
  return record(op, saves, std::move(y), inputs.begin(), inputs.size(), std::move(kept));
}

}  // namespace softtape::detail
