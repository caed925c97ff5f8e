// The slow side of the pool: the shared list, threads that come and go, statistics.
#include "base/pool.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

namespace softtape {
namespace detail {
namespace {

struct SharedPool {
  std::mutex mutex;
  FreeList free[kSizeClasses];
  ThreadCache* registered = nullptr;
  ThreadCache* idle = nullptr;
};

// Never destroyed: tensors with static lifetime are released after the last destructor of this
// file.
SharedPool& shared_pool() {
  static auto* pool = new SharedPool;
  return *pool;
}

// Moves blocks of one class from a thread to the shared list until `keep` are left.
void hand_over(SharedPool& pool, ThreadCache& cache, std::uint32_t size_class, std::uint32_t keep) {
  FreeList& list = cache.free[size_class];
  while (list.size() > keep) pool.free[size_class].push(list.pop());
}

std::int64_t free_list(FreeList& list, std::uint32_t size_class) {
  std::int64_t freed = 0;
  while (FreeBlock* block = list.pop()) {
#ifdef SOFTTAPE_ASAN
    ASAN_UNPOISON_MEMORY_REGION(block, class_bytes(size_class));
#endif
    std::free(block);
    freed += static_cast<std::int64_t>(class_bytes(size_class));
  }
  return freed;
}

std::int64_t cached_bytes(const FreeList* lists) {
  std::int64_t bytes = 0;
  for (std::uint32_t c = 0; c < kSizeClasses; ++c) {
    bytes += lists[c].size() * static_cast<std::int64_t>(class_bytes(c));
  }
  return bytes;
}

// When a thread ends its blocks go to the shared list and its cache waits for the next thread.
struct CacheReturn {
  ThreadCache* cache = nullptr;
  ~CacheReturn() {
    if (!cache) return;
    SharedPool& pool = shared_pool();
    const std::lock_guard lock(pool.mutex);
    for (std::uint32_t c = 0; c < kSizeClasses; ++c) hand_over(pool, *cache, c, 0);
    cache->next_idle = pool.idle;
    pool.idle = cache;
    t_cache = nullptr;
  }
};

constinit thread_local bool t_ended = false;
thread_local CacheReturn t_return;

}  // namespace

constinit thread_local ThreadCache* t_cache = nullptr;

ThreadCache* adopt_cache() {
  SharedPool& pool = shared_pool();
  {
    const std::lock_guard lock(pool.mutex);
    if (pool.idle) {
      t_cache = pool.idle;
      pool.idle = t_cache->next_idle;
    } else {
      t_cache = new ThreadCache;
      t_cache->next_registered = pool.registered;
      pool.registered = t_cache;
    }
  }
  // A tensor released while the thread's last destructors run finds t_return gone already: the
  // cache it adopts then stays registered and its few blocks stay in the statistics.
  if (!t_ended) {
    t_ended = true;
    t_return.cache = t_cache;
  }
  return t_cache;
}

void* refill(ThreadCache& cache, std::uint32_t size_class) {
  SharedPool& pool = shared_pool();
  {
    const std::lock_guard lock(pool.mutex);
    if (FreeBlock* block = pool.free[size_class].pop()) {
      // Small blocks come over in batches, so that the lock is rare.
      const std::uint32_t batch = std::min<std::uint32_t>(kCacheLimits[size_class] / 2, 64);
      for (std::uint32_t i = 0; i < batch; ++i) {
        FreeBlock* extra = pool.free[size_class].pop();
        if (!extra) break;
        cache.free[size_class].push(extra);
      }
      return block;
    }
  }
  bump(cache.system_calls, 1);
  void* block = std::aligned_alloc(kAlignment, class_bytes(size_class));
  if (!block) {
    release_memory();
    block = std::aligned_alloc(kAlignment, class_bytes(size_class));
  }
  if (!block) throw std::bad_alloc();
  bump(cache.system_bytes, static_cast<std::int64_t>(class_bytes(size_class)));
  return block;
}

std::int64_t live_nodes() {
  SharedPool& pool = shared_pool();
  const std::lock_guard lock(pool.mutex);
  std::int64_t total = 0;
  for (auto* cache = pool.registered; cache; cache = cache->next_registered) {
    total += cache->live_nodes.load(std::memory_order_relaxed);
  }
  return total;
}

void spill(ThreadCache& cache, std::uint32_t size_class) {
  SharedPool& pool = shared_pool();
  const std::lock_guard lock(pool.mutex);
  hand_over(pool, cache, size_class, kCacheLimits[size_class] / 2);
}

}  // namespace detail

MemoryStats memory_stats() {
  auto& pool = detail::shared_pool();
  const std::lock_guard lock(pool.mutex);
  MemoryStats total;
  std::int64_t taken = 0;
  total.cached_bytes = detail::cached_bytes(pool.free);
  for (auto* cache = pool.registered; cache; cache = cache->next_registered) {
    taken += cache->system_bytes.load(std::memory_order_relaxed);
    total.cached_bytes += detail::cached_bytes(cache->free);
    total.system_calls += cache->system_calls.load(std::memory_order_relaxed);
  }
  total.live_bytes = taken - total.cached_bytes;
  return total;
}

std::int64_t release_memory() {
  auto& cache = detail::thread_cache();
  auto& pool = detail::shared_pool();
  const std::lock_guard lock(pool.mutex);
  std::int64_t freed = 0;
  for (std::uint32_t c = 0; c < detail::kSizeClasses; ++c) {
    freed += detail::free_list(cache.free[c], c) + detail::free_list(pool.free[c], c);
  }
  detail::bump(cache.system_bytes, -freed);
  return freed;
}

}  // namespace softtape
