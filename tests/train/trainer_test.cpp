// The training loop: what an update is, when it looks around, what it refuses.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/leak_guard.hpp"
#include "train/support.hpp"

using namespace softtape;
using test_support::Folder;
using test_support::kInf;
using test_support::kNaN;
using train_test::kSilent;
using train_test::Run;
using train_test::Square;

TEST_CASE("trainer: a step is loss, backward, update, schedule; the history tells of each") {
  const test_support::LeakGuard guard;
  Square f;
  SGD optimizer({f.x}, {.lr = 0.25});
  std::vector<double> seen;
  TrainerOptions options{.steps = 3, .schedule = Schedule::step(2, 0.5), .progress = kSilent};
  options.callbacks = {[&](const TrainStep& s) {
    seen.insert(seen.end(), {double(s.step), s.loss, s.grad_norm, s.lr});
  }};
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  // x: 1, then 1 - 0.25 2 = 0.5, 0.25, and at half the rate 0.25 - 0.125 0.5 = 0.1875.
  CHECK(f.x.item() == 0.1875);
  CHECK(seen == std::vector<double>{0, 1, 2, 0.25, 1, 0.25, 1, 0.25, 2, 0.0625, 0.5, 0.125});
  CHECK(trainer.history().values("loss") == std::vector<double>{1, 0.25, 0.0625});
  CHECK(trainer.history().values("grad_norm") == std::vector<double>{2, 1, 0.5});
  CHECK(trainer.history().values("lr") == std::vector<double>{0.25, 0.25, 0.125});
  CHECK(result.status == TrainStatus::finished);
  CHECK(result.steps == 3);
  CHECK(result.loss == 0.0625);
  CHECK(result.best_step == -1);
  CHECK(result.exit_code() == 0);
  CHECK(result.report == "finished after 3 updates");
  CHECK(trainer.run().steps == 3);  // nothing is left to do
}

TEST_CASE("trainer: evaluation at the start, every so often and at the end; probes see gradients") {
  const test_support::LeakGuard guard;
  Square f;
  SGD optimizer({f.x}, {.lr = 0.1});
  std::vector<std::int64_t> evaluated, probed;
  TrainerOptions options{.steps = 7, .progress = kSilent};
  options.evaluate = [&](std::int64_t step) -> Metrics {
    CHECK_FALSE(grad_enabled());
    evaluated.push_back(step);
    return {{"val_loss", f.x.item()}};
  };
  options.evaluate_every = 3;
  options.probe = [&](std::int64_t step) -> Metrics {
    probed.push_back(step);
    return {{"slope", f.x.grad().item() / f.x.item()}};
  };
  options.probe_every = 2;
  Trainer trainer(optimizer, f.loss(), options);
  const TrainResult result = trainer.run();
  CHECK(evaluated == std::vector<std::int64_t>{0, 3, 6, 7});
  CHECK(trainer.history().steps("val_loss") == evaluated);
  CHECK(probed == std::vector<std::int64_t>{0, 2, 4, 6});
  CHECK(trainer.history().values("slope") == std::vector<double>(4, 2));
  CHECK(result.best_step == 7);
  CHECK(result.best == f.x.item());
}

TEST_CASE("trainer: modules among the parts are in eval() while they are evaluated") {
  Run run;
  TrainerOptions options{.steps = 2};
  int evaluations = 0;
  options.evaluate = [&](std::int64_t) -> Metrics {
    CHECK_FALSE(run.model.training());
    if (++evaluations == 2) throw std::runtime_error("a bad day");
    return run.measure();
  };
  options.evaluate_every = 1;
  Trainer trainer(run.optimizer, run.loss(), run.options(options));
  CHECK_THROWS_WITH(trainer.run(), "a bad day");
  CHECK(run.model.training());
  CHECK(trainer.step() == 1);
  CHECK(trainer.run().status == TrainStatus::finished);  // and the run can go on
}

TEST_CASE("trainer: an evaluation leaves every module the mode of its own") {
  Rng rng(1);
  Run run;
  Dropout& frozen = run.model.emplace<Dropout>(0.5, rng);  // a child that the user wants quiet
  frozen.eval();
  Sequential quiet;  // and one that goes on to drop in a module that does not
  quiet.eval();
  Dropout& loud = quiet.emplace<Dropout>(0.5, rng);
  loud.train();
  TrainerOptions options = run.options({.steps = 2});
  options.parts.emplace_back("quiet", quiet);
  options.parts.emplace_back("loud", loud);  // listed twice: as a child and by itself
  int evaluations = 0;
  options.evaluate = [&](std::int64_t) -> Metrics {
    ++evaluations;
    CHECK_FALSE(run.model.training());
    CHECK_FALSE(frozen.training());
    CHECK_FALSE(quiet.training());
    CHECK_FALSE(loud.training());
    return run.measure();
  };
  Trainer(run.optimizer, run.loss(), options).run();
  CHECK(evaluations == 2);
  CHECK(run.model.training());
  CHECK_FALSE(frozen.training());
  CHECK_FALSE(quiet.training());
  CHECK(loud.training());
}

