// What the buffer pool holds, and how to give it back.
//
// Buffers are 64-byte aligned and come from per-thread caches of size classes over a shared pool,
// so a training step in its steady state never calls malloc. A buffer may be freed on another
// thread than the one that took it.
#pragma once

#include <cstdint>

#include "softtape/base/export.hpp"

namespace softtape {

/// Totals over all threads. A block is a tensor's numbers or its node.
struct MemoryStats {
  std::int64_t live_bytes = 0;    ///< in use by tensors and nodes
  std::int64_t cached_bytes = 0;  ///< kept for reuse
  std::int64_t system_calls = 0;  ///< blocks ever taken from the system: constant in steady state
};

SOFTTAPE_API MemoryStats memory_stats();

/// Frees the cached buffers of the calling thread and of the shared pool; returns the bytes freed.
/// Other threads' caches go back when those threads end.
SOFTTAPE_API std::int64_t release_memory();

}  // namespace softtape
