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

// Waits until ready(), or for some time; returns ready(). A sleeping thread takes tens of
// microseconds to wake, and a training step has gaps of a few hundred between its parallel regions.
// Whoever else wants the processor meanwhile gets it.
template <class Ready>
bool spin(Ready ready) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kAlone = std::chrono::microseconds(20);
  constexpr auto kYielding = std::chrono::microseconds(400);
  const auto start = Clock::now();
  for (auto waited = Clock::duration(0); waited < kYielding; waited = Clock::now() - start) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
    if (waited > kAlone) std::this_thread::yield();
  }
  return ready();
}

}  // namespace

void Team::run(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
  grow(threads - 1);
  const auto seats = static_cast<std::uint32_t>(std::min(threads - 1, 0xffff));
  share_count_ = std::min(threads, kMostShares);
  for (int i = 0; i < share_count_; ++i) {
    shares_[i].next.store(chunks * i / share_count_, std::memory_order_relaxed);
    shares_[i].end = chunks * (i + 1) / share_count_;
    shares_[i].owned.store(false, std::memory_order_relaxed);
  }
  body_ = body;
  context_ = context;
  gate_.store(seats * kSeat, std::memory_order_release);
  regions_.fetch_add(1);
  for (std::uint32_t i = 0; i < seats; ++i) regions_.notify_one();
  work(0);
  gate_.fetch_and(kSeat - 1, std::memory_order_acq_rel);  // nobody enters any more
  const auto all_left = [&] { return gate_.load(std::memory_order_acquire) == 0; };
  while (!spin(all_left)) std::this_thread::yield();
}

void Team::grow(int workers) {
  try {
    for (; size_ < std::min(workers, most_); ++size_) {
      std::thread([this, index = size_ + 1] { serve(index); }).detach();
    }
  } catch (const std::exception&) {
    most_ = size_;  // no more threads or memory are to be had: those there are do the work
  }
}

void Team::serve(int index) {
  std::uint32_t seen = 0;
  for (;;) {
    if (!spin([&] { return regions_.load(std::memory_order_relaxed) != seen; })) {
      regions_.wait(seen);
    }
    seen = regions_.load();
    if (!enter()) continue;
    work(index);
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

void Team::work(int index) noexcept {
  shares_[index % share_count_].owned.store(true, std::memory_order_relaxed);
  for (int i = 0; i < share_count_; ++i) {
    Share& share = shares_[(index + i) % share_count_];
    // What an owner is about to do anyway is left to it.
    const auto leave = [&share] {
      return share.owned.load(std::memory_order_relaxed) &&
             share.end - share.next.load(std::memory_order_relaxed) <= 1;
    };
    while (i == 0 || !leave()) {
      const std::int64_t n = share.next.fetch_add(1, std::memory_order_relaxed);
      if (n >= share.end) break;
      body_(context_, n);
    }
  }
}

}  // namespace softtape::detail
