// The random generator. Rng(seed) gives, bit for bit, the streams of NumPy's
// numpy.random.default_rng(seed): SeedSequence seeding, PCG64, ziggurat normals, Lemire integers.
// Nothing from <random> is used: its distributions differ from one standard library to the next.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "softtape/base/export.hpp"

namespace softtape {

/// All that an `Rng` is: store it, and the stream goes on at the same draw.
/// The names and values are those of NumPy's `bit_generator.state` and `SeedSequence.state`.
struct RngState {
  std::uint64_t state_high = 0, state_low = 0;  ///< PCG64's 128-bit state.
  std::uint64_t inc_high = 0, inc_low = 1;      ///< PCG64's 128-bit increment, always odd.
  bool has_uint32 = false;                      ///< Whether `uinteger` is the next 32-bit draw.
  std::uint32_t uinteger = 0;                   ///< Upper half of the last word cut in two.

  std::vector<std::uint32_t> entropy = {};    ///< The seed in 32-bit words, lowest first.
  std::vector<std::uint64_t> spawn_key = {};  ///< One child index a generation; none at the root.
  std::uint64_t n_children_spawned = 0;       ///< Index of the next child.
  std::uint32_t pool_size = 4;                ///< Words of the seed pool: 4 (always, here) to 64.

  bool operator==(const RngState&) const = default;
};

/// Options of `Rng::integers`.
struct IntegersOptions {
  bool endpoint = false;  ///< Whether `high` itself can be drawn.
};

/// Options of `Rng::choice`.
struct ChoiceOptions {
  bool replace = true;         ///< Whether a value can be drawn more than once.
  std::vector<double> p = {};  ///< Probability of each value; empty: all the same.
  bool shuffle = true;  ///< Without replacement: `false` is faster, but the order is not random.
};

/// Random numbers in NumPy's streams. Copies draw the same numbers from then on.
///
/// Scalars and fills share one stream: filling n numbers is drawing n times. Fills of float come in
/// two kinds. `random` and `standard_normal` draw NumPy's own float32 streams (half a word each);
/// `normal` and `uniform` have none in NumPy: they draw the double stream and round.
///
/// Edges: about one normal in 3,700 lies in the ziggurat's tail and goes through libm's `log1p`; it
/// is NumPy's to the bit where NumPy calls the same libm.
///
/// Not for use from two threads at once: `spawn` gives each its own generator.
///
/// Source: M. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms
/// for Random Number Generation" (2014), and "Developing a seed_seq Alternative" (2015);
/// G. Marsaglia and W. Tsang, "The Ziggurat Method for Generating Random Variables" (2000);
/// D. Lemire, "Fast Random Integer Generation in an Interval" (2019).
class SOFTTAPE_API Rng {
 public:
  /// `default_rng(seed)`.
  explicit Rng(std::uint64_t seed);

  /// `default_rng([7, 3])`: a seed of several integers. A larger integer is given by its 32-bit
  /// words, lowest first: `Rng({12345, 0, 1})` is `default_rng(2**64 + 12345)`.
  explicit Rng(std::initializer_list<std::uint64_t> seeds);
  explicit Rng(std::span<const std::uint64_t> seeds);

  /// The next 64 random bits: `bit_generator.random_raw()`.
  std::uint64_t next_uint64();

  /// Uniform on [0, 1): 53 bits, or 24 for float; never 1.
  double random();
  void random(std::span<double> out);
  void random(std::span<float> out);

  /// Normal with mean 0 and standard deviation 1.
  double standard_normal();
  void standard_normal(std::span<double> out);
  void standard_normal(std::span<float> out);

  /// `mean + std * standard_normal()`.
  /// Throws: ValueError where `std` is negative or not finite.
  double normal(double mean, double std);
  void normal(std::span<double> out, double mean, double std);
  void normal(std::span<float> out, double mean, double std);

  /// `low + (high - low) * random()`, on [low, high).
  /// Edges: as in NumPy a double can round up to `high` unless `low` is 0; a float stays below it.
  /// Throws: ValueError where `high - low` is negative or not finite.
  double uniform(double low, double high);
  void uniform(std::span<double> out, double low, double high);
  void uniform(std::span<float> out, double low, double high);

  /// Integers on [low, high), all equally likely; with `{.endpoint = true}` on [low, high].
  /// Throws: ValueError where there is none.
  std::int64_t integers(std::int64_t low, std::int64_t high, IntegersOptions options = {});
  void integers(std::span<std::int64_t> out, std::int64_t low, std::int64_t high,
                IntegersOptions options = {});

  /// Puts the values into random order.
  void shuffle(std::span<std::int64_t> values);

  /// The numbers 0 to n - 1 in random order.
  /// Throws: ValueError where `n` is negative.
  std::vector<std::int64_t> permutation(std::int64_t n);

  /// `size` draws from 0 to n - 1.
  /// Throws: ValueError where a size is negative, there are too few values to draw from, or `p` is
  /// not n probabilities that sum to 1 (within 1.5e-8).
  std::vector<std::int64_t> choice(std::int64_t n, std::int64_t size,
                                   const ChoiceOptions& options = {});

  /// `n` independent generators, the same whatever was drawn before; a later call gives new ones.
  /// Throws: ValueError where `n` is negative.
  std::vector<Rng> spawn(std::int64_t n);

  /// Saves and restores everything, a waiting half word and the spawn counter included.
  /// Throws: ValueError where `state` cannot have come from a generator.
  const RngState& state() const { return state_; }
  void set_state(RngState state);

 private:
  RngState state_;
};

}  // namespace softtape
