// UTF-8, by its table: the first byte tells the length, six bits follow in each of the others.
#include "train/utf8.hpp"

namespace softtape::detail {

std::optional<std::size_t> decode_utf8(std::string_view bytes, std::u32string& out) {
  // The smallest code point that needs as many bytes: below it the form is overlong.
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  for (std::size_t at = 0; at < bytes.size();) {
    const auto first = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc0 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf8 ? 4
                                              : 0;
    if (length == 0 || length > bytes.size() - at) return at;
    char32_t symbol = length == 1 ? first : first & (0x7fU >> length);
    for (std::size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(bytes[at + i]);
      if ((next & 0xc0) != 0x80) return at;
      symbol = symbol << 6 | (next & 0x3f);
    }
    const bool surrogate = symbol >= 0xd800 && symbol < 0xe000;
    if (symbol < kLeast[length] || surrogate || symbol > 0x10ffff) return at;
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
