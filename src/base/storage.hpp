// Storage: the numbers of a tensor in one pool block, shared by every tensor that views them.
#pragma once

#include <new>

#include "base/pool.hpp"

namespace softtape::detail {

/// Header in front of the numbers. Owners are counted without atomics: a tensor and its graph
/// belong to one thread at a time.
struct alignas(kAlignment) Storage {
  std::uint32_t owners = 1;
  std::uint32_t version = 0;  // bumped by every change in place
  std::uint32_t size_class = 0;

  void* data() { return this + 1; }

  static Storage* make(std::size_t bytes) {
    const std::uint32_t size_class = size_class_of(bytes + sizeof(Storage));
    auto* storage = ::new (take_block(size_class)) Storage;
    storage->size_class = size_class;
    return storage;
  }
  void release() {
    if (--owners == 0) give_block(this, size_class);
  }
};

}  // namespace softtape::detail
