// Rng but for its normals and choices: seeding (NumPy's SeedSequence), state, uniform numbers,
// integers and shuffles. Each draw takes from the raw stream exactly what NumPy takes.

#include "softtape/base/random.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/pcg64.hpp"
#include "softtape/base/error.hpp"

namespace softtape {
namespace {

using detail::next_double;
using detail::next_float;
using detail::next_uint32;

// ---- seeding ----------------------------------------------------------------------------------

constexpr std::uint32_t kMaxPoolSize = 64;

/// Appends an integer in 32-bit words, lowest first, without leading zeros (but 0 is one word).
void append_words(std::vector<std::uint32_t>& words, std::uint64_t value) {
  words.push_back(static_cast<std::uint32_t>(value));
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
}

/// SeedSequence's hash: a multiplicative one whose constants change from word to word.
class WordHash {
 public:
  WordHash(std::uint32_t init, std::uint32_t multiplier) : key_(init), multiplier_(multiplier) {}

  std::uint32_t operator()(std::uint32_t word) {
    word ^= key_;
    key_ *= multiplier_;
    word *= key_;
    return word ^ (word >> 16);
  }

 private:
  std::uint32_t key_, multiplier_;
};

std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t mixed = 0xca01f9ddU * x - 0x4973f715U * y;
  return mixed ^ (mixed >> 16);
}

/// Fills the pool so that each bit of the seed and of the spawn key reaches every word of it.
std::vector<std::uint32_t> seed_pool(const RngState& s) {
  std::vector<std::uint32_t> words = s.entropy;
  // A child's short seed is padded, or its key would read as more of the parent's seed. Any other
  // short seed gets the same zeros: the hash runs on over the rest of the pool.
  if (words.size() < s.pool_size) words.resize(s.pool_size);
  for (const std::uint64_t index : s.spawn_key) append_words(words, index);

  WordHash hash(0x43b0d7e5, 0x931e8875);
  std::vector<std::uint32_t> pool(s.pool_size);
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash(words[i]);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  for (std::size_t i = pool.size(); i < words.size(); ++i) {
    for (std::uint32_t& word : pool) word = mix(word, hash(words[i]));
  }
  return pool;
}

/// Sets PCG64's state from entropy, spawn key and pool size.
void seed_pcg64(RngState& s) {
  const std::vector<std::uint32_t> pool = seed_pool(s);
  WordHash hash(0x8b51f9dd, 0x58f38ded);
  std::array<std::uint64_t, 4> seed{};
  for (std::size_t i = 0; i < 8; ++i) {
    seed[i / 2] |= std::uint64_t{hash(pool[i % pool.size()])} << (i % 2 == 0 ? 0 : 32);
  }
  s.inc_high = (seed[2] << 1) | (seed[3] >> 63);
  s.inc_low = (seed[3] << 1) | 1;
  // From state 0 a step gives the increment; then the seed is added, and stepped once.
  s.state_low = s.inc_low + seed[1];
  s.state_high = s.inc_high + seed[0] + (s.state_low < seed[1]);
  detail::step(s);
}

// ---- integers ---------------------------------------------------------------------------------

/// Uniform on [0, max] by Lemire's method: the upper half of word * (max + 1). The lower half tells
/// the few words that would favour some results.
template <typename Word>
std::uint64_t lemire(RngState& s, Word max) {
  const Word count = max + 1;
  const auto draw = [&] {
    if constexpr (sizeof(Word) == 8) return detail::multiply_wide(detail::next_uint64(s), count);
    const std::uint64_t product = std::uint64_t{next_uint32(s)} * count;
    return detail::Wide{product >> 32, static_cast<std::uint32_t>(product)};
  };
  detail::Wide product = draw();
  if (product.low < count) {  // else it passes the threshold, which costs a division
    const Word threshold = (0 - count) % count;
    while (product.low < threshold) product = draw();
  }
  return product.high;
}

/// Uniform on [0, max], from half words where `max` fits into one.
std::uint64_t next_bounded(RngState& s, std::uint64_t max) {
  constexpr std::uint32_t max_32 = std::numeric_limits<std::uint32_t>::max();
  if (max == 0) return 0;
  if (max < max_32) return lemire(s, static_cast<std::uint32_t>(max));
  if (max == max_32) return next_uint32(s);
  if (max < std::numeric_limits<std::uint64_t>::max()) return lemire(s, max);
  return detail::next_uint64(s);
}

/// Uniform on [0, max] by another method, which shuffles use: cut draws to the bits of `max`, and
/// drop those above it.
std::uint64_t next_masked(RngState& s, std::uint64_t max) {
  if (max == 0) return 0;
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(max);
  for (;;) {
    const std::uint64_t word = max >> 32 == 0 ? next_uint32(s) : detail::next_uint64(s);
    if ((word & mask) <= max) return word & mask;
  }
}

/// Checks a range and returns high - low, `high` being included.
std::uint64_t checked_span(std::int64_t low, std::int64_t high, IntegersOptions options) {
  if (options.endpoint ? low > high : low >= high) {
    throw ValueError(fmt::format("[Rng::integers] low must {} high: low = {}, high = {}{}",
                                 options.endpoint ? "not exceed" : "be less than", low, high,
                                 low == high ? "; {.endpoint = true} includes high" : ""));
  }
  return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) -
         (options.endpoint ? 0 : 1);
}

