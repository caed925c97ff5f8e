// Measures one contender on one workload in a process of its own, for tests/bench/compare:
//
//   bench_measure CONTENDER WORKLOAD [KEY=NUMBER...]   one line of CSV
//   bench_measure agree                                a line `WORKLOAD,DIFFERENCE` each
//   bench_measure peak                                 float32 FLOP/s of multiply-adds in registers
//   bench_measure lines                                seconds to write over a cache line that
//                                                      another core has read
//
// CONTENDER is hand, softtape or softtape-composed (which keeps the attention weights). Keys:
// threads, seconds (of measuring), memory (1: growth of resident memory instead), batch, tokens,
// head and rounds (at most so many units).
//
// The line holds name, workload, threads, then seconds per unit: the fastest block of units, the
// median block, and the processor time of all threads in the cheapest block.
#include <time.h>

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "softtape/base/parallel.hpp"
#include "workloads.hpp"

namespace {

using namespace bench;

struct Moment {
  double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  double cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }();
};

struct Times {
  double fastest, median, cpu;
};

// Blocks last about 2 ms, so that reading clocks costs nothing.
Times measure(Workload& workload, double seconds, std::int64_t rounds) {
  workload.run();
  std::int64_t block = 1;
  if (rounds > 3) {
    for (; block < rounds; block *= 2) {
      const Moment before;
      for (std::int64_t i = 0; i < block; ++i) workload.run();
      if (Moment().wall - before.wall > 2e-3) break;
    }
  }
  std::vector<double> walls;
  double cpu = 1e300;
  const Moment start;
  do {
    const Moment before;
    for (std::int64_t i = 0; i < block; ++i) workload.run();
    const Moment after;
    walls.push_back((after.wall - before.wall) / static_cast<double>(block));
    cpu = std::min(cpu, (after.cpu - before.cpu) / static_cast<double>(block));
  } while (static_cast<std::int64_t>(walls.size()) * block < rounds &&
           (walls.size() < 3 || Moment().wall - start.wall < seconds));
  std::sort(walls.begin(), walls.end());
  return {walls.front(), walls[walls.size() / 2], cpu};
}

// A field of /proc/self/status in MiB.
double resident(const char* field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) == 0) return std::atof(line.c_str() + std::strlen(field) + 1) / 1024;
  }
  throw std::runtime_error("no /proc/self/status here");
}

// FLOP/s of twelve independent chains of multiply-adds in registers.
double peak() {
  using namespace Eigen::internal;
  using Lanes = packet_traits<float>::type;
  constexpr int kChains = 12;
  constexpr int kRounds = 300000;
  double best = 1e300;
  for (int repetition = 0; repetition < 30; ++repetition) {
    const Moment before;
    Lanes chains[kChains];
    for (int i = 0; i < kChains; ++i) chains[i] = pset1<Lanes>(static_cast<float>(i));
    Lanes factor = pset1<Lanes>(0.999f);
    asm volatile("" : "+v"(factor));  // or the loop would be computed while compiling
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) chains[i] = pmadd(chains[i], factor, factor);
    }
    for (int i = 1; i < kChains; ++i) chains[0] = padd(chains[0], chains[i]);
    volatile float result = pfirst(chains[0]);
    static_cast<void>(result);
    best = std::min(best, Moment().cpu - before.cpu);
  }
  return 2.0 * kChains * (sizeof(Lanes) / sizeof(float)) * kRounds / best;
}

