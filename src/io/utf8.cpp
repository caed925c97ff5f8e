// UTF-8, by its table: the first byte tells the length, six bits follow in each of the others.
// Source: RFC 3629, section 4.
#include "io/utf8.hpp"

namespace softtape::detail {

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  const std::size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                             : first >= 0xe0 && first <= 0xef ? 3
                             : first >= 0xf0 && first <= 0xf4 ? 4
                                                              : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than needed, half of a surrogate pair, or beyond the last code point.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

std::optional<std::size_t> decode_utf8(std::string_view bytes, std::u32string& out) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = utf8_length(bytes.substr(at));
    if (length == 0) return at;
    const auto first = static_cast<unsigned char>(bytes[at]);
    char32_t symbol = length == 1 ? first : first & (0x7fU >> length);
    for (std::size_t i = 1; i < length; ++i) {
      symbol = symbol << 6 | (static_cast<unsigned char>(bytes[at + i]) & 0x3fU);
    }
    out += symbol;
    at += length;
  }
  return std::nullopt;
}

void encode_utf8(char32_t symbol, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  const auto follow = [&](int shift) { put(0x80 | (symbol >> shift & 0x3f)); };
  if (symbol < 0x80) {
    put(symbol);
  } else if (symbol < 0x800) {
    put(0xc0 | symbol >> 6);
    follow(0);
  } else if (symbol < 0x10000) {
    put(0xe0 | symbol >> 12);
    follow(6);
    follow(0);
  } else {
    put(0xf0 | symbol >> 18);
    follow(12);
    follow(6);
    follow(0);
  }
}

}  // namespace softtape::detail
