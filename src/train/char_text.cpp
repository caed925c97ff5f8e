// Text as a data set: code points to ids, windows, and the two counting models.
#include "softtape/train/char_text.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "io/utf8.hpp"
#include "softtape/io/file.hpp"
#include "softtape/ops/create.hpp"
#include "train/checks.hpp"

namespace softtape {
namespace {

using detail::require_size;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// `source` is how messages call the text: "" or "'path': ".
std::u32string code_points(std::string_view bytes, const std::string& source) {
  if (bytes.empty()) throw IoError(fmt::format("[CharText] {}there is no text: 0 bytes", source));
  std::u32string out;
  if (const auto bad = detail::decode_utf8(bytes, out)) {
    throw IoError(
        fmt::format("[CharText] {}the text is not UTF-8: byte {:#04x} at offset {}; convert it",
                    source, static_cast<unsigned char>(bytes[*bad]), *bad));
  }
  return out;
}

std::span<const std::int64_t> numbers(const Tensor& x) { return x.data<std::int64_t>(); }

}  // namespace

CharText CharText::from_file(const std::string& path, CharTextOptions options) {
  return {read_file(path, kMostBytes), fmt::format("'{}': ", path), options};
}

CharText CharText::from_string(std::string_view utf8, CharTextOptions options) {
  return {utf8, "", options};
}

CharText::CharText(std::string_view bytes, const std::string& source, CharTextOptions options)
    : options_(options) {
  require_size("CharText", "context", options.context);
  if (!(options.validation >= 0 && options.validation < 1)) {
    throw ValueError(
        fmt::format("[CharText] a share lies in [0, 1): validation = {}", options.validation));
  }
  const std::u32string text = code_points(bytes, source);
  train_ = static_cast<std::int64_t>(static_cast<double>(text.size()) * (1 - options.validation));
  if (options.context >= train_) {
    throw ValueError(
        fmt::format("[CharText] {}the training part must hold a window and one character more: "
                    "context = {}, {} of {} characters are for training; shorten the context",
                    source, options.context, train_, text.size()));
  }
  symbols_ = text;
  std::sort(symbols_.begin(), symbols_.end());
  symbols_.erase(std::unique(symbols_.begin(), symbols_.end()), symbols_.end());
  std::unordered_map<char32_t, std::int32_t> ids;
  for (const char32_t symbol : symbols_) ids.emplace(symbol, static_cast<std::int32_t>(ids.size()));
  ids_.reserve(text.size());
  for (const char32_t symbol : text) ids_.push_back(ids.find(symbol)->second);
  counts_.resize(symbols_.size());
  for (std::int64_t i = 0; i < train_; ++i) {
    ++counts_[static_cast<std::size_t>(ids_[static_cast<std::size_t>(i)])];
  }
}

TokenBatch CharText::windows(std::span<const std::int64_t> starts) const {
  const Shape shape{static_cast<std::int64_t>(starts.size()), options_.context};
  TokenBatch out{empty(shape, {.dtype = DType::int64}), empty(shape, {.dtype = DType::int64})};
  auto x = out.x.mutable_data<std::int64_t>().begin();
  auto y = out.y.mutable_data<std::int64_t>().begin();
  for (const std::int64_t start : starts) {
    const auto from = ids_.begin() + start;
    x = std::copy_n(from, options_.context, x);
    y = std::copy_n(from + 1, options_.context, y);
  }
  return out;
}

TokenBatch CharText::batch(std::int64_t batch, Rng& rng) const {
  require_size("CharText", "batch", batch);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(batch));
  rng.integers(starts, 0, train_ - options_.context);
  return windows(starts);
}

