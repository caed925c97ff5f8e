// One team of workers for the whole process, used by one caller at a time.
#include "softtape/base/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "softtape/base/error.hpp"

namespace softtape {
namespace {

int initial_threads() {
#ifdef _OPENMP
  if (const char* text = std::getenv("SOFTTAPE_NUM_THREADS")) {
    int n = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, n);
    if (error == std::errc() && stop == end && n >= 1) return n;
  }
  return std::max(1, std::min(omp_get_max_threads(), omp_get_num_procs()));
#else
  return 1;
#endif
}

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting{initial_threads()};
  return setting;
}

}  // namespace

int num_threads() { return thread_setting().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  if (n < 1) throw ValueError(fmt::format("[set_num_threads] needs at least one: got {}", n));
#ifdef _OPENMP
  thread_setting().store(n, std::memory_order_relaxed);
#endif
}

namespace detail {

void run_chunks(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
#ifdef _OPENMP
  static std::atomic_flag busy = ATOMIC_FLAG_INIT;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), chunks));
  if (threads > 1 && !omp_in_parallel() && !busy.test_and_set(std::memory_order_acquire)) {
    // Each thread takes the next chunk. (OpenMP's dynamic schedule does the same, but LLVM's
    // runtime calls malloc for it every time.)
    std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(threads)
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      body(context, i);
    }
    busy.clear(std::memory_order_release);
    return;
  }
#endif
  for (std::int64_t i = 0; i < chunks; ++i) body(context, i);
}

}  // namespace detail
}  // namespace softtape
