// PCG64 (XSL-RR 128/64), stepped on an RngState: the raw words all draws are made of. Inline, since
// every fill loop runs through here. 128-bit numbers are kept as two halves.
#pragma once

#include <bit>
#include <cstdint>

#include "softtape/base/random.hpp"

namespace softtape::detail {

struct Wide {
  std::uint64_t high, low;
  bool operator==(const Wide&) const = default;
};

/// a * b in full, from four products of halves.
constexpr Wide multiply_by_halves(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t half = 0xffffffff;
  const std::uint64_t low = (a & half) * (b & half);
  const std::uint64_t middle = (a >> 32) * (b & half) + (low >> 32);
  const std::uint64_t cross = (a & half) * (b >> 32) + (middle & half);
  return {(a >> 32) * (b >> 32) + (middle >> 32) + (cross >> 32), (cross << 32) | (low & half)};
}

/// a * b in full.
constexpr Wide multiply_wide(std::uint64_t a, std::uint64_t b) {
#ifdef __SIZEOF_INT128__
  __extension__ using Uint128 = unsigned __int128;
  const Uint128 product = static_cast<Uint128>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
#else
  return multiply_by_halves(a, b);
#endif
}
static_assert(multiply_by_halves(~0ULL, ~0ULL) == multiply_wide(~0ULL, ~0ULL));
static_assert(multiply_by_halves(0xfedcba9876543210, 0x0123456789abcdef) ==
              multiply_wide(0xfedcba9876543210, 0x0123456789abcdef));

/// state = state * multiplier + inc, modulo 2^128.
inline void step(RngState& s) {
  constexpr Wide multiplier = {0x2360ed051fc65da4, 0x4385df649fccf645};
  const Wide product = multiply_wide(s.state_low, multiplier.low);
  const std::uint64_t high =
      product.high + s.state_low * multiplier.high + s.state_high * multiplier.low;
  s.state_low = product.low + s.inc_low;
  s.state_high = high + s.inc_high + (s.state_low < s.inc_low);
}

inline std::uint64_t next_uint64(RngState& s) {
  step(s);
  return std::rotr(s.state_high ^ s.state_low, static_cast<int>(s.state_high >> 58));
}

/// Half a word: the lower half first, the upper half at the next call.
inline std::uint32_t next_uint32(RngState& s) {
  s.has_uint32 = !s.has_uint32;
  if (!s.has_uint32) return s.uinteger;
  const std::uint64_t word = next_uint64(s);
  s.uinteger = static_cast<std::uint32_t>(word >> 32);
  return static_cast<std::uint32_t>(word);
}

/// Uniform on [0, 1) in steps of 2^-53.
inline double next_double(RngState& s) {
  return static_cast<double>(static_cast<std::int64_t>(next_uint64(s) >> 11)) * 0x1p-53;
}

/// Uniform on [0, 1) in steps of 2^-24.
inline float next_float(RngState& s) {
  return static_cast<float>(static_cast<std::int32_t>(next_uint32(s) >> 8)) * 0x1p-24f;
}

}  // namespace softtape::detail
