// The handler does one thing that a handler may do: it writes a lock-free atomic.
#include "softtape/train/interrupt.hpp"

#include <atomic>
#include <csignal>
#include <mutex>

namespace softtape {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> g_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

std::mutex g_mutex;  // of what follows
int g_guards = 0;
struct sigaction g_before[2];

void on_signal(int number) {
  if (!g_requested.exchange(true)) return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  const std::lock_guard lock(g_mutex);
  if (g_guards++ > 0) return;
  g_requested = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // files being written are not cut short
  for (int i = 0; i < 2; ++i) {
    ::sigaction(kSignals[i], nullptr, &g_before[i]);
    if (g_before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(g_mutex);
  if (--g_guards > 0) return;
  for (int i = 0; i < 2; ++i) ::sigaction(kSignals[i], &g_before[i], nullptr);
}

bool InterruptGuard::requested() { return g_requested; }

}  // namespace softtape
