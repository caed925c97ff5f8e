// A team of worker threads whose caller never waits for a worker that has not begun.
#pragma once

#include <atomic>
#include <cstdint>

namespace softtape::detail {

/// Runs the chunks of one parallel region at a time. The caller takes chunks itself until none is
/// left and then waits only for those that are being worked on: on a machine that others use too, a
/// barrier of all threads would cost a time slice per region whenever one of them is not running.
/// Workers start when first needed and stay until the process ends; a forked child has none, and
/// its caller does all the work.
class Team {
 public:
  /// Calls body(context, i) for i in [0, chunks) on up to `threads` threads, the caller's included.
  void run(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t), void* context);

 private:
  void grow(int workers);
  void serve();
  bool enter();
  void work();

  // Open or not, and how many workers are inside: while it is not 0, the region's facts below
  // stand.
  static constexpr std::uint32_t kOpen = 1u << 31;
  std::atomic<std::uint32_t> gate_{0};
  std::atomic<std::uint32_t> regions_{0};  // begun so far: what sleeping workers wait for
  std::atomic<std::int64_t> next_{0};      // the first chunk nobody has taken
  std::atomic<int> joined_{0};
  int size_ = 0;

  int wanted_ = 0;  // workers that may take part
  std::int64_t chunks_ = 0;
  void (*body_)(void*, std::int64_t) = nullptr;
  void* context_ = nullptr;
};

}  // namespace softtape::detail
