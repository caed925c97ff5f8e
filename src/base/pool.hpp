// The block pool under every tensor: size classes, a cache per thread, a shared list behind it.
//
// A block is 64-byte aligned. Taking and giving back a cached block is a pop and a push on a list
// of the calling thread; only a cache that runs empty or over takes the lock of the shared list.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SOFTTAPE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SOFTTAPE_ASAN 1
#endif
#endif
#ifdef SOFTTAPE_ASAN
#include <sanitizer/asan_interface.h>
#endif

#include "softtape/base/memory.hpp"

namespace softtape::detail {

constexpr std::size_t kAlignment = 64;
constexpr std::uint32_t kSizeClasses = 200;

/// Classes grow in quarters of a power of two: 128, 192, 256, 320, 384, 448, 512, 640, ...
constexpr std::uint32_t size_class_of(std::size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes <= 128) return 0;
  const auto k = static_cast<std::uint32_t>(std::bit_width(bytes - 1));  // 2^(k-1) < bytes <= 2^k
  const std::size_t quarter = std::size_t{1} << (k - 3);
  const std::size_t quarters = (bytes - 4 * quarter + quarter - 1) / quarter;
  return (k - 8) * 4 + static_cast<std::uint32_t>(quarters);
}

constexpr std::size_t class_bytes(std::uint32_t size_class) {
  if (size_class == 0) return 128;
  const std::uint32_t k = (size_class - 1) / 4 + 8;
  return (std::size_t{1} << (k - 1)) + (std::size_t{1} << (k - 3)) * ((size_class - 1) % 4 + 1);
}

struct FreeBlock {
  FreeBlock* next;
};

/// Written by its own thread alone; the counters are atomic so that others may add them up.
struct ThreadCache {
  struct FreeList {
    FreeBlock* head = nullptr;
    std::uint32_t count = 0;
  };
  FreeList free[kSizeClasses];
  std::atomic<std::int64_t> live_bytes{0};
  std::atomic<std::int64_t> live_nodes{0};
  std::atomic<std::int64_t> system_bytes{0};  // taken from the system less given back
  std::atomic<std::int64_t> system_calls{0};
  ThreadCache* next_registered = nullptr;  // every cache ever made
  ThreadCache* next_idle = nullptr;        // those whose thread has ended
};

/// Adds without a locked instruction: the owner is the only writer.
inline void bump(std::atomic<std::int64_t>& counter, std::int64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// initial-exec: one load at a fixed offset instead of a call, also in the shared library.
extern constinit thread_local ThreadCache* t_cache __attribute__((tls_model("initial-exec")));
ThreadCache* adopt_cache();
inline ThreadCache& thread_cache() { return t_cache ? *t_cache : *adopt_cache(); }

/// Tensor nodes alive, over all threads.
std::int64_t live_nodes();

void* refill(ThreadCache& cache, std::uint32_t size_class);
void spill(ThreadCache& cache, std::uint32_t size_class);

/// Blocks of one class that a thread keeps before it hands half of them to the shared list.
constexpr std::uint32_t cache_limit(std::uint32_t size_class) {
  const std::size_t fit = (std::size_t{4} << 20) / class_bytes(size_class);
  return fit > 1 ? static_cast<std::uint32_t>(fit) : 1;
}

/// Throws: std::bad_alloc when the system has no memory even after the caches were given back.
inline void* take_block(std::uint32_t size_class) {
  ThreadCache& cache = thread_cache();
  ThreadCache::FreeList& list = cache.free[size_class];
  void* block = list.head;
  if (block) {
    list.head = list.head->next;
    --list.count;
  } else {
    block = refill(cache, size_class);
  }
  bump(cache.live_bytes, static_cast<std::int64_t>(class_bytes(size_class)));
#ifdef SOFTTAPE_ASAN
  ASAN_UNPOISON_MEMORY_REGION(block, class_bytes(size_class));
#endif
  return block;
}

inline void give_block(void* memory, std::uint32_t size_class) noexcept {
  ThreadCache& cache = thread_cache();
  ThreadCache::FreeList& list = cache.free[size_class];
  auto* block = static_cast<FreeBlock*>(memory);
  block->next = list.head;
  list.head = block;
#ifdef SOFTTAPE_ASAN
  ASAN_POISON_MEMORY_REGION(block + 1, class_bytes(size_class) - sizeof(FreeBlock));
#endif
  bump(cache.live_bytes, -static_cast<std::int64_t>(class_bytes(size_class)));
  if (++list.count > cache_limit(size_class)) spill(cache, size_class);
}

/// Base of small objects that live in pool blocks.
struct Pooled {
  static void* operator new(std::size_t bytes) { return take_block(size_class_of(bytes)); }
  static void operator delete(void* memory, std::size_t bytes) {
    give_block(memory, size_class_of(bytes));
  }
};

/// For short-lived vectors on hot paths.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  explicit PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(take_block(size_class_of(n * sizeof(T)))); }
  void deallocate(T* memory, std::size_t n) { give_block(memory, size_class_of(n * sizeof(T))); }
  bool operator==(const PoolAllocator&) const { return true; }
};
template <class T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace softtape::detail
