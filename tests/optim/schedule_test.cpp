// Schedules: rates of each update, lengths that make no sense, resuming.
#include "softtape/optim/schedule.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "golden/nn_golden.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/compare.hpp"

using namespace softtape;
using test_support::kNaN;
using test_support::leaf;

namespace {

std::vector<double> rates(const Schedule& schedule, double base, std::int64_t count) {
  std::vector<double> found;
  for (std::int64_t t = 0; t < count; ++t) found.push_back(schedule.lr(base, t));
  return found;
}

void check(const Schedule& schedule, double base, const std::vector<double>& want) {
  CHECK_NUMBERS(tensor(rates(schedule, base, static_cast<std::int64_t>(want.size()))), tensor(want),
                1e-13, 1e-16);
}

}  // namespace

TEST_CASE("schedules: linear warm-up uses its first update") {
  check(Schedule::linear_warmup(4), 1, {0.25, 0.5, 0.75, 1, 1, 1});
  check(Schedule::linear_warmup(0), 2, {2, 2});
  check(Schedule::linear_warmup(1), 2, {2, 2});
}

TEST_CASE("golden: step and cosine equal PyTorch's") {
  check(Schedule::step(3, 0.4), 0.5, golden::nn::step_rates);
  check(Schedule::cosine(10, 0.02), 0.5, golden::nn::cosine_rates);
}

TEST_CASE("schedules: cosine stays at the minimum") {
  const Schedule cosine = Schedule::cosine(10, 0.1);
  CHECK(cosine.lr(1, 0) == 1);
  CHECK(cosine.lr(1, 5) == doctest::Approx(0.55));
  for (const std::int64_t t : {10, 11, 15, 20, 1000000}) CHECK(cosine.lr(1, t) == 0.1);
}

TEST_CASE("schedules: chains") {
  const Schedule chain = Schedule::linear_warmup(2).then(3, Schedule::step(2, 0.5));
  check(chain, 1, {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.25});
  check(Schedule::constant().then(1, Schedule::function([](double base, std::int64_t t) {
                                    return base * static_cast<double>(t);
                                  })),
        3, {3, 0, 3, 6});
  const Schedule both = Schedule::warmup_cosine({.warmup = 2, .total = 6, .minimum = 0.2});
  check(both, 1,
        {0.5, 1, 1, 0.2 + 0.4 * (1 + std::sqrt(0.5)), 0.6, 0.2 + 0.4 * (1 - std::sqrt(0.5)), 0.2,
         0.2});
  check(Schedule::warmup_cosine({.warmup = 2, .total = 2}), 1, {0.5, 1, 1, 0});
}

TEST_CASE("schedules: lengths and rates that make no sense are refused at once") {
  CHECK_THROWS_SAYING(ValueError, "Schedule", "total = 0", Schedule::cosine(0));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "minimum = nan", Schedule::cosine(5, kNaN));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "minimum = -1", Schedule::cosine(5, -1));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "warmup = -1", Schedule::linear_warmup(-1));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "every = 0", Schedule::step(0, 0.5));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "gamma = -1", Schedule::step(1, -1));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "warmup = 20",
                      Schedule::warmup_cosine({.warmup = 20, .total = 10}));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "warmup = -1",
                      Schedule::warmup_cosine({.warmup = -1, .total = 10}));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "total = 0", Schedule::warmup_cosine({}));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "updates = -1",
                      Schedule::constant().then(-1, Schedule::constant()));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "empty", Schedule::function(nullptr));
  CHECK_THROWS_SAYING(ValueError, "Schedule", "t = -1", Schedule::constant().lr(1, -1));
}

TEST_CASE("LrScheduler: drives every group from its own base") {
  Tensor a = leaf(0.0), b = leaf(0.0);
  SGD optimizer(std::vector<SgdGroup>{{{a}, {.lr = 1}}, {{b}, {.lr = 0.5}}});
  LrScheduler scheduler(optimizer, Schedule::linear_warmup(2));
  CHECK(optimizer.lr(0) == 0.5);
  CHECK(optimizer.lr(1) == 0.25);
  scheduler.step();
  CHECK(optimizer.lr(0) == 1);
  CHECK(optimizer.lr(1) == 0.5);
  CHECK(scheduler.updates() == 1);
}