TokenBatch CharText::validation(std::int64_t n) const {
  require_size("CharText", "n", n);
  const std::int64_t places = size() - train_ - options_.context;
  if (places < n) {
    throw ValueError(fmt::format(
        "[CharText] the held-out part must have as many windows: n = {}, context = {}, {} "
        "characters are held out; take fewer windows, or raise the share of validation",
        n, options_.context, size() - train_));
  }
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < n; ++i) {
    starts.push_back(train_ + (n == 1 ? 0 : i * (places - 1) / (n - 1)));
  }
  return windows(starts);
}

std::vector<std::int64_t> CharText::encode(std::string_view utf8) const {
  std::u32string text;
  if (const auto bad = detail::decode_utf8(utf8, text)) {
    throw ValueError(fmt::format("[CharText] the text is not UTF-8: offset {}", *bad));
  }
  std::vector<std::int64_t> out;
  for (const char32_t symbol : text) {
    const auto found = std::lower_bound(symbols_.begin(), symbols_.end(), symbol);
    if (found == symbols_.end() || *found != symbol) {
      throw ValueError(
          fmt::format("[CharText] the data set has no such character: U+{:04X} at place {}",
                      static_cast<std::uint32_t>(symbol), out.size()));
    }
    out.push_back(found - symbols_.begin());
  }
  return out;
}

std::string CharText::decode(std::span<const std::int64_t> ids) const {
  std::string out;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= vocab()) {
      throw ValueError(fmt::format("[CharText] an id must lie in [0, {}): {}", vocab(), id));
    }
    detail::encode_utf8(symbols_[static_cast<std::size_t>(id)], out);
  }
  return out;
}

void CharText::check_windows(const char* op, const TokenBatch& windows, double add) const {
  if (!(std::isfinite(add) && add >= 0)) {
    throw ValueError(
        fmt::format("[{}] a count must be finite and not negative: add = {}", op, add));
  }
  if (windows.x.shape() != windows.y.shape() || windows.x.numel() == 0) {
    throw ShapeError(fmt::format("[{}] x and y must be windows of one shape: x is {}, y is {}", op,
                                 to_string(windows.x.shape()), to_string(windows.y.shape())));
  }
  for (const Tensor& ids : {windows.x, windows.y}) {
    for (const std::int64_t id : numbers(ids)) {
      if (id >= 0 && id < vocab()) continue;
      throw ValueError(fmt::format("[{}] an id must lie in [0, {}): {}", op, vocab(), id));
    }
  }
}

double CharText::unigram_loss(const TokenBatch& windows, double add) const {
  check_windows("unigram_loss", windows, add);
  const double total = static_cast<double>(train_) + add * static_cast<double>(vocab());
  double sum = 0;
  for (const std::int64_t id : numbers(windows.y)) {
    const auto count = static_cast<double>(counts_[static_cast<std::size_t>(id)]);
    sum -= std::log((count + add) / total);
  }
  return sum / static_cast<double>(windows.y.numel());
}

double CharText::bigram_loss(const TokenBatch& windows, double add) const {
  check_windows("bigram_loss", windows, add);
  std::unordered_map<std::int64_t, std::int64_t> pairs;
  std::vector<std::int64_t> firsts(symbols_.size());
  for (std::int64_t i = 0; i + 1 < train_; ++i) {
    const auto first = ids_[static_cast<std::size_t>(i)];
    ++firsts[static_cast<std::size_t>(first)];
    ++pairs[first * vocab() + ids_[static_cast<std::size_t>(i + 1)]];
  }
  const auto x = numbers(windows.x);
  const auto y = numbers(windows.y);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto found = pairs.find(x[i] * vocab() + y[i]);
    const double count = found == pairs.end() ? 0 : static_cast<double>(found->second);
    const double total = static_cast<double>(firsts[static_cast<std::size_t>(x[i])]) +
                         add * static_cast<double>(vocab());
    // Without `add` a character that training never saw, or saw only at its end, tells nothing.
    sum += total > 0 ? std::log(total / (count + add)) : std::log(static_cast<double>(vocab()));
  }
  return sum / static_cast<double>(x.size());
}

}  // namespace softtape
