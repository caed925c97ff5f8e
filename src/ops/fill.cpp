// Checked numbers into tensors.
#include "ops/fill.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/loops.hpp"

namespace softtape::detail {

void check_number(const char* op, DType dtype, double value) {
  if (is_floating(dtype)) return;
  if (std::trunc(value) != value) {
    throw DtypeError(fmt::format("[{}] a fractional number cannot meet a tensor of {}: got {}", op,
                                 to_string(dtype), value));
  }
  if (dtype == DType::int64 && !(value >= -0x1p63 && value < 0x1p63)) {
    throw ValueError(fmt::format("[{}] a number must fit int64: got {}", op, value));
  }
}

void fill_number(Tensor& y, double value) {
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* into = fresh_numbers<T>(y);
    const T number = static_cast<T>(value);
    for_ranges(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(into + begin, into + end, number);
    });
  });
}

}  // namespace softtape::detail
