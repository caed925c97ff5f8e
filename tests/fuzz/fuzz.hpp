// What the fuzz targets share. libFuzzer calls LLVMFuzzerTestOneInput with ever other bytes; a
// crash, a sanitizer's finding or another exception than the reader's own ends the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "softtape/graph/tensor.hpp"
#include "softtape/nn/state.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fuzz {

/// A good file of the format, defined by each target: what mutation starts from.
const std::string& sample();

inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline bool same(const softtape::Tensor& a, const softtape::Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return softtape::visit_any(a.dtype(), [&](auto zero) {
    const auto x = a.data<decltype(zero)>();
    const auto y = b.data<decltype(zero)>();
    return x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
  });
}

inline bool same(const softtape::State& a, const softtape::State& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && same(x.second, y.second);
  });
}

}  // namespace fuzz

// Without it a fuzzer would take long to find the first byte of a good header.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned) {
  if (size < 16 && fuzz::sample().size() <= max_size) {
    size = fuzz::sample().size();
    std::memcpy(data, fuzz::sample().data(), size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
