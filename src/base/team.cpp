#include "base/team.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

namespace softtape::detail {
namespace {

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Waits until ready(), or for about as long as a sleeping thread takes to wake; returns ready().
template <class Ready>
bool spin(Ready ready) {
  if (ready()) return true;
  constexpr auto kPatience = std::chrono::microseconds(30);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

void Team::run(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
  grow(threads - 1);
  const auto seats = static_cast<std::uint32_t>(std::min(threads - 1, 0xffff));
  chunks_ = chunks;
  body_ = body;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(seats * kSeat, std::memory_order_release);
  regions_.fetch_add(1);
  for (std::uint32_t i = 0; i < seats; ++i) regions_.notify_one();
  work();
  gate_.fetch_and(kSeat - 1, std::memory_order_acq_rel);  // nobody enters any more
  const auto all_left = [&] { return gate_.load(std::memory_order_acquire) == 0; };
  while (!spin(all_left)) std::this_thread::yield();
}

void Team::grow(int workers) {
  try {
    for (; size_ < std::min(workers, most_); ++size_) std::thread([this] { serve(); }).detach();
  } catch (const std::exception&) {
    most_ = size_;  // no more threads or memory are to be had: those there are do the work
  }
}

void Team::serve() {
  std::uint32_t seen = 0;
  for (;;) {
    if (!spin([&] { return regions_.load(std::memory_order_relaxed) != seen; })) {
      regions_.wait(seen);
    }
    seen = regions_.load();
    if (!enter()) continue;
    work();
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

bool Team::enter() {
  std::uint32_t gate = gate_.load(std::memory_order_relaxed);
  while (gate >= kSeat) {
    if (gate_.compare_exchange_weak(gate, gate - kSeat + 1, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void Team::work() noexcept {
  for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_;) {
    body_(context_, i);
  }
}

}  // namespace softtape::detail
