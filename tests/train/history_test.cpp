// History and accuracy.
#include "softtape/train/history.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/support.hpp"
#include "softtape/train/tasks.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::kInf;
using test_support::kNaN;

namespace {

History sample() {
  History history;
  history.add(0, "loss", 2.5);
  history.add(0, {{"val_loss", 2.25}, {"accuracy", 0.5}});
  history.add(1, "loss", kNaN);
  history.add(2, "loss", kInf);
  history.add(2, "val_loss", 1.5);
  return history;
}

}  // namespace

TEST_CASE("history: series, and tables that a strict reader takes") {
  const History history = sample();
  CHECK(history.metrics() == std::vector<std::string>{"loss", "val_loss", "accuracy"});
  CHECK(history.steps("val_loss") == std::vector<std::int64_t>{0, 2});
  CHECK(history.values("val_loss") == std::vector<double>{2.25, 1.5});
  CHECK(history.values("none").empty());
  CHECK(history.size() == 6);
  CHECK(history.table().csv() ==
        "step,metric,value\n0,loss,2.5\n0,val_loss,2.25\n0,accuracy,0.5\n1,loss,\"NaN\"\n"
        "2,loss,\"Inf\"\n2,val_loss,1.5\n");
  CHECK(history.table({"loss", "val_loss"}).csv() ==
        "step,loss,val_loss\n0,2.5,2.25\n2,\"Inf\",1.5\n");
  CHECK(history.table({"val_loss", "loss"}).jsonl() ==
        "{\"step\": 0, \"val_loss\": 2.25, \"loss\": 2.5}\n"
        "{\"step\": 2, \"val_loss\": 1.5, \"loss\": null, \"status\": \"non-finite\"}\n");
  CHECK(History().table().csv() == "step,metric,value\n");
}

TEST_CASE("history: what makes no record or table is refused") {
  History history = sample();
  CHECK_REFUSED(ValueError, "[History] steps are counted from 0: -1", history.add(-1, "loss", 1));
  CHECK_REFUSED(ValueError, "[History] a metric needs a name: it is empty", history.add(1, "", 1));
  CHECK_REFUSED(ValueError, "[History] no metric of this name was recorded: 'x'",
                history.table({"loss", "x"}));
  CHECK_REFUSED(ValueError, "[History] a table needs metrics: none were named",
                history.table(std::vector<std::string>{}));
  CHECK(history.size() == 6);
}

TEST_CASE("history: its state comes back whole, NaN and all") {
  const test_support::LeakGuard guard;
  const History history = sample();
  History other;
  other.add(9, "gone", 1);
  other.load_state(history.state());
  CHECK(other.metrics() == history.metrics());
  CHECK(other.table().csv() == history.table().csv());
  other.load_state(History().state());
  CHECK(other.size() == 0);
  CHECK(other.metrics().empty());
}

TEST_CASE("history: states that are none are refused, and change nothing") {
  History history = sample();
  const auto check_refused = [&](std::size_t entry, const Tensor& value, const std::string& words) {
    State state = sample().state();
    state[entry].second = value;
    const std::string message = ops_test::refusal<ValueError>([&] { history.load_state(state); });
    CHECK_MESSAGE(test_support::contains(message, words), message);
  };
  REQUIRE(history.state()[3].first == "name.loss");
  check_refused(0, tensor({0, 0, 0, 1, 2}), "columns must be of one length: 5, 6 and 6");
  check_refused(0, tensor({0, 0, 0, 1, 2, -2}), "row 5 has step -2");
  check_refused(1, tensor({0, 0, 0, 1, 2, 3}), "row 5 has step 2 and metric 3");
  check_refused(3, scalar(1), "metrics must be numbered in a row");
  check_refused(3, scalar(3), "metrics must be numbered in a row");
  CHECK(history.table().csv() == sample().table().csv());
}

TEST_CASE("accuracy: the first of the largest logits, among what counts") {
  const Tensor logits =
      tensor({{1.0, 2.0, 0.0}, {5.0, 5.0, 1.0}, {0.0, kNaN, 3.0}, {1.0, 0.0, 0.0}});
  CHECK(accuracy(logits, tensor({1, 0, 2, 0})) == 0.75);  // a NaN is never right
  CHECK(accuracy(logits, tensor({1, 1, 1, 2})) == 0.25);  // of two equal ones the first wins
  CHECK(accuracy(logits, tensor({1, -1, -1, 2}), kIgnore) == 0.5);
  CHECK(std::isnan(accuracy(logits, full({4}, -1, {.dtype = DType::int64}), kIgnore)));
  CHECK_REFUSED(ValueError, "[accuracy] a target must lie in [0, 3): -1",
                accuracy(logits, tensor({1, -1, 0, 2})));
  CHECK_REFUSED(ShapeError, "[accuracy] targets need one entry per row of logits",
                accuracy(logits, tensor({1, 1})));
  CHECK_REFUSED(ShapeError, "[accuracy]", accuracy(scalar(1.0), scalar(0)));
  CHECK_REFUSED(DtypeError, "[accuracy] targets must be int64: got float32",
                accuracy(logits, zeros({4})));
}
