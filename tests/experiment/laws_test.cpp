// The results that `starvation` states and checks, with few seeds; `tests/run.sh laws` checks them
// with as many as they were stated with. And what must hold for any run: threads, types, shapes.
#include "laws.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "jobs.hpp"
#include "parts.hpp"
#include "softtape/base/error.hpp"
#include "support/sanitizers.hpp"

namespace {

using namespace starvation;

Options quiet() {
  Options o;
  o.threads = 2;
  o.progress = false;
  return o;
}

void check_all(const Results& results, const std::set<std::string>& expected) {
  std::set<std::string> found;
  for (const Law& law : results.laws) {
    CAPTURE(law.claim);
    CAPTURE(law.measured);
    CHECK_MESSAGE(law.holds, law.id);
    found.insert(law.id);
  }
  CHECK(found == expected);
}

std::string fingerprint(const Results& r) {
  return r.init.csv() + r.curves.csv() + r.summary.csv() + r.keys.csv() + r.ends.csv();
}

}  // namespace

TEST_CASE("lesson: every number is the expected one to 6 digits, variances within 4 errors") {
  Results results;
  REQUIRE(run_lesson(quiet(), results, false));
  double variance = 0;
  for (const auto& row : results.lesson.rows()) {
    const auto& name = std::get<std::string>(row[0]);
    const double value = std::get<double>(row[3]), expected = std::get<double>(row[4]);
    CAPTURE(name);
    if (name.starts_with("Var")) {
      variance = value - expected;
    } else if (name.starts_with("its standard error")) {
      CHECK(std::abs(variance) < 4 * value);
      CHECK(value == doctest::Approx(expected).epsilon(0.1));
    } else {
      CHECK(std::abs(value - expected) <= 1e-6 * std::abs(expected));
    }
  }
}

TEST_CASE("P3 to P6: before the first step") {
  Options o = quiet();
  if (test_support::kSanitized) o.seeds = {0};
  Results results;
  o.dk = {256};
  REQUIRE(run_init(o, results, false));
  check_start_laws(results);
  check_all(results, {"P3", "P4", "P5", "P6"});
}

TEST_CASE("P1, P2, P7 to P11, P13: training") {
  std::vector<RecallSetting> settings;
  const auto add = [&](std::int64_t dk, const char* scale, double lr, auto&& change) {
    RecallSetting s;
    s.dk = dk;
    s.scale = scale;
    s.lr = s.lr_qk = lr;
    s.eval_every = 10;
    change(s);
    settings.push_back(s);
  };
  const auto plain = [](RecallSetting&) {};
  for (const double lr : {3.0, 10.0, 30.0}) add(256, "none", lr, plain);
  add(256, "inv_sqrt_dk", 10, plain);
  add(256, "inv_sqrt_dk", 10, [](RecallSetting& s) { s.init_gain = 4; });
  add(256, "none", 10, [](RecallSetting& s) { s.init_gain = 0.25; });
  add(256, "none", 1, [](RecallSetting& s) { s.init_gain = 0.25; });
  add(64, "inv_sqrt_dk", 10, plain);
  add(64, "none", 10, [](RecallSetting& s) {
    s.init_gain = std::pow(64.0, -0.25);
    s.lr_qk = s.lr / 8;
  });
  for (const char* scale : {"inv_sqrt_dk", "none"}) {
    add(4, scale, 3, plain);
    add(256, scale, 10, [](RecallSetting& s) { s.T = 4; });
    add(256, scale, 0.01, [](RecallSetting& s) {
      s.optimizer = "adam";
      s.steps = 1000;
    });
  }
  const std::size_t seeds = test_support::kSanitized ? 1 : 3;
  std::vector<RecallRun> runs(settings.size() * seeds);
  run_jobs(runs.size(), {.label = "", .threads = 2, .progress = false}, [&](std::size_t i) {
    runs[i] = *train_recall(settings[i / seeds], i % seeds, [] { return false; });
  });
  Results results;
  check_training_laws(runs, results);
  check_all(results, {"P1", "P2", "P7", "P8", "P9", "P10", "P11", "P13"});

  // A starved model answers by symbols: right where its largest weight is right, by chance (1/16)
  // elsewhere.
  for (const RecallRun& run : runs) {
    const RecallSetting& s = run.setting;
    if (s.scale != "none" || s.init_gain != 1 || s.dk != 256 || s.T != 16 || s.lr != 10) continue;
    CHECK(run.split.accuracy_right > 0.98);
    CHECK(run.split.accuracy_wrong < 0.15);
    CHECK(run.found.size() == 32);
  }
}

TEST_CASE("results do not depend on the number of threads [thread]") {
  Options o = quiet();
  o.dk = {8};
  o.lr = {3};
  o.scales = {"inv_sqrt_dk", "none", "learned"};
  o.remedies = {"qk_norm", "soft_cap"};
  o.seeds = {0, 1};
  o.steps = 30;
  Results one, three;
  o.threads = 1;
  REQUIRE(run_train(o, one, false));
  o.threads = 3;
  REQUIRE(run_train(o, three, false));
  CHECK(!one.curves.rows().empty());
  CHECK(fingerprint(one) == fingerprint(three));
}

TEST_CASE("a law is checked only when its runs are there") {
  Results results;
  check_training_laws({}, results);
  check_start_laws(results);
  CHECK(results.laws.empty());
  CHECK(unchecked_laws(results) == "P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11, P12, P13");
}

TEST_CASE("a diverging run ends, is marked, and is no success") {
  RecallSetting s;
  s.dk = 4;
  s.lr = s.lr_qk = 1e300;
  s.steps = 50;
  const auto run = train_recall(s, 0, [] { return false; });
  REQUIRE(run.has_value());
  CHECK(!run->finite);
  CHECK(std::isnan(run->curve.back().loss));
  CHECK(!run->steps_to_90.has_value());
}

TEST_CASE("a stopped run gives nothing") {
  CHECK(!train_recall({}, 0, [] { return true; }).has_value());
}

TEST_CASE("unknown names are refused") {
  RecallSetting s;
  s.scale = "sqrt";
  CHECK_THROWS_WITH_AS(train_recall(s, 0, [] { return false; }),
                       "[starvation] a scale is inv_sqrt_dk, none, inv_dk, dk_quarter or learned: "
                       "got sqrt",
                       softtape::ValueError);
  s = {};
  s.optimizer = "lion";
  CHECK_THROWS_WITH_AS(train_recall(s, 0, [] { return false; }),
                       "[starvation] optimizer must be sgd or adam: got lion",
                       softtape::ValueError);
}
