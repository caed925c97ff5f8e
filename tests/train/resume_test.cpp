// Runs that are the same to the bit: resumed in a new process, repeated, on more threads; and one
// whose memory does not grow.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "softtape/base/memory.hpp"
#include "softtape/graph/grad.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "train/support.hpp"

using namespace softtape;
using test_support::Folder;
using train_test::Run;
using train_test::same_files;

namespace {

constexpr const char* kVariable = "SOFTTAPE_TEST_RESUME";

TrainerOptions settings(Run& run, std::int64_t steps, const std::string& checkpoint) {
  TrainerOptions options{.steps = steps,
                         .schedule = Schedule::warmup_cosine({.warmup = 10, .total = 100})};
  options.evaluate = [&run](std::int64_t) { return run.measure(); };
  options.evaluate_every = 25;
  options.last_checkpoint = checkpoint;
  return run.options(options);
}

// Trains and leaves parameters, moments, streams, order of the data, losses and history in a file.
void train_to(const std::string& checkpoint, std::int64_t steps, const std::string& from = "") {
  Run run(from.empty() ? 7 : 1234);  // a resumed run gets all it needs from the file
  Trainer trainer(run.optimizer, run.loss(), settings(run, steps, checkpoint));
  if (!from.empty()) trainer.resume(from);
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::finished);
  CHECK(result.steps == steps);
}

// Runs this program's cases of a pattern again, in a process that finds `folder` in its
// environment.
bool passes_in_new_process(const std::string& pattern, const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(kVariable, folder.c_str(), 1);
    const std::string filter = "--test-case=" + pattern;
    ::execl("/proc/self/exe", "train_test", filter.c_str(), "--out=/dev/null", nullptr);
    ::_exit(127);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Pages in memory, in bytes.
std::int64_t resident_bytes() {
  std::int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("CKP-001: 100 steps are 50, a checkpoint, a new process and 50 more") {
  if (const char* folder = std::getenv(kVariable)) {  // the new process
    train_to(std::string(folder) + "/resumed.st", 100, std::string(folder) + "/half.st");
    return;
  }
  const Folder folder;
  train_to(folder / "straight.st", 100);
  train_to(folder / "half.st", 50);
  REQUIRE(passes_in_new_process("CKP-001:*", folder / ""));
  CHECK(same_files(folder / "straight.st", folder / "resumed.st"));
  CHECK_FALSE(same_files(folder / "straight.st", folder / "half.st"));
}

TEST_CASE("resume: from every periodic checkpoint, mid-epoch and between evaluations too") {
  const Folder folder;
  train_to(folder / "straight.st", 30);
  for (const std::int64_t at : {1, 7, 13, 24}) {
    CAPTURE(at);
    Run run;
    TrainerOptions options = settings(run, 30, folder / "part.st");
    Trainer* self = nullptr;
    options.callbacks = {[&](const TrainStep& s) {
      if (s.step + 1 == at) self->stop();
    }};
    Trainer trainer(run.optimizer, run.loss(), options);
    self = &trainer;
    CHECK(trainer.run().steps == at);
    train_to(folder / "resumed.st", 30, folder / "part.st");
    CHECK(same_files(folder / "straight.st", folder / "resumed.st"));
  }
}

TEST_CASE("DET-001: the same seed gives the same bits, another seed does not") {
  const Folder folder;
  train_to(folder / "a.st", 40);
  train_to(folder / "b.st", 40);
  CHECK(same_files(folder / "a.st", folder / "b.st"));
  Run run(8);
  Trainer trainer(run.optimizer, run.loss(), settings(run, 40, folder / "c.st"));
  trainer.run();
  CHECK_FALSE(same_files(folder / "a.st", folder / "c.st"));
}

TEST_CASE("determinism: one thread and two give the same bits [thread]") {
  const Folder folder;
  // Large enough for products and row ops of several chunks.
  const auto train = [&](int threads, const std::string& checkpoint) {
    const test_support::ThreadCount count(threads);
    Rng rng(3);
    Sequential model;
    model.emplace<Linear>(64, 256, rng);
    model.add(relu);
    model.emplace<Dropout>(0.1, rng);
    model.emplace<Linear>(256, 32, rng);
    Adam optimizer(model, {.lr = 1e-3});
    TrainerOptions options{.steps = 5, .clip_norm = 0.5, .progress = {.enabled = false}};
    options.parts = {{"model", model}, {"rng", rng}};
    options.last_checkpoint = checkpoint;
    Trainer trainer(
        optimizer,
        [&](std::int64_t) {
          const Tensor x = randn(rng, {512, 64});
          return cross_entropy(model(x), randint(rng, 0, 32, {512}));
        },
        options);
    trainer.run();
  };
  train(1, folder / "one.st");
  train(2, folder / "two.st");
  CHECK(same_files(folder / "one.st", folder / "two.st"));
}

TEST_CASE("memory: flat over 10,000 steps") {
  Run run;
  TrainerOptions options{.steps = 10000};
  GraphStats early, late;
  std::int64_t resident_early = 0, resident_late = 0;
  options.callbacks = {[&](const TrainStep& s) {
    if (s.step == 1004) early = graph_stats(), resident_early = resident_bytes();
    if (s.step == 9998) late = graph_stats(), resident_late = resident_bytes();
  }};
  Trainer trainer(run.optimizer, run.loss(), run.options(options));
  CHECK(trainer.run().steps == 10000);
  CHECK(late.live_nodes == early.live_nodes);
  CHECK(late.live_bytes == early.live_bytes);
  // A sanitizer keeps freed memory for a while. The history may grow: three numbers of 24 bytes a
  // step, and as much again for a vector that doubles.
  if (!test_support::kSanitized) {
    CHECK(resident_late - resident_early < 2 * 3 * 24 * 9000 + (1 << 20));
  }
}
