// Generated tasks: NumPy's draws, the rules of each task, refused options.
#include "softtape/train/tasks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "golden/tasks_golden.hpp"
#include "ops/support.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/shape.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

namespace {

std::vector<std::int64_t> joined(const Tensor& a, const Tensor& b) {
  return cat({a, b}).to_vector<std::int64_t>();
}

}  // namespace

TEST_CASE("recall: NumPy's draws, one batch after the other") {
  const test_support::LeakGuard guard;
  const RecallTask task({.length = 5, .keys = 9, .values = 4});
  Rng rng(3);
  const RecallBatch a = task.sample(3, rng);
  const RecallBatch b = task.sample(2, rng);
  CHECK(a.keys.shape() == Shape{3, 5});
  CHECK(a.values.shape() == Shape{3, 5});
  CHECK(a.query.shape() == Shape{3});
  for (const Tensor& t : {a.keys, a.values, a.slot, a.query, a.target}) {
    CHECK(t.dtype() == DType::int64);
  }
  CHECK(joined(a.keys, b.keys) == golden::tasks::recall_keys);
  CHECK(joined(a.values, b.values) == golden::tasks::recall_values);
  CHECK(joined(a.slot, b.slot) == golden::tasks::recall_slot);
  CHECK(joined(a.query, b.query) == golden::tasks::recall_query);
  CHECK(joined(a.target, b.target) == golden::tasks::recall_target);
}

TEST_CASE("recall: the keys of a row are distinct, the slot holds query and target") {
  const RecallTask task;
  Rng rng(1);
  const RecallBatch b = task.sample(64, rng);
  REQUIRE(b.keys.shape() == Shape{64, 16});
  for (std::int64_t i = 0; i < 64; ++i) {
    auto row = ops_test::integers(b.keys[i]);
    const auto slot = static_cast<std::int64_t>(b.slot[i].item());
    CHECK(b.query[i].item() == b.keys[i][slot].item());
    CHECK(b.target[i].item() == b.values[i][slot].item());
    std::sort(row.begin(), row.end());
    CHECK(std::adjacent_find(row.begin(), row.end()) == row.end());
    CHECK(row.front() >= 0);
    CHECK(row.back() < 32);
  }
}

TEST_CASE("recall: one pair, and as many pairs as keys") {
  Rng rng(0);
  const RecallBatch one = RecallTask({.length = 1, .keys = 1, .values = 1}).sample(2, rng);
  CHECK(ops_test::integers(one.target) == std::vector<std::int64_t>{0, 0});
  CHECK(RecallTask({.length = 4, .keys = 4}).sample(1, rng).keys.shape() == Shape{1, 4});
}

TEST_CASE("copy: NumPy's draws; the second half is wanted") {
  const test_support::LeakGuard guard;
  const CopyTask task({.length = 3, .vocab = 5});
  Rng rng(4);
  const auto [x, y] = task.sample(2, rng);
  CHECK(task.vocab() == 6);
  CHECK(x.shape() == Shape{2, task.context()});
  CHECK(ops_test::integers(x) == golden::tasks::copy_x);
  CHECK(ops_test::integers(y) == golden::tasks::copy_y);
  CHECK(cross_entropy_count(y, kIgnore) == 2 * 3);
}

TEST_CASE("copy: one symbol is an x of symbol and separator") {
  const CopyTask task({.length = 1, .vocab = 1});
  Rng rng(0);
  const auto [x, y] = task.sample(1, rng);
  CHECK(ops_test::integers(x) == std::vector<std::int64_t>{0, 1});
  CHECK(ops_test::integers(y) == std::vector<std::int64_t>{kIgnore, 0});
}

TEST_CASE("induction: NumPy's draws; what the first block foretells is wanted") {
  const test_support::LeakGuard guard;
  const InductionTask task({.length = 3, .vocab = 12});
  Rng rng(5);
  const auto [x, y] = task.sample(2, rng);
  CHECK(task.vocab() == 12);
  CHECK(x.shape() == Shape{2, task.context()});
  CHECK(ops_test::integers(x) == golden::tasks::induction_x);
  CHECK(ops_test::integers(y) == golden::tasks::induction_y);
  CHECK(cross_entropy_count(y, kIgnore) == 2 * 2);
}

TEST_CASE("tasks: options and batches that make no sense are refused, and draw nothing") {
  CHECK_REFUSED(ValueError, "[RecallTask] a size must be at least 1: length = 0",
                RecallTask({.length = 0}));
  CHECK_REFUSED(ValueError, "[RecallTask] a size must be at least 1: keys = -1",
                RecallTask({.keys = -1}));
  CHECK_REFUSED(ValueError, "[RecallTask] a size must be at least 1: values = 0",
                RecallTask({.values = 0}));
  CHECK_REFUSED(ValueError,
                "[RecallTask] the keys of a sample are distinct, so there must be as many: length "
                "= 33, keys = 32",
                RecallTask({.length = 33}));
  CHECK_REFUSED(ValueError, "[CopyTask] a size must be at least 1: length = 0",
                CopyTask({.length = 0}));
  CHECK_REFUSED(ValueError, "[CopyTask] a size must be at least 1: vocab = 0",
                CopyTask({.vocab = 0}));
  CHECK_REFUSED(ValueError, "[InductionTask] a block needs two tokens to have a successor: length",
                InductionTask({.length = 1}));
  CHECK_REFUSED(ValueError, "[InductionTask] vocab must be at least 4 length",
                InductionTask({.length = 8, .vocab = 31}));
  Rng rng(6);
  const RngState before = rng.state();
  CHECK_REFUSED(ValueError, "[RecallTask] a size must be at least 1: batch = 0",
                RecallTask().sample(0, rng));
  CHECK_REFUSED(ValueError, "[CopyTask] a size must be at least 1: batch = -2",
                CopyTask().sample(-2, rng));
  CHECK_REFUSED(ValueError, "[InductionTask] a size must be at least 1: batch = 0",
                InductionTask().sample(0, rng));
  CHECK(rng.state() == before);
}