TEST_CASE("LrScheduler: goes on where it was saved, refuses what does not fit") {
  Tensor p = leaf(0.0);
  SGD first({p}, {.lr = 2}), second({p}, {.lr = 7});
  LrScheduler from(first, Schedule::cosine(10)), to(second, Schedule::cosine(10));
  for (int i = 0; i < 4; ++i) from.step();
  const State saved = from.state();
  to.load_state(saved);
  CHECK(to.updates() == 4);
  CHECK(second.lr() == first.lr());
  from.step();
  to.step();
  CHECK(second.lr() == first.lr());

  const auto refused = [&](const State& state) {
    const double before = second.lr();
    CHECK_THROWS_AS(to.load_state(state), Error);
    CHECK(second.lr() == before);
    CHECK(to.updates() == 5);
  };
  const Tensor updates = saved[0].second, base = saved[1].second;
  refused({});
  refused({{"updates", updates}});
  refused({{"updates", updates}, {"updates", updates}});
  refused({{"updates", updates}, {"base.1", base}});
  refused({{"updates", base}, {"base.0", base}});
  refused({{"updates", updates}, {"base.0", updates}});
  refused({{"updates", scalar(-1)}, {"base.0", base}});
  refused({{"updates", updates}, {"base.0", test_support::numbers(kNaN)}});
  refused({{"updates", updates}, {"base.0", Tensor()}});
  refused({{"updates", updates}, {"base.0", base}, {"base.1", base}});

  CHECK_THROWS_SAYING(ValueError, "load_state", "LrScheduler: base.0 is missing",
                      to.load_state({{"updates", updates}}));
  CHECK_THROWS_SAYING(ValueError, "load_state", "LrScheduler: base.1 is unknown",
                      to.load_state({{"updates", updates}, {"base.0", base}, {"base.1", base}}));
  CHECK_THROWS_SAYING(ValueError, "load_state", "updates is doubled",
                      to.load_state({{"updates", updates}, {"updates", updates}}));
  CHECK_THROWS_SAYING(DtypeError, "load_state", "updates of LrScheduler must be int64",
                      to.load_state({{"updates", base}, {"base.0", base}}));
  CHECK_THROWS_SAYING(ShapeError, "load_state", "base.0 of LrScheduler must have 0 axes",
                      to.load_state({{"updates", updates}, {"base.0", ones({1})}}));
  CHECK_THROWS_SAYING(GraphError, "load_state", "base.0",
                      to.load_state({{"updates", updates}, {"base.0", Tensor()}}));
}

TEST_CASE("LrScheduler: a count of updates comes back exactly") {
  Tensor p = leaf(0.0);
  SGD optimizer({p}, {.lr = 1});
  LrScheduler scheduler(optimizer, Schedule::constant());
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;  // lies between two doubles
  State state = scheduler.state();
  state[0].second = scalar(kOdd);
  scheduler.load_state(state);
  CHECK(scheduler.updates() == kOdd);
}

TEST_CASE("LrScheduler: a function that leaves the range of rates changes nothing") {
  Tensor p = leaf(0.0);
  SGD optimizer({p}, {.lr = 1});
  LrScheduler scheduler(
      optimizer, Schedule::function([](double, std::int64_t t) { return t < 2 ? 0.5 : kNaN; }));
  scheduler.step();
  CHECK_THROWS_SAYING(ValueError, "Schedule", "lr = nan", scheduler.step());
  CHECK(scheduler.updates() == 1);
  CHECK(optimizer.lr() == 0.5);
}

TEST_CASE("LrScheduler: loaded bases that the schedule refuses change nothing") {
  Tensor p = leaf(0.0);
  SGD optimizer({p}, {.lr = 1});
  LrScheduler scheduler(optimizer, Schedule::function([](double base, std::int64_t) {
                          return base <= 1 ? base : kNaN;
                        }));
  State state = scheduler.state();
  state[1].second = scalar(2.0, {.dtype = DType::float64});
  CHECK_THROWS_SAYING(ValueError, "Schedule", "lr = nan", scheduler.load_state(state));
  CHECK(scheduler.state()[1].second.item() == 1);
  scheduler.step();
  CHECK(optimizer.lr() == 1);
}
