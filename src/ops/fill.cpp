// Checked numbers into tensors.
#include "ops/fill.hpp"

#include <algorithm>

#include "base/loops.hpp"

namespace softtape::detail {

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
