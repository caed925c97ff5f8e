// Looks at the exponent bits: an OR over integers runs in lanes, which a sum of floats may not.
#include "ops/finite.hpp"

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/loops.hpp"
#include "graph/node.hpp"

namespace softtape::detail {

namespace {

bool range_finite(const float* x, std::int64_t n) {
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    bad |= (std::bit_cast<std::uint32_t>(x[i]) & 0x7f800000u) + 0x00800000u;  // carries into bit 31
  }
  return (bad & 0x80000000u) == 0;
}

bool range_finite(const double* x, std::int64_t n) {
  constexpr std::uint64_t kExponent = 0x7ff0000000000000u;
  std::uint64_t bad = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    bad |= (std::bit_cast<std::uint64_t>(x[i]) & kExponent) + 0x0010000000000000u;
  }
  return bad >> 63 == 0;
}

}  // namespace

bool all_finite(const Tensor& x, std::int64_t begin, std::int64_t end) {
  return visit_float(x.dtype(), "isfinite", [&](auto zero) {
    return range_finite(numbers<decltype(zero)>(x) + begin, end - begin);
  });
}

bool all_finite(const Tensor& x) {
  std::atomic<bool> finite = true;
  visit_float(x.dtype(), "isfinite", [&](auto zero) {
    const auto* from = numbers<decltype(zero)>(x);
    for_ranges(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      if (!range_finite(from + begin, end - begin)) finite = false;
    });
  });
  return finite;
}

}  // namespace softtape::detail
