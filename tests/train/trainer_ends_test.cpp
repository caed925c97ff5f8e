// How a run ends: done, diverged, out of patience, stopped, interrupted; and its checkpoints.
#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "softtape/ops/reduce.hpp"
#include "softtape/optim/sgd.hpp"
#include "softtape/train/interrupt.hpp"
#include "train/support.hpp"

using namespace softtape;
using test_support::Folder;
using test_support::kInf;
using test_support::kNaN;
using train_test::kSilent;
using train_test::Run;
using train_test::Square;

TEST_CASE("DIV-001: a loss that overflows ends the run before the step, and says so") {
  Square f;
  SGD optimizer({f.x}, {.lr = 1.1});
  TrainerOptions options{.steps = 5000, .progress = kSilent};
  double after_3 = 0;
  options.callbacks = {[&](const TrainStep& s) {
    if (s.step == 2) after_3 = f.x.item();
  }};
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  CHECK(after_3 == doctest::Approx(-1.728).epsilon(1e-9));
  CHECK(result.status == TrainStatus::diverged);
  CHECK(result.exit_code() == 4);
  CHECK(result.steps >= 1946);
  CHECK(result.steps <= 1948);
  CHECK(result.report ==
        fmt::format("diverged at step {}: the loss is inf, nothing was updated; the learning rate "
                    "was 1.1: lower it, or clip the gradients",
                    result.steps));
  CHECK(std::isfinite(f.x.item()));
  CHECK(trainer.history().values("loss").back() == kInf);
  CHECK(test_support::contains(trainer.history().table().jsonl(), "null"));
}

TEST_CASE("trainer: a gradient that is not finite is named, and nothing is updated") {
  const Folder folder;
  Tensor a = test_support::leaf({1.0, 2.0}).named("a");
  Tensor b = test_support::leaf({0.0, 4.0}).named("b");
  Adam optimizer({a, b}, {.lr = 0.1});
  TrainerOptions options{.steps = 9, .clip_norm = 1, .progress = kSilent};
  options.last_checkpoint = folder / "last.st";
  Trainer trainer(
      optimizer,
      [&](std::int64_t step) {
        return step < 2 ? sum(square(a)) : sum(add(a, sqrt(mul(b, b.detach()))));
      },
      options);
  b.register_hook([](const Tensor& g) { return mul(g, kInf); });
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::diverged);
  CHECK(result.steps == 2);
  CHECK_MESSAGE(result.report.rfind("diverged at step 2: the gradient of b is not finite, nothing "
                                    "was updated",
                                    0) == 0,
                result.report);
  CHECK(b.to_vector() == std::vector<double>{0, 4});
  CHECK_FALSE(std::filesystem::exists(options.last_checkpoint));
}

TEST_CASE("trainer: parameters that are not finite are no success, and are not saved") {
  const Folder folder;
  Tensor x = test_support::leaf(1e10).named("x");
  SGD optimizer({x}, {.lr = 1e30});
  TrainerOptions options{.steps = 1, .progress = kSilent};
  options.last_checkpoint = folder / "last.st";
  Trainer trainer(
      optimizer, [&](std::int64_t) { return mul(x, -1e290); }, options);
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::diverged);
  CHECK_MESSAGE(test_support::contains(result.report, "parameter x is not finite"), result.report);
  CHECK_FALSE(std::filesystem::exists(options.last_checkpoint));
}

TEST_CASE("trainer: patience counts evaluations that are not better") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0});
  const std::vector<double> values = {5, 4, 4, 4.5, kNaN, 3, 2};
  TrainerOptions options{.steps = 100, .progress = kSilent};
  options.evaluate = [&](std::int64_t step) -> Metrics {
    return {{"other", 0}, {"val_loss", values.at(static_cast<std::size_t>(step / 10))}};
  };
  options.evaluate_every = 10;
  options.monitor = "val_loss";
  options.patience = 3;
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::stopped_early);
  CHECK(result.exit_code() == 0);
  CHECK(result.steps == 40);
  CHECK(result.best_step == 10);
  CHECK(result.best == 4);
  CHECK(result.report ==
        "stopped after 40 updates: 3 evaluations were not better than that at step 10");
}