TEST_CASE("trainer: a step that a probe breaks is recorded once, when it is made") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0.25});
  TrainerOptions options{.steps = 3, .probe_every = 1, .progress = kSilent};
  std::string name = "slope";
  bool broken = true;
  options.probe = [&](std::int64_t step) -> Metrics {
    if (broken && step == 1) throw std::runtime_error("a bad day");
    return {{name, 2}};
  };
  Trainer trainer(optimizer, f.loss(), options);
  const auto check_only_first = [&] {
    CHECK(trainer.step() == 1);
    CHECK(trainer.history().steps("loss") == std::vector<std::int64_t>{0});
  };
  CHECK_THROWS_WITH(trainer.run(), "a bad day");
  check_only_first();
  broken = false;
  name = "lr";
  CHECK_REFUSED(ValueError, "[Trainer] 'lr' is what the trainer itself records", trainer.run());
  check_only_first();
  name = "";
  CHECK_REFUSED(ValueError, "[Trainer] a metric needs a name", trainer.run());
  check_only_first();
  name = "slope";
  CHECK(trainer.run().status == TrainStatus::finished);
  for (const char* metric : {"loss", "grad_norm", "lr", "slope"}) {
    CHECK(trainer.history().steps(metric) == std::vector<std::int64_t>{0, 1, 2});
  }
  CHECK(f.x.item() == 0.125);
}

TEST_CASE("trainer: accumulated gradients are those of the large batch") {
  const Batch all = Run::everything();
  const auto train = [&](std::int64_t accumulate) {
    Run run;
    run.model.eval();  // drops would differ
    TrainerOptions options{.steps = 5, .accumulate = accumulate};
    std::int64_t call = 0;
    Trainer trainer(
        run.optimizer,
        [&](std::int64_t) {
          const std::int64_t rows = 50 / accumulate;
          const std::int64_t first = call++ % accumulate * rows;
          return cross_entropy(run.model(narrow(all.x, 0, first, rows)),
                               narrow(all.y, 0, first, rows));
        },
        run.options(options));
    trainer.run();
    CHECK(call == 5 * accumulate);
    std::vector<double> numbers = trainer.history().values("loss");
    for (const Tensor& p : run.model.parameters()) {
      const auto values = p.to_vector();
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
    return numbers;
  };
  const auto whole = train(1);
  for (const std::int64_t parts : {2, 5}) {
    CHECK_NUMBERS(tensor(train(parts)), tensor(whole), 1e-10, 1e-12);
  }
}

TEST_CASE("trainer: clipping is that of clip_grad_norm_, and reports the norm before") {
  Square f;
  SGD optimizer({f.x}, {.lr = 1});
  Trainer trainer(optimizer, f.loss(), {.steps = 1, .clip_norm = 0.5, .progress = kSilent});
  trainer.run();
  CHECK(f.x.item() == 0.5);
  CHECK(trainer.history().values("grad_norm") == std::vector<double>{2});
}

TEST_CASE("trainer: progress lines carry the loss and what is monitored") {
  const Folder folder;
  Square f;
  SGD optimizer({f.x}, {.lr = 0.25});
  TrainerOptions options{.steps = 2, .progress = {.interval = 0}};
  options.evaluate = [](std::int64_t) -> Metrics { return {{"val_loss", 1.5}}; };
  Trainer trainer(optimizer, f.loss(), options);
  train_test::CapturedStderr captured(folder / "stderr");
  trainer.run();
  const std::string text = captured.text();
  CHECK_MESSAGE(text.rfind("train 1/2 (50 %), ", 0) == 0, text);
  CHECK_MESSAGE(test_support::contains(text, " left: loss 1, val_loss 1.5\n"), text);
  CHECK_MESSAGE(test_support::contains(text, " s: loss 0.25, val_loss 1.5\n"), text);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find('\033') == std::string::npos);
}

