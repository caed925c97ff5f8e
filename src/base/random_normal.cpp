// Normal draws of Rng: NumPy's ziggurat with 256 layers, in double and float.
//
// One raw word gives layer, sign and magnitude. In 99 draws of 100 the point lies inside the
// layer's rectangle and is done; else it is in the wedge at the rectangle's end or, in layer 0, in
// the tail.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/pcg64.hpp"
#include "base/ziggurat_tables.hpp"
#include "softtape/base/error.hpp"
#include "softtape/base/random.hpp"

namespace softtape {
namespace {

/// Where the tail begins, and 1 over it.
constexpr double kTail = 3.6541528853610087963519472518;
constexpr double kInverseTail = 0.27366123732975827203338247596;

/// What differs between the two streams. Layer i: a magnitude below `inside(i)` is in the
/// rectangle, `width(i)` turns a magnitude into x, `density(i)` is exp(-x^2/2) at the layer's outer
/// edge.
template <typename Real>
struct Ziggurat;

template <>
struct Ziggurat<double> {
  using Word = std::uint64_t;
  using Signed = std::int64_t;
  static constexpr int kMagnitudeBits = 52;
  static Word word(RngState& s) { return detail::next_uint64(s); }
  static double uniform(RngState& s) { return detail::next_double(s); }
  static Word inside(Word layer) { return detail::kInsideDouble[layer]; }
  static double width(Word layer) { return detail::kWidthDouble[layer]; }
  static double density(Word layer) { return detail::kDensityDouble[layer]; }
};

template <>
struct Ziggurat<float> {
  using Word = std::uint32_t;
  using Signed = std::int32_t;
  static constexpr int kMagnitudeBits = 23;
  static Word word(RngState& s) { return detail::next_uint32(s); }
  static float uniform(RngState& s) { return detail::next_float(s); }
  static Word inside(Word layer) { return detail::kInsideFloat[layer]; }
  static float width(Word layer) { return detail::kWidthFloat[layer]; }
  static float density(Word layer) { return detail::kDensityFloat[layer]; }
};

/// The rare rest: x where the point is under the curve, nothing where it must be drawn anew.
/// Kept out of line so that the common path stays short.
template <typename Real, typename Z = Ziggurat<Real>>
[[gnu::noinline]] std::optional<Real> outside_rectangle(RngState& s, typename Z::Word layer,
                                                        typename Z::Word magnitude, Real x) {
  if (layer != 0) {
    const Real drop = Z::density(layer - 1) - Z::density(layer);
    const Real height = drop * Z::uniform(s) + Z::density(layer);
    if (height < std::exp(-0.5 * x * x)) return x;  // compared in double for float too
    return std::nullopt;
  }
  for (;;) {
    const Real excess = -static_cast<Real>(kInverseTail) * std::log1p(-Z::uniform(s));
    const Real y = -std::log1p(-Z::uniform(s));
    if (y + y > excess * excess) {
      const Real tail = static_cast<Real>(kTail) + excess;
      return ((magnitude >> 8) & 1) != 0 ? -tail : tail;
    }
  }
}

template <typename Real, typename Z = Ziggurat<Real>>
inline Real next_normal(RngState& s) {
  using Word = typename Z::Word;
  constexpr int sign_shift = static_cast<int>(sizeof(Word)) * 8 - 9;  // bit 8 to the sign bit
  for (;;) {
    const Word word = Z::word(s);
    const Word layer = word & 0xff;
    const Word magnitude = (word >> 9) & ((Word{1} << Z::kMagnitudeBits) - 1);
    const Real size =
        static_cast<Real>(static_cast<typename Z::Signed>(magnitude)) * Z::width(layer);
    // The sign is set by its bit: half of all branches on it would be mispredicted.
    const Real x = std::bit_cast<Real>(std::bit_cast<Word>(size) | ((word & 0x100) << sign_shift));
    if (magnitude < Z::inside(layer)) [[likely]]
      return x;
    if (const auto outside = outside_rectangle<Real>(s, layer, magnitude, x)) return *outside;
  }
}

void check_std(double std) {
  if (!(std >= 0 && std::isfinite(std))) {
    throw ValueError(
        fmt::format("[Rng::normal] std must be finite and not negative: std = {}", std));
  }
}

}  // namespace

double Rng::standard_normal() { return next_normal<double>(state_); }

void Rng::standard_normal(std::span<double> out) {
  for (double& x : out) x = next_normal<double>(state_);
}

void Rng::standard_normal(std::span<float> out) {
  for (float& x : out) x = next_normal<float>(state_);
}

double Rng::normal(double mean, double std) {
  check_std(std);
  return mean + std * next_normal<double>(state_);
}

void Rng::normal(std::span<double> out, double mean, double std) {
  check_std(std);
  for (double& x : out) x = mean + std * next_normal<double>(state_);
}

void Rng::normal(std::span<float> out, double mean, double std) {
  check_std(std);
  for (float& x : out) x = static_cast<float>(mean + std * next_normal<double>(state_));
}

}  // namespace softtape
