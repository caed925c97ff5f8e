// UTF-8 to code points and back, strict as RFC 3629 wants it: no surrogates, no overlong forms,
// nothing beyond U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace softtape::detail {

/// Length in bytes of the character that `text` begins with; 0 when it begins with none.
std::size_t utf8_length(std::string_view text);

/// Appends the code points of `bytes` to `out`. Returns the offset of the first byte that belongs
/// to no character, or nothing when all is well.
std::optional<std::size_t> decode_utf8(std::string_view bytes, std::u32string& out);

/// Appends a code point that decode_utf8 gave.
void encode_utf8(char32_t symbol, std::string& out);

}  // namespace softtape::detail
