// A team of worker threads whose caller never waits for a worker that has not begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace softtape::detail {

/// Runs the chunks of one parallel region at a time. The caller takes chunks itself until none is
/// left and then waits only for workers that have entered: on a machine that others use too, a
/// barrier of all threads would cost a time slice per region whenever one of them is not running.
/// Each thread begins with the same share of the chunks in every region, since their data is in its
/// cache from the region before, and then helps the others, but for their last chunk: to write over
/// cache lines that another core has read costs up to twenty times the write.
/// Workers start when first needed and stay until the process ends. A forked child has none of its
/// parent's: its caller does their work.
class Team {
 public:
  /// Calls body(context, i) for i in [0, chunks) on up to `threads` threads, the caller's included.
  /// A body that throws ends the process.
  void run(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t), void* context);

 private:
  void grow(int workers);
  void serve(int index);
  bool enter();
  void work(int index) noexcept;

  // Seats that workers may still take (above bit 16) and how many workers are inside (below it).
  // While it is not 0, the region's facts at the end stand.
  static constexpr std::uint32_t kSeat = 1u << 16;
  std::atomic<std::uint32_t> gate_{0};
  std::atomic<std::uint32_t> regions_{0};  // begun so far: what sleeping workers wait for
  int size_ = 0;
  int most_ = std::numeric_limits<int>::max();  // workers that the system lets us have

  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};  // the first chunk nobody has taken
    std::int64_t end = 0;
    std::atomic<bool> owned{false};  // by a thread that takes chunks until none is left
  };
  static constexpr int kMostShares = 64;
  Share shares_[kMostShares];
  int share_count_ = 0;
  void (*body_)(void*, std::int64_t) = nullptr;
  void* context_ = nullptr;
};

}  // namespace softtape::detail
