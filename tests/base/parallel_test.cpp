// Threads inside ops: how many there are, and that they never multiply or change a result.
#include "softtape/base/parallel.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "softtape/base/error.hpp"
#include "support/compare.hpp"
#include "support/threads.hpp"

using namespace softtape;
using test_support::ThreadCount;

namespace {

// What a fresh process says when the environment asks for `value` threads.
std::string threads_of_child(const std::string& value) {
  const std::string command =
      "SOFTTAPE_NUM_THREADS='" + value + "' SOFTTAPE_TEST_CHILD=1 '" +
      std::filesystem::read_symlink("/proc/self/exe").string() +
      "' --test-case='a fresh process reports its number of threads' --no-version";
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe)) output += buffer;
  CHECK(pclose(pipe) == 0);
  const auto at = output.find("threads: ");
  REQUIRE_MESSAGE(at != std::string::npos, output);
  return output.substr(at + 9, output.find('\n', at) - at - 9);
}

}  // namespace

TEST_CASE("a fresh process reports its number of threads") {
  CHECK(num_threads() >= 1);
  if (std::getenv("SOFTTAPE_TEST_CHILD")) std::printf("threads: %d\n", num_threads());
}

TEST_CASE("SOFTTAPE_NUM_THREADS sets the number of threads") {
  CHECK(threads_of_child("1") == "1");
  CHECK(threads_of_child("3") == "3");
  // What is not a number of threads is no setting.
  const std::string usual = threads_of_child("");
  for (const char* bad : {"0", "-2", "many", "2x", "1e3", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK(threads_of_child(bad) == usual);
  }
}

TEST_CASE("set_num_threads changes the number, and refuses none") {
  const ThreadCount restored(num_threads());
  set_num_threads(1);
  CHECK(num_threads() == 1);
  for (const int bad : {0, -1, -100}) {
    CHECK_THROWS_SAYING(ValueError, "set_num_threads", std::to_string(bad),
                        (set_num_threads(bad), 0));
    CHECK(num_threads() == 1);
  }
  set_num_threads(5);
  CHECK(num_threads() == 5);
}

TEST_CASE("parallel_for calls every chunk once [thread]") {
  for (const int threads : {1, 2, 4}) {
    const ThreadCount count(threads);
    for (const std::int64_t chunks : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(chunks));
      parallel_for(chunks, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
      for (const auto& n : calls) CHECK(n == 1);
    }
  }
}

TEST_CASE("user threads do not multiply the workers [thread]") {
  constexpr int kUsers = 4;
  constexpr int kThreads = 3;
  const ThreadCount count(kThreads);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> users;
  for (int u = 0; u < kUsers; ++u) {
    users.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        parallel_for(16, [&](std::int64_t i) {
          const int now = ++inside;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          sum += i;
          std::this_thread::yield();
          --inside;
        });
      }
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(sum == kUsers * 20 * 120);
  // One region has workers; every other user runs its own chunks.
  CHECK(most <= kUsers + kThreads - 1);
}

TEST_CASE("a busy team changes who works, not what comes out [thread]") {
  const auto series = [](std::int64_t chunks) {
    std::vector<double> part(static_cast<std::size_t>(chunks));
    parallel_for(chunks, [&](std::int64_t c) {
      double sum = 0;
      for (int i = 1; i <= 500; ++i) sum += 1.0 / static_cast<double>(c * 500 + i);
      part[static_cast<std::size_t>(c)] = sum;
    });
    double total = 0;
    for (const double x : part) total += x;
    return total;
  };
  const double alone = [&] {
    const ThreadCount one(1);
    return series(64);
  }();
  const ThreadCount count(2);
  std::vector<std::thread> users;
  std::atomic<int> wrong{0};
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&] {
      for (int round = 0; round < 10; ++round) wrong += series(64) != alone;
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(wrong == 0);
}

// A child has none of its parent's threads, and GNU's OpenMP waits for them.
#ifndef TEST_WITH_OPENMP
TEST_CASE("a forked child works without the team that it does not have") {
  const ThreadCount count(3);
  const auto sum = [] {
    std::atomic<int> total{0};
    parallel_for(100, [&](std::int64_t i) { total += static_cast<int>(i); });
    return total.load();
  };
  REQUIRE(sum() == 4950);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(sum() == 4950 ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif

TEST_CASE("parallel_for: every chunk once, whoever is slow [thread]") {
  for (const int threads : {2, 3, 70}) {
    const ThreadCount count(threads);
    for (int round = 0; round < 100; ++round) {
      const std::int64_t chunks = 2 + round % 11;
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(chunks));
      const std::int64_t slow = round % chunks;
      parallel_for(chunks, [&](std::int64_t i) {
        if (i == slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++calls[static_cast<std::size_t>(i)];
      });
      int wrong = 0;
      for (const auto& n : calls) wrong += n != 1;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("regions that follow each other closely, with a changing number of threads [thread]") {
  std::int64_t wrong = 0;
  for (int round = 0; round < 3000; ++round) {
    const ThreadCount count(1 + round % 4);
    std::int64_t parts[5] = {};
    parallel_for(5, [&](std::int64_t i) { parts[i] = round + i; });
    for (std::int64_t i = 0; i < 5; ++i) wrong += parts[i] != round + i;
  }
  CHECK(wrong == 0);
}