std::int64_t offset(std::int64_t low, std::uint64_t distance) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + distance);
}

void check_range(double low, double high) {
  if (const double range = high - low; !(range >= 0 && std::isfinite(range))) {
    throw ValueError(fmt::format(
        "[Rng::uniform] high - low must be finite and not negative: low = {}, high = {}", low,
        high));
  }
}

void check_count(std::string_view function, std::int64_t n) {
  if (n < 0) throw ValueError(fmt::format("[{}] n must not be negative: n = {}", function, n));
}

}  // namespace

Rng::Rng(std::uint64_t seed) : Rng({seed}) {}

Rng::Rng(std::initializer_list<std::uint64_t> seeds)
    : Rng(std::span<const std::uint64_t>(seeds.begin(), seeds.size())) {}

Rng::Rng(std::span<const std::uint64_t> seeds) {
  for (const std::uint64_t seed : seeds) append_words(state_.entropy, seed);
  seed_pcg64(state_);
}

void Rng::set_state(RngState state) {
  if (state.inc_low % 2 == 0) {
    throw ValueError(
        fmt::format("[Rng::set_state] the increment must be odd: inc_low = {}", state.inc_low));
  }
  if (state.pool_size < 4 || state.pool_size > kMaxPoolSize) {
    throw ValueError(fmt::format("[Rng::set_state] pool_size must be from 4 to {}: pool_size = {}",
                                 kMaxPoolSize, state.pool_size));
  }
  state_ = std::move(state);
}

std::vector<Rng> Rng::spawn(std::int64_t n) {
  check_count("Rng::spawn", n);
  std::vector<Rng> children;
  children.reserve(static_cast<std::size_t>(n));
  Rng child = *this;
  child.state_.has_uint32 = false;
  child.state_.uinteger = 0;
  child.state_.n_children_spawned = 0;
  child.state_.spawn_key.push_back(state_.n_children_spawned);
  for (; n > 0; --n, ++child.state_.spawn_key.back()) {
    seed_pcg64(child.state_);
    children.push_back(child);
  }
  state_.n_children_spawned = child.state_.spawn_key.back();
  return children;
}

std::uint64_t Rng::next_uint64() { return detail::next_uint64(state_); }

double Rng::random() { return next_double(state_); }

void Rng::random(std::span<double> out) {
  for (double& x : out) x = next_double(state_);
}

void Rng::random(std::span<float> out) {
  for (float& x : out) x = next_float(state_);
}

double Rng::uniform(double low, double high) {
  check_range(low, high);
  return low + (high - low) * next_double(state_);
}

void Rng::uniform(std::span<double> out, double low, double high) {
  check_range(low, high);
  for (double& x : out) x = low + (high - low) * next_double(state_);
}

void Rng::uniform(std::span<float> out, double low, double high) {
  check_range(low, high);
  for (float& x : out) {
    x = static_cast<float>(low + (high - low) * next_double(state_));
    // Rounding to float reaches `high` once in 2^25 draws even on [0, 1).
    if (x >= high && low < high) x = std::nextafter(x, -std::numeric_limits<float>::infinity());
  }
}

std::int64_t Rng::integers(std::int64_t low, std::int64_t high, IntegersOptions options) {
  return offset(low, next_bounded(state_, checked_span(low, high, options)));
}

void Rng::integers(std::span<std::int64_t> out, std::int64_t low, std::int64_t high,
                   IntegersOptions options) {
  const std::uint64_t span = checked_span(low, high, options);
  for (std::int64_t& x : out) x = offset(low, next_bounded(state_, span));
}

void Rng::shuffle(std::span<std::int64_t> values) {
  for (std::size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[static_cast<std::size_t>(next_masked(state_, i))]);
  }
}

std::vector<std::int64_t> Rng::permutation(std::int64_t n) {
  check_count("Rng::permutation", n);
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  shuffle(values);
  return values;
}

}  // namespace softtape
