// Generated tasks: what a toy attention model learns from when there is no data set. Every sample
// comes from the Rng that is passed in, so the same seed gives the same tasks as NumPy's.
#pragma once

#include <cstdint>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape {

/// The target of a position whose prediction does not count: what is passed as `ignore_index` to
/// cross_entropy and accuracy.
inline constexpr std::int64_t kIgnore = -1;

/// Sequences of token ids and what is to be predicted at each of their places.
/// Shapes: x and y (B, T), int64; y holds kIgnore where no prediction counts.
struct TokenBatch {
  Tensor x;
  Tensor y;
};

struct RecallOptions {
  std::int64_t length = 16;  ///< T: pairs in a sample, at most `keys`
  std::int64_t keys = 32;    ///< key symbols
  std::int64_t values = 16;  ///< value symbols
};

/// Shapes: keys and values (B, T), the others (B,); all int64.
struct RecallBatch {
  Tensor keys;    ///< distinct in each row
  Tensor values;  ///< equally likely, independent
  Tensor slot;    ///< the place that is asked for
  Tensor query;   ///< keys[slot]
  Tensor target;  ///< values[slot]
};

/// Associative recall, a soft lookup table: T pairs of a key and a value, and one of the keys; its
/// value is wanted. Chance level of the loss: ln(values).
///
/// Draws, sample after sample: keys = permutation(keys)[:T], values = integers(0, values, T),
/// slot = integers(0, T).
/// Throws: ValueError for sizes below 1 or more pairs than keys.
class SOFTTAPE_API RecallTask {
 public:
  explicit RecallTask(RecallOptions options = {});
  /// Throws: ValueError for a batch below 1.
  RecallBatch sample(std::int64_t batch, Rng& rng) const;
  const RecallOptions& options() const { return options_; }

 private:
  RecallOptions options_;
};

struct CopyOptions {
  std::int64_t length = 8;  ///< N: symbols to be repeated
  std::int64_t vocab = 16;  ///< symbols; the separator is one token more
};

/// Copying by position: N symbols, a separator, the same N symbols again. Symbols may repeat, so
/// that only their places tell which one is next.
/// T = 2 N; x = s_1 ... s_N, separator, s_1 ... s_(N-1); y = kIgnore (N times), s_1 ... s_N.
///
/// Draws, sample after sample: s = integers(0, vocab, N).
/// Throws: ValueError for sizes below 1.
class SOFTTAPE_API CopyTask {
 public:
  explicit CopyTask(CopyOptions options = {});
  /// Throws: ValueError for a batch below 1.
  TokenBatch sample(std::int64_t batch, Rng& rng) const;
  /// Tokens, the separator included: it is the last id.
  std::int64_t vocab() const { return options_.vocab + 1; }
  /// T.
  std::int64_t context() const { return 2 * options_.length; }

 private:
  CopyOptions options_;
};

struct InductionOptions {
  std::int64_t length = 8;  ///< N: tokens of the block that is repeated, at least 2
  std::int64_t vocab = 32;  ///< at least 4 N
};

/// Copying by content: a block of N distinct tokens, twice. A token's second occurrence tells what
/// comes next: what followed the first one.
/// T = 2 N - 1; x = s_1 ... s_N s_1 ... s_(N-1) and y the same one place later, with kIgnore up to
/// the first token of the second block, which nothing foretells.
///
/// Draws, sample after sample: s = permutation(vocab)[:N].
/// Throws: ValueError for length < 2, and for vocab < 4 length: when a block holds most tokens,
/// avoiding what was seen twice predicts nearly as well as copying does, and that is what heads
/// learn instead.
/// Source: Olsson et al. 2022 (induction heads).
class SOFTTAPE_API InductionTask {
 public:
  explicit InductionTask(InductionOptions options = {});
  /// Throws: ValueError for a batch below 1.
  TokenBatch sample(std::int64_t batch, Rng& rng) const;
  std::int64_t vocab() const { return options_.vocab; }
  /// T.
  std::int64_t context() const { return 2 * options_.length - 1; }

 private:
  InductionOptions options_;
};

}  // namespace softtape
