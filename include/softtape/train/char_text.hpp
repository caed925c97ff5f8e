// CharText: any UTF-8 file as a data set for character models. A character is one code point.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "softtape/train/tasks.hpp"

namespace softtape {

struct CharTextOptions {
  std::int64_t context = 32;  ///< T: characters of a window
  double validation = 0.1;    ///< share of the characters, at the end, that training never sees
};

/// A text as ids, in order of code points, cut into a part for training and one for validation.
/// A window is T characters and, as targets, the T characters one place further.
///
///     auto text = CharText::from_file(path, {.context = 32});
///     auto [x, y] = text.batch(16, rng);
class SOFTTAPE_API CharText {
 public:
  /// Throws: IoError for a file that is missing, empty, longer than 1 GiB or not UTF-8, with the
  /// offset of the first bad byte; ValueError for a context below 1 or beyond what the training
  /// part holds, and unless 0 <= validation < 1.
  static CharText from_file(const std::string& path, CharTextOptions options = {});
  static CharText from_string(std::string_view utf8, CharTextOptions options = {});

  /// Different characters of the whole text.
  std::int64_t vocab() const { return static_cast<std::int64_t>(symbols_.size()); }
  std::int64_t context() const { return options_.context; }
  /// Characters of the text, and of the part for training.
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t train_size() const { return train_; }

  /// Windows that begin anywhere in the training part. Shapes: x and y (B, T).
  /// Draws: integers(0, train_size() - context(), B). Throws: ValueError for a batch below 1.
  TokenBatch batch(std::int64_t batch, Rng& rng) const;
  /// The same windows at every call, evenly spread: the first begins with the held-out part and the
  /// last ends with it. Shapes: x and y (n, T).
  /// Throws: ValueError unless n >= 1 and the held-out part has n different windows.
  TokenBatch validation(std::int64_t n) const;

  /// Throws: ValueError for text that is not UTF-8, or a character that the data set lacks.
  std::vector<std::int64_t> encode(std::string_view utf8) const;
  /// Throws: ValueError for an id outside [0, vocab).
  std::string decode(std::span<const std::int64_t> ids) const;

  /// How often each character stands in the training part.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  /// Mean loss, in nats per character, of guessing the targets of `windows` by how often each
  /// character stands in the training part, or follows the character before it there; `add` is put
  /// on every count. What a model that learns anything more must beat.
  /// Throws: ValueError for windows that are not of this text or a negative or non-finite `add`.
  double unigram_loss(const TokenBatch& windows, double add = 0.1) const;
  double bigram_loss(const TokenBatch& windows, double add = 0.1) const;

 private:
  CharText(std::u32string_view text, CharTextOptions options);
  TokenBatch windows(std::span<const std::int64_t> starts) const;
  void check_windows(const char* op, const TokenBatch& windows, double add) const;

  CharTextOptions options_;
  std::u32string symbols_;  // sorted
  std::vector<std::int32_t> ids_;
  std::int64_t train_ = 0;
  std::vector<std::int64_t> counts_;
};

}  // namespace softtape
