// A process killed at random moments of writing checkpoints always leaves a good one.
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "io/support.hpp"
#include "softtape/base/random.hpp"
#include "softtape/io/checkpoint.hpp"
#include "softtape/ops/create.hpp"

using namespace softtape;

namespace {

// 64 KB in which every number is the number of the save.
class Counter final : public Stateful {
 public:
  State state() const override { return {{"steps", numbers_}}; }
  void load_state(const State& state) override { numbers_ = state.at(0).second; }
  void set(std::int64_t step) {
    for (std::int64_t& number : numbers_.mutable_data<std::int64_t>()) number = step;
  }
  // The save that these numbers are of, or -1 when they are of several.
  std::int64_t step() const {
    const auto numbers = numbers_.data<std::int64_t>();
    for (const std::int64_t number : numbers) {
      if (number != numbers[0]) return -1;
    }
    return numbers[0];
  }

 private:
  Tensor numbers_ = zeros({8192}, {.dtype = DType::int64});
};

// Saves one checkpoint after the other, and tells the parent when the first is there.
[[noreturn]] void save_for_ever(const std::string& path, std::int64_t step, int ready) {
  try {
    Counter counter;
    for (;; ++step) {
      counter.set(step);
      save_checkpoint(path, {{"counter", counter}});
      if (ready >= 0 && ::write(ready, "x", 1) != 1) ::_exit(1);
      ready = -1;
    }
  } catch (...) {
    ::_exit(1);
  }
}

}  // namespace

TEST_CASE("checkpoint: kill -9 in the middle of saving, 50 times") {
  const test_support::Folder folder;
  const std::string path = folder / "last.st";
  Rng rng(20);
  Counter counter;
  std::int64_t last = 0;
  for (int round = 0; round < 50; ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) save_for_ever(path, last + 1, ready[1]);
    ::close(ready[1]);
    char byte = 0;
    CHECK(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.integers(0, 8000)));
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    load_checkpoint(path, {{"counter", counter}});
    CHECK(counter.step() > last);
    last = counter.step();
  }
  MESSAGE("checkpoints cut short: ", folder.entries() - 1, ", last step: ", last);
}
