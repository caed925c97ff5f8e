// The block pool under every tensor: size classes, a cache per thread, a shared list behind it.
//
// A block is 64-byte aligned. Taking and giving back a cached block is a pop and a push on a list
// of the calling thread; only a cache that runs empty or over takes the lock of the shared list.
#pragma once

#include <array>
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

/// Classes grow in quarters of a power of two: 128, 192, 256, 320, 384, 448, 512, 640, ... The last
/// one is beyond every buffer and serves the nodes of graphs, so that a tensor takes its two blocks
/// from two lists.
constexpr std::uint32_t kNodeClass = kSizeClasses - 1;
constexpr std::size_t kNodeBytes = 192;

constexpr std::size_t class_bytes(std::uint32_t size_class) {
  if (size_class == kNodeClass) return kNodeBytes;
  if (size_class == 0) return 128;
  const std::uint32_t k = (size_class - 1) / 4 + 8;
  return (std::size_t{1} << (k - 1)) + (std::size_t{1} << (k - 3)) * ((size_class - 1) % 4 + 1);
}

constexpr std::uint32_t computed_size_class(std::size_t bytes) {
  if (bytes <= 128) return 0;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto k = static_cast<std::uint32_t>(std::bit_width(bytes - 1));  // 2^(k-1) < bytes <= 2^k
  const std::size_t quarter = std::size_t{1} << (k - 3);
  const std::size_t quarters = (bytes - 4 * quarter + quarter - 1) / quarter;
  return (k - 8) * 4 + static_cast<std::uint32_t>(quarters);
}

/// The classes of small blocks, by their number of cache lines.
constexpr std::array<std::uint8_t, 33> kSmallClasses = [] {
  std::array<std::uint8_t, 33> classes{};
  for (std::size_t lines = 0; lines < classes.size(); ++lines) {
    classes[lines] = static_cast<std::uint8_t>(computed_size_class(lines * kAlignment));
  }
  return classes;
}();

constexpr std::uint32_t size_class_of(std::size_t bytes) {
  const std::size_t lines = (bytes + kAlignment - 1) / kAlignment;
  return lines < kSmallClasses.size() ? kSmallClasses[lines] : computed_size_class(bytes);
}

/// Blocks of one class that a thread keeps before it hands half of them to the shared list. A
/// table, because the division would cost more than the rest of giving a block back.
constexpr std::array<std::uint32_t, kSizeClasses> kCacheLimits = [] {
  std::array<std::uint32_t, kSizeClasses> limits{};
  for (std::uint32_t c = 0; c < kSizeClasses; ++c) {
    const std::size_t fit = (std::size_t{4} << 20) / class_bytes(c);
    limits[c] = fit > 1 ? static_cast<std::uint32_t>(fit) : 1;
  }
  return limits;
}();

struct FreeBlock {
  FreeBlock* next;
};

/// Free blocks of one class. Bytes in use are what the system gave less what such lists hold.
struct FreeList {
  FreeBlock* head = nullptr;
  std::atomic<std::uint32_t> count{0};

  /// Without locked instructions: one thread writes (or holds the lock), others only read.
  void add(std::uint32_t blocks) { count.store(size() + blocks, std::memory_order_relaxed); }
  std::uint32_t size() const { return count.load(std::memory_order_relaxed); }
  void push(FreeBlock* block) {
    block->next = head;
    head = block;
    add(1);
  }
  /// Null when there is none.
  FreeBlock* pop() {
    FreeBlock* block = head;
    if (block) {
      head = block->next;
      add(~std::uint32_t{0});
    }
    return block;
  }
};

/// Written by its own thread alone; the counters are atomic so that others may add them up.
struct ThreadCache {
  FreeList free[kSizeClasses];
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

/// Takes the first block off a list, which the caller has looked at.
inline void take_head(FreeList& list, FreeBlock* head, [[maybe_unused]] std::uint32_t size_class) {
  list.head = head->next;
  list.add(~std::uint32_t{0});
#ifdef SOFTTAPE_ASAN
  ASAN_UNPOISON_MEMORY_REGION(head, class_bytes(size_class));
#endif
}

/// Throws: std::bad_alloc when the system has no memory even after the caches were given back.
inline void* take_block(ThreadCache& cache, std::uint32_t size_class) {
  void* block = cache.free[size_class].pop();
  if (!block) block = refill(cache, size_class);
#ifdef SOFTTAPE_ASAN
  ASAN_UNPOISON_MEMORY_REGION(block, class_bytes(size_class));
#endif
  return block;
}
inline void* take_block(std::uint32_t size_class) { return take_block(thread_cache(), size_class); }

/// give_block in two steps, for who gives back several: the second may call, the first never does.
inline void put_block(ThreadCache& cache, void* memory, std::uint32_t size_class) noexcept {
  auto* block = static_cast<FreeBlock*>(memory);
  cache.free[size_class].push(block);
#ifdef SOFTTAPE_ASAN
  ASAN_POISON_MEMORY_REGION(block + 1, class_bytes(size_class) - sizeof(FreeBlock));
#endif
}
inline void keep_to_limit(ThreadCache& cache, std::uint32_t size_class) noexcept {
  if (cache.free[size_class].size() > kCacheLimits[size_class]) spill(cache, size_class);
}
inline void give_block(ThreadCache& cache, void* memory, std::uint32_t size_class) noexcept {
  put_block(cache, memory, size_class);
  keep_to_limit(cache, size_class);
}
inline void give_block(void* memory, std::uint32_t size_class) noexcept {
  give_block(thread_cache(), memory, size_class);
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