// What two threads pay for sharing: one writes a buffer, both read it, the other writes over it.
double write_over_shared_line() {
  constexpr std::size_t kLine = 64 / sizeof(float);
  std::vector<float> buffer(256 * kLine);
  const auto read = [&buffer] {
    float sum = 0;
    for (std::size_t i = 0; i < buffer.size(); i += kLine) sum += buffer[i];
    volatile float result = sum;
    static_cast<void>(result);
  };
  const auto write = [&buffer](float number) { std::fill(buffer.begin(), buffer.end(), number); };
  constexpr int kRounds = 500;
  std::atomic<int> turn{0};
  const auto wait_for = [&turn](int mine) {
    while (turn.load(std::memory_order_acquire) != mine) std::this_thread::yield();
  };
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      wait_for(4 * round);
      write(1);
      turn.store(4 * round + 1, std::memory_order_release);
      wait_for(4 * round + 2);
      read();
      turn.store(4 * round + 3, std::memory_order_release);
    }
  });
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    wait_for(4 * round + 1);
    read();
    turn.store(4 * round + 2, std::memory_order_release);
    wait_for(4 * round + 3);
    const Moment before;
    write(2);
    times.push_back(Moment().wall - before.wall);
    turn.store(4 * round + 4, std::memory_order_release);
  }
  other.join();
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2] * static_cast<double>(kLine) / static_cast<double>(buffer.size());
}

int run(const std::string& contender, const std::string& workload,
        std::map<std::string, double> keys) {
  const auto whole = [&](const char* key, std::int64_t otherwise) {
    return keys.contains(key) ? static_cast<std::int64_t>(keys[key]) : otherwise;
  };
  const auto is = [](const std::string& known) {
    return [&known](const char* word) { return known == word; };
  };
  constexpr const char* kWorkloads[] = {"W1", "W2", "W3", "W4", "W5", "W6"};
  constexpr const char* kContenders[] = {"hand", "softtape", "softtape-composed"};
  if (std::none_of(std::begin(kWorkloads), std::end(kWorkloads), is(workload)) ||
      std::none_of(std::begin(kContenders), std::end(kContenders), is(contender))) {
    std::fprintf(stderr, "Not a contender and a workload (W1 to W6): %s %s\n", contender.c_str(),
                 workload.c_str());
    return 2;
  }
  Sizes sizes = sizes_of(workload);
  sizes.batch = whole("batch", sizes.batch);
  sizes.tokens = whole("tokens", sizes.tokens);
  sizes.head = whole("head", sizes.head);
  sizes.composed = contender == "softtape-composed";
  const int threads = static_cast<int>(whole("threads", 1));
  softtape::set_num_threads(threads);
  const bool hand = contender == "hand";
  const auto made = hand ? by_hand(workload, sizes, threads) : with_softtape(workload, sizes);
  if (whole("memory", 0)) {
    const double before = resident("VmRSS:");
    made->run();
    std::printf("%s,%s,%d,%.1f\n", contender.c_str(), workload.c_str(), threads,
                resident("VmHWM:") - before);
    return 0;
  }
  const double seconds = keys.contains("seconds") ? keys["seconds"] : 1.0;
  const Times t = measure(*made, seconds, whole("rounds", 1000000000));
  const double units = workload == "W5" ? kOps : 1;
  std::printf("%s,%s,%d,%.6g,%.6g,%.6g\n", contender.c_str(), workload.c_str(), threads,
              t.fastest / units, t.median / units, t.cpu / units);
  return 0;
}

void agree() {
  const auto print = [](const char* workload, const Sizes& sizes) {
    std::printf("%s,%.2g\n", workload, disagreement(workload, sizes, 2));
  };
  for (const char* workload : {"W1", "W2", "W3", "W5", "W6"}) print(workload, sizes_of(workload));
  Sizes shorter = sizes_of("W4");
  shorter.tokens = 256;
  print("W4", shorter);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments == std::vector<std::string>{"agree"}) return agree(), 0;
  if (arguments == std::vector<std::string>{"peak"}) return std::printf("%.4g\n", peak()), 0;
  if (arguments == std::vector<std::string>{"lines"}) {
    return std::printf("%.4g\n", write_over_shared_line()), 0;
  }
  if (arguments.size() < 2) {
    std::fprintf(
        stderr, "Usage: bench_measure CONTENDER WORKLOAD [KEY=NUMBER...] | agree | peak | lines\n");
    return 2;
  }
  std::map<std::string, double> keys;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "Not KEY=NUMBER: %s\n", arguments[i].c_str());
      return 2;
    }
    keys[arguments[i].substr(0, equals)] = std::atof(arguments[i].c_str() + equals + 1);
  }
  return run(arguments[0], arguments[1], keys);
}
