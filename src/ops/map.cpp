// Broadcast plans and operands.
#include "ops/map.hpp"

#include <fmt/format.h>

#include <cmath>

namespace softtape::detail {

BroadcastPlan::BroadcastPlan(const Shape& y, const Shape& a, const Shape& b) {
  std::int64_t a_step = 1;
  std::int64_t b_step = 1;
  // Innermost axis first; reversed at the end.
  for (int axis = y.rank() - 1; axis >= 0; --axis) {
    const int ia = axis - (y.rank() - a.rank());
    const int ib = axis - (y.rank() - b.rank());
    const std::int64_t na = ia >= 0 ? a[ia] : 1;
    const std::int64_t nb = ib >= 0 ? b[ib] : 1;
    const std::int64_t a_stride = na == 1 ? 0 : a_step;
    const std::int64_t b_stride = nb == 1 ? 0 : b_step;
    a_step *= na;
    b_step *= nb;
    if (y[axis] == 1) continue;
    if (rank > 0 && a_stride == a_strides[rank - 1] * sizes[rank - 1] &&
        b_stride == b_strides[rank - 1] * sizes[rank - 1]) {
      sizes[rank - 1] *= y[axis];
      continue;
    }
    sizes[rank] = y[axis];
    a_strides[rank] = a_stride;
    b_strides[rank] = b_stride;
    ++rank;
  }
  if (rank == 0) sizes[rank++] = 1;
  std::reverse(sizes, sizes + rank);
  std::reverse(a_strides, a_strides + rank);
  std::reverse(b_strides, b_strides + rank);
}

void OperandPair::throw_mixed_dtypes(const char* op, DType a, DType b) {
  throw DtypeError(fmt::format("[{}] dtypes must be equal: a is {}, b is {}; convert with to()", op,
                               to_string(a), to_string(b)));
}

void OperandPair::meet_number(const char* op, const Operand& a, const Operand& b) {
  if (!a.is_tensor() && !b.is_tensor()) {
    throw DtypeError(fmt::format("[{}] needs at least one tensor: got two numbers", op));
  }
  a_ = a.is_tensor() ? &a.tensor() : &number_;
  b_ = b.is_tensor() ? &b.tensor() : &number_;
  check_defined(op, a.is_tensor() ? "a" : "b", a.is_tensor() ? *a_ : *b_);
  const Operand& number = a.is_tensor() ? b : a;
  const DType dtype = a.is_tensor() ? a_->dtype() : b_->dtype();
  if (!is_floating(dtype) && !number.is_whole()) {
    throw DtypeError(fmt::format("[{}] a fractional number cannot meet a tensor of {}: got {}", op,
                                 to_string(dtype), number.number()));
  }
  number_ = make_tensor({}, dtype);
  visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    *fresh_numbers<T>(number_) = static_cast<T>(number.number());
  });
}

}  // namespace softtape::detail
