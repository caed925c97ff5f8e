// What the tests of files share: bytes to and from a file, and states of a model.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "softtape/graph/tensor.hpp"
#include "softtape/nn/state.hpp"
#include "support/compare.hpp"
#include "support/folder.hpp"

namespace io_test {

/// Plain writing and reading, not the library's own.
inline void put(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.flush().good());
}
inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The numbers of a tensor as they lie in memory.
inline std::string raw(const softtape::Tensor& tensor) {
  return softtape::visit_any(tensor.dtype(), [&](auto zero) {
    const auto bytes = std::as_bytes(tensor.data<decltype(zero)>());
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
}

inline softtape::State cloned(const softtape::State& state) {
  softtape::State copy;
  for (const auto& [name, tensor] : state) copy.emplace_back(name, tensor.detach().clone());
  return copy;
}

inline bool same_state(const softtape::State& a, const softtape::State& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first || !test_support::same_bits(a[i].second, b[i].second)) {
      return false;
    }
  }
  return true;
}

/// A file with one byte of it changed, or cut, for every way in which a small file can be damaged:
/// calls check(what happened, bytes).
template <class F>
void for_each_damage(const std::string& good, F check) {
  for (std::size_t length = 0; length < good.size(); ++length) {
    check(fmt::format("cut at {}", length), good.substr(0, length), length, true);
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x20, 0xff}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      check(fmt::format("byte {} changed by {:#x}", at, flip), bad, at, false);
    }
  }
  check("one byte more", good + '\0', good.size(), false);
}

}  // namespace io_test
