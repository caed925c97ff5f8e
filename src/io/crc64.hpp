// CRC-64 as in the xz format (ECMA-182's polynomial, reflected): a checksum against damage, not
// against forgery. Any change within 8 neighbouring bytes is noticed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace softtape::detail {

class Crc64 {
 public:
  void update(std::string_view bytes) {
    for (const char c : bytes) {
      value_ = kTable[(value_ ^ static_cast<unsigned char>(c)) & 0xff] ^ (value_ >> 8);
    }
  }
  std::uint64_t value() const { return ~value_; }

 private:
  // Entry i is the remainder of byte i followed by eight zero bytes.
  static constexpr std::array<std::uint64_t, 256> kTable = [] {
    std::array<std::uint64_t, 256> table{};
    for (std::uint64_t i = 0; i < 256; ++i) {
      std::uint64_t remainder = i;
      for (int bit = 0; bit < 8; ++bit) {
        remainder = (remainder >> 1) ^ (remainder & 1 ? 0xc96c5795d7870f42u : 0);
      }
      table[i] = remainder;
    }
    return table;
  }();

  std::uint64_t value_ = ~std::uint64_t{0};
};

}  // namespace softtape::detail