TEST_CASE("trainer: losses that are none, metrics that clash or are missing") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0.1});
  const auto run = [&](LossFunction loss, MetricsFunction evaluate, std::string monitor) {
    TrainerOptions options{.steps = 1, .progress = kSilent};
    options.evaluate = std::move(evaluate);
    options.monitor = std::move(monitor);
    Trainer(optimizer, std::move(loss), options).run();
  };
  const Tensor two = test_support::leaf({1.0, 2.0});
  optimizer.zero_grad();
  CHECK_REFUSED(GraphError, "[Trainer] the loss is undefined",
                run([](std::int64_t) { return Tensor(); }, {}, ""));
  CHECK_REFUSED(ShapeError, "[Trainer] the loss must be one number: its shape is (2,)",
                run([&](std::int64_t) { return square(two); }, {}, ""));
  CHECK_REFUSED(GraphError, "[backward]", run([](std::int64_t) { return scalar(1.0); }, {}, ""));
  CHECK_REFUSED(ValueError,
                "[Trainer] 'loss' is what the trainer itself records; call it 'val_loss'",
                run(
                    f.loss(),
                    [](std::int64_t) -> Metrics {
                      return {{"loss", 1}};
                    },
                    ""));
  CHECK_REFUSED(ValueError,
                "[Trainer] evaluate must return what is monitored: 'b' is not among its 1 metrics",
                run(
                    f.loss(),
                    [](std::int64_t) -> Metrics {
                      return {{"a", 1}};
                    },
                    "b"));
  CHECK_REFUSED(ValueError,
                "[Trainer] evaluate must return what is monitored: '' is not among its 0 metrics",
                run(
                    f.loss(), [](std::int64_t) { return Metrics(); }, ""));
  CHECK(f.x.item() == 1);
}

TEST_CASE("trainer: options that make no sense are refused, and change no rate") {
  Square f;
  SGD optimizer({f.x}, {.lr = 0.1});
  const auto check_refused = [&](const TrainerOptions& options, const std::string& words) {
    const std::string message =
        ops_test::refusal<ValueError>([&] { Trainer(optimizer, f.loss(), options); });
    CHECK_MESSAGE(message.rfind("[Trainer] " + words, 0) == 0, message);
  };
  check_refused({.steps = 0}, "a count must be at least 1: steps = 0");
  check_refused({.accumulate = 0}, "a count must be at least 1: accumulate = 0");
  check_refused({.clip_norm = 0}, "a limit must be positive: clip_norm = 0");
  check_refused({.clip_norm = kNaN}, "a limit must be positive: clip_norm = nan");
  check_refused({.evaluate_every = 0}, "a period must be at least 1: evaluate_every = 0");
  check_refused({.probe_every = -1}, "a period must be at least 1: probe_every = -1");
  check_refused({.checkpoint_every = -1}, "a period must not be negative: checkpoint_every = -1");
  check_refused({.patience = -1}, "a count must not be negative: patience = -1");
  check_refused({.patience = 1}, "patience and best_checkpoint need something to judge by");
  check_refused({.best_checkpoint = "x"},
                "patience and best_checkpoint need something to judge by");
  check_refused({.min_delta = kInf},
                "a difference must be finite and not negative: min_delta = inf");
  check_refused({.min_delta = kNaN},
                "a difference must be finite and not negative: min_delta = nan");
  check_refused({.callbacks = {StepCallback()}}, "a callback is an empty function");
  Rng rng(0);
  check_refused({.parts = {{"history", rng}}},
                "a part needs a name of its own: 'history' is taken");
  check_refused({.parts = {{"a", rng}, {"a", rng}}},
                "a part needs a name of its own: 'a' is taken");
  CHECK_REFUSED(ValueError, "[Trainer] there is nothing to train: the loss is an empty function",
                Trainer(optimizer, LossFunction()));
  TrainerOptions same{.evaluate = [](std::int64_t) { return Metrics(); }};
  same.last_checkpoint = same.best_checkpoint = "x";
  check_refused(same, "the best and the last checkpoint need files of their own: both are 'x'");
  CHECK(optimizer.lr() == 0.1);
}

TEST_CASE(
    "trainer: a checkpoint that cannot be written or is foreign is an error, nothing changes") {
  const Folder folder;
  Square f;
  SGD optimizer({f.x}, {.lr = 0.1});
  TrainerOptions options{.steps = 1, .progress = kSilent};
  options.last_checkpoint = folder / "no/such/folder/last.st";
  Trainer trainer(optimizer, f.loss(), options);
  CHECK_THROWS_AS(trainer.run(), IoError);
  CHECK(trainer.step() == 1);
  const double x = f.x.item();
  CHECK_THROWS_AS(trainer.resume(folder / "missing.st"), IoError);
  write_file(folder / "foreign.st", "hello");
  CHECK_THROWS_AS(trainer.resume(folder / "foreign.st"), IoError);
  Run run;
  Trainer other(run.optimizer, run.loss(),
                run.options({.steps = 1, .last_checkpoint = folder / "other.st"}));
  other.run();
  CHECK_THROWS_AS(trainer.resume(folder / "other.st"), ValueError);
  const Tensor pair = test_support::leaf({1.0, 2.0}).named("x");
  SGD of_pair({pair}, {.lr = 0.1});
  Trainer(of_pair, [&](std::int64_t) { return sum(square(pair)); },
          {.steps = 1, .last_checkpoint = folder / "pair.st", .progress = kSilent})
      .run();
  const std::string wide =
      ops_test::refusal<ShapeError>([&] { trainer.resume(folder / "pair.st"); });
  CHECK_MESSAGE(test_support::contains(wide, "x is () here, (2,) there"), wide);
  CHECK(f.x.item() == x);
  CHECK(trainer.step() == 1);
}
