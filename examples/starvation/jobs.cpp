// A pool as simple as they get: each thread takes the next number.
#include "jobs.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "softtape/train/interrupt.hpp"
#include "softtape/train/progress.hpp"

namespace starvation {

bool run_jobs(std::size_t count, const JobOptions& options,
              const std::function<void(std::size_t)>& job) {
  softtape::Progress progress(static_cast<std::int64_t>(count),
                              {.label = options.label, .enabled = options.progress});
  std::atomic<std::size_t> next{0};
  std::size_t done = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < count && !softtape::InterruptGuard::requested();) {
      try {
        job(i);
        const std::lock_guard lock(mutex);
        progress.update(static_cast<std::int64_t>(++done));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  const auto threads = std::min(static_cast<std::size_t>(options.threads), count);
  try {
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {
    // As many as the system gives are enough: jobs go to whoever is free.
  }
  work();
  others.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  if (!softtape::InterruptGuard::requested()) progress.finish();
  return !softtape::InterruptGuard::requested();
}

}  // namespace starvation
