// The number of threads, and who runs a parallel region.
#include "softtape/base/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#else
#include "base/team.hpp"
#endif

#include "softtape/base/error.hpp"

namespace softtape {
namespace {

// Those that this process's first thread may run on.
int processors() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int initial_threads() {
  if (const char* text = std::getenv("SOFTTAPE_NUM_THREADS")) {
    int n = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, n);
    if (error == std::errc() && stop == end && n >= 1) return n;
  }
#ifdef _OPENMP
  return std::max(1, std::min(omp_get_max_threads(), processors()));
#else
  return processors();
#endif
}

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting{initial_threads()};
  return setting;
}

#ifdef _OPENMP
void run_on_threads(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t),
                    void* context) {
  // Each thread takes the next chunk. (OpenMP's dynamic schedule does the same, but LLVM's runtime
  // calls malloc for it every time.)
  std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(threads)
  for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
    body(context, i);
  }
}
bool inside_a_region() { return omp_in_parallel() != 0; }
#else
void run_on_threads(int threads, std::int64_t chunks, void (*body)(void*, std::int64_t),
                    void* context) {
  // Never destroyed: workers may be asleep in it when the process ends.
  static detail::Team& team = *new detail::Team;
  team.run(threads, chunks, body, context);
}
bool inside_a_region() { return false; }
#endif

}  // namespace

int num_threads() { return thread_setting().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  if (n < 1) throw ValueError(fmt::format("[set_num_threads] needs at least one: got {}", n));
  thread_setting().store(n, std::memory_order_relaxed);
}

namespace detail {

void run_chunks(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context) {
  static std::atomic_flag busy = ATOMIC_FLAG_INIT;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), chunks));
  if (threads > 1 && !inside_a_region() && !busy.test_and_set(std::memory_order_acquire)) {
    run_on_threads(threads, chunks, body, context);  // throws nothing
    busy.clear(std::memory_order_release);
    return;
  }
  for (std::int64_t i = 0; i < chunks; ++i) body(context, i);
}

}  // namespace detail
}  // namespace softtape
