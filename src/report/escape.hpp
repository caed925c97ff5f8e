// Text into HTML or XML, safe inside elements and quoted attributes.
#pragma once

#include <string>
#include <string_view>

namespace softtape::detail {

/// Control characters, which neither format can hold, become spaces; newlines and tabs stay.
inline std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        out += control ? ' ' : c;
      }
    }
  }
  return out;
}

}  // namespace softtape::detail
