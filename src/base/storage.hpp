// Storage: the numbers of a tensor in one pool block, shared by every tensor that views them.
#pragma once

#include "base/pool.hpp"

namespace softtape::detail {

/// Header in front of the numbers. Owners are counted without atomics: a tensor and its graph
/// belong to one thread at a time.
struct alignas(kAlignment) Storage {
  std::uint32_t owners = 1;
  std::uint32_t version = 0;  // bumped by every change in place
  std::uint32_t size_class;

  explicit Storage(std::uint32_t block_class) : size_class(block_class) {}

  void* data() { return this + 1; }

  /// The class of a block for so many bytes of numbers.
  static std::uint32_t class_for(std::size_t bytes) {
    return size_class_of(bytes + sizeof(Storage));
  }
  void release() {
    if (--owners == 0) give_block(this, size_class);
  }
};

}  // namespace softtape::detail