TEST_CASE("trainer: higher can be better, and a small gain is none") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0});
  TrainerOptions options{.steps = 100, .progress = kSilent};
  options.evaluate = [](std::int64_t step) -> Metrics {
    return {{"accuracy", 0.5 + 0.001 * static_cast<double>(step)}};
  };
  options.evaluate_every = 10;
  options.higher_is_better = true;
  options.min_delta = 0.015;
  options.patience = 2;
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::finished);
  CHECK(result.best_step == 100);
}

TEST_CASE("trainer: best and last checkpoint hold the best and the last state") {
  const Folder folder;
  Square f;
  SGD optimizer({f.x}, {.lr = 0.75});
  TrainerOptions options{.steps = 4, .progress = kSilent};
  options.evaluate = [&](std::int64_t step) -> Metrics {
    return {
        {"distance", std::abs(f.x.item() + 0.5) + (step == 4 ? 9 : 0)}};  // x: 1, -0.5, 0.25 ...
  };
  options.evaluate_every = 1;
  options.best_checkpoint = folder / "best.st";
  options.last_checkpoint = folder / "last.st";
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  CHECK(result.best_step == 1);
  CHECK(result.report ==
        fmt::format("finished after 4 updates; saved in '{}'", options.last_checkpoint));
  const auto saved_x = [&](const std::string& path) {
    return read_checkpoint(path).part("parameters").front().second.item();
  };
  CHECK(saved_x(options.best_checkpoint) == -0.5);
  CHECK(saved_x(options.last_checkpoint) == f.x.item());

  trainer.resume(options.best_checkpoint);
  CHECK(trainer.step() == 1);
  CHECK(f.x.item() == -0.5);
  CHECK(trainer.history().values("distance").size() == 2);
  CHECK(trainer.run().steps == 4);
  CHECK(f.x.item() == saved_x(options.last_checkpoint));
}

TEST_CASE("trainer: Ctrl-C ends the run after the update, saved, and a resumed run goes on") {
  const Folder folder;
  std::signal(SIGINT, SIG_DFL);  // a shell may have started this program with it ignored
  std::signal(SIGTERM, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM}) {
    Run run;
    TrainerOptions options{.steps = 20, .last_checkpoint = folder / "last.st"};
    options.callbacks = {[&](const TrainStep& s) {
      if (s.step == 6) std::raise(number);
    }};
    Trainer trainer(run.optimizer, run.loss(), run.options(options));
    const TrainResult result = trainer.run();
    CHECK(result.status == TrainStatus::interrupted);
    CHECK(result.exit_code() == 130);
    CHECK(result.steps == 7);
    CHECK(result.report ==
          fmt::format("interrupted after 7 updates; saved in '{}'", options.last_checkpoint));
    Run again;
    options.callbacks.clear();
    Trainer resumed(again.optimizer, again.loss(), again.options(options));
    resumed.resume(options.last_checkpoint);
    CHECK(resumed.step() == 7);
    CHECK(resumed.run().steps == 20);
    CHECK(trainer.run().steps == 20);  // the same, without the file
    CHECK(trainer.history().table().csv() == resumed.history().table().csv());
  }
  struct sigaction now {};
  ::sigaction(SIGINT, nullptr, &now);
  CHECK((now.sa_handler == SIG_DFL));  // all is as it was before
}

TEST_CASE("interrupt: guards nest, ignored signals stay ignored") {
  std::signal(SIGINT, SIG_IGN);
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    CHECK_FALSE(InterruptGuard::requested());
  }
  std::signal(SIGINT, SIG_DFL);
  {
    const InterruptGuard outer;
    { const InterruptGuard inner; }
    std::raise(SIGINT);  // would end the test if the inner one had put the default back
    CHECK(InterruptGuard::requested());
    const InterruptGuard another;
    CHECK(InterruptGuard::requested());
  }
  const InterruptGuard fresh;
  CHECK_FALSE(InterruptGuard::requested());
}

TEST_CASE("trainer: stop() ends the run after the update") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0.1});
  Trainer* self = nullptr;
  TrainerOptions options{.steps = 9, .progress = kSilent};
  options.callbacks = {[&](const TrainStep& s) {
    if (s.step == 2) self->stop();
  }};
  Trainer trainer(optimizer, f.loss(), options);
  self = &trainer;
  const TrainResult result = trainer.run();
  CHECK(result.status == TrainStatus::stopped_early);
  CHECK(result.report == "stopped after 3 updates");
  CHECK(trainer.run().steps == 9);
}
