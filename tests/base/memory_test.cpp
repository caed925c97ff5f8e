// The buffer pool as a user sees it: alignment, statistics, giving memory back, threads.
#include "softtape/base/memory.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::LeakGuard;

namespace {

bool aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 64 == 0; }

std::vector<Tensor> batch(int count, std::int64_t size) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(full({size}, i));
  return tensors;
}

}  // namespace

TEST_CASE("buffers of every type and size are 64-byte aligned") {
  const LeakGuard guard;
  std::vector<Tensor> kept;  // so that no buffer is met twice
  for (const std::int64_t n : {0, 1, 2, 3, 15, 16, 17, 31, 33, 100, 127, 1000, 4097, 100003}) {
    for (const DType dtype : {DType::float32, DType::float64, DType::int64, DType::boolean}) {
      const Tensor x = empty({n}, {.dtype = dtype});
      visit_any(dtype, [&](auto zero) { CHECK(aligned(x.data<decltype(zero)>().data())); });
      kept.push_back(x);
    }
  }
}

TEST_CASE("live bytes follow tensors, freed ones are kept for reuse") {
  const LeakGuard guard;
  const std::int64_t n = 50000;
  release_memory();
  const MemoryStats before = memory_stats();
  {
    const Tensor x = zeros({n}, {.dtype = DType::float64});
    const MemoryStats during = memory_stats();
    const std::int64_t grown = during.live_bytes - before.live_bytes;
    CHECK(grown >= n * 8);
    CHECK(grown <= n * 8 * 3 / 2);  // size classes and the node cost less than half
    const Tensor alias = x.detach();
    CHECK(memory_stats().live_bytes - during.live_bytes < 1024);  // a node, no numbers
  }
  const MemoryStats after = memory_stats();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.cached_bytes - before.cached_bytes >= n * 8);
  for (int i = 0; i < 10; ++i) zeros({n}, {.dtype = DType::float64});
  CHECK(memory_stats().system_calls == after.system_calls);
  CHECK(memory_stats().cached_bytes == after.cached_bytes);
}

TEST_CASE("release_memory gives cached buffers back and leaves live ones alone") {
  const LeakGuard guard;
  const Tensor kept = arange(1000);
  zeros({123456});
  const MemoryStats before = memory_stats();
  REQUIRE(before.cached_bytes > 0);
  const std::int64_t freed = release_memory();
  const MemoryStats after = memory_stats();
  CHECK(freed >= 123456 * 4);
  CHECK(freed == before.cached_bytes - after.cached_bytes);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.system_calls == before.system_calls);
  CHECK(release_memory() == 0);
  CHECK(kept.data<std::int64_t>()[999] == 999);
  // The pool goes on from empty.
  const Tensor fresh = full({1000}, 3);
  CHECK(fresh.data<float>()[999] == 3);
  CHECK(memory_stats().system_calls > after.system_calls);
}

TEST_CASE("sizes that no memory can hold are refused, and nothing changes") {
  const LeakGuard guard;
  for (const DType dtype : {DType::float32, DType::float64, DType::int64, DType::boolean}) {
    for (const int power : {48, 50, 56, 58, 60, 61, 62}) {
      CAPTURE(power);
      // 8 bytes times 2^61 is 0 modulo 2^64.
      CHECK_THROWS_AS(empty({std::int64_t{1} << power}, {.dtype = dtype}), ShapeError);
    }
  }
  CHECK_THROWS_AS(zeros({1 << 30, 1 << 30}), ShapeError);
}

TEST_CASE("buffers may be freed on another thread [thread]") {
  const LeakGuard guard;
  for (const std::int64_t size : {std::int64_t{8}, std::int64_t{1} << 18}) {
    std::int64_t steady = 0;
    for (int round = 0; round < 12; ++round) {
      if (round == 4) steady = memory_stats().system_calls;
      std::vector<Tensor> tensors = batch(40, size);
      std::thread([&] {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          CHECK(tensors[i].data<float>()[0] == static_cast<float>(i));
        }
        tensors.clear();
      }).join();
    }
    // What the other threads freed comes back to this one.
    CHECK(memory_stats().system_calls == steady);
  }
}

TEST_CASE("a thread that only frees does not pile buffers up [thread]") {
  const LeakGuard guard;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> handed;
  bool done = false;
  std::thread consumer([&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return done || !handed.empty(); });
      handed.clear();
      changed.notify_all();
      if (done) return;
    }
  });
  const std::int64_t size = std::int64_t{1} << 18;  // 1 MiB each
  const MemoryStats before = memory_stats();
  for (int round = 0; round < 50; ++round) {
    std::vector<Tensor> tensors = batch(8, size);
    std::unique_lock lock(mutex);
    handed = std::move(tensors);
    changed.notify_all();
    changed.wait(lock, [&] { return handed.empty(); });
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  consumer.join();
  // Each of the two threads may keep a few; 400 MiB went by.
  CHECK(memory_stats().cached_bytes - before.cached_bytes <= std::int64_t{32} << 20);
}

TEST_CASE("threads that come and go leave nothing behind [thread]") {
  const LeakGuard guard;
  std::int64_t steady = 0;
  for (int round = 0; round < 60; ++round) {
    if (round == 10) steady = memory_stats().system_calls;
    std::thread([&] {
      const Tensor x = full({1000}, round);
      CHECK(x.data<float>()[999] == static_cast<float>(round));
    }).join();
  }
  CHECK(memory_stats().system_calls == steady);
}

TEST_CASE("threads take, keep and free side by side [thread]") {
  const LeakGuard guard;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<Tensor> kept;
      for (int i = 0; i < 300; ++i) {
        kept.push_back(full({1 + (i * 37 + t) % 5000}, t));
        if (i % 3 == 2) kept.erase(kept.begin(), kept.begin() + 2);
        if (i % 100 == 99) release_memory();
        memory_stats();
      }
      for (const Tensor& x : kept) CHECK(x.data<float>().back() == static_cast<float>(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
}
