// Batches: every row once an epoch, in NumPy's order; states that come back; refused data.
#include "softtape/train/batches.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/support.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

namespace {

std::vector<std::int64_t> numbers(const Tensor& x) { return x.to_vector<std::int64_t>(); }

// Row i of the features is (10 i, 10 i + 1), its target i.
struct Data {
  Tensor x = add(mul(reshape(arange(10), {10, 1}), 10), arange(2));
  Tensor y = arange(10);
};

State replaced(State state, const std::string& name, const Tensor& value) {
  for (auto& [key, entry] : state) {
    if (key == name) entry = value;
  }
  return state;
}

}  // namespace

TEST_CASE("batches: an epoch is the permutation that its stream draws") {
  const test_support::LeakGuard guard;
  const Data data;
  Rng rng(5);
  Batches batches(data.x, data.y, {.size = 4}, rng);
  Rng same(5);
  CHECK(rng.standard_normal() == same.standard_normal());  // its own draws did not change
  Rng stream = Rng(5).spawn(1).front();
  CHECK(batches.size() == 10);
  CHECK(batches.batches_per_epoch() == 3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = stream.permutation(10);
    std::vector<std::int64_t> seen;
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto [x, y] = batches.next();
      CHECK(batches.epoch() == epoch);
      CHECK(batches.position() == i + 1);
      CHECK(y.dim(0) == (i < 2 ? 4 : 2));
      CHECK(x.shape() == Shape{y.dim(0), 2});
      for (std::int64_t row = 0; row < y.dim(0); ++row) {
        seen.push_back(static_cast<std::int64_t>(y[row].item()));
        CHECK(numbers(x[row]) == std::vector{10 * seen.back(), 10 * seen.back() + 1});
      }
    }
    CHECK(seen == order);
  }
}

TEST_CASE("batches: without shuffling, and without the rest") {
  const Data data;
  Rng rng(0);
  Batches batches(data.x, data.y, {.size = 4, .shuffle = false, .drop_last = true}, rng);
  CHECK(batches.batches_per_epoch() == 2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    CHECK(numbers(batches.next().y) == std::vector<std::int64_t>{0, 1, 2, 3});
    CHECK(numbers(batches.next().y) == std::vector<std::int64_t>{4, 5, 6, 7});
  }
  CHECK(batches.epoch() == 1);
  Batches whole(data.x, data.y, {.size = 99, .shuffle = false}, rng);
  CHECK(numbers(whole.next().y) == numbers(data.y));
}

TEST_CASE("batches: any dtype goes through, gradients do not") {
  Rng rng(1);
  Tensor x = randn(rng, {4, 2}).requires_grad_();
  const Tensor y = tensor({true, false, true, false});
  Batches batches(x, y, {.size = 2}, rng);
  const auto [bx, by] = batches.next();
  CHECK_FALSE(bx.requires_grad());
  CHECK(bx.dtype() == DType::float32);
  CHECK(by.dtype() == DType::boolean);
}

TEST_CASE("batches: a state goes on with the same batches from any place") {
  const test_support::LeakGuard guard;
  const Data data;
  for (int before = 0; before < 8; ++before) {
    CAPTURE(before);
    Rng rng(6);
    Batches batches(data.x, data.y, {.size = 4}, rng);
    for (int i = 0; i < before; ++i) batches.next();
    Rng other(77);
    Batches resumed(data.x, data.y, {.size = 4}, other);
    resumed.load_state(batches.state());
    CHECK(resumed.epoch() == batches.epoch());
    CHECK(resumed.position() == batches.position());
    for (int i = 0; i < 7; ++i) CHECK(numbers(resumed.next().y) == numbers(batches.next().y));
  }
}

TEST_CASE("batches: states that are none are refused, and change nothing") {
  const Data data;
  Rng rng(6);
  Batches batches(data.x, data.y, {.size = 4}, rng);
  batches.next();
  const State good = batches.state();
  const auto check_refused = [&](const State& state, const std::string& words) {
    const std::string message = ops_test::refusal<ValueError>([&] { batches.load_state(state); });
    CHECK_MESSAGE(test_support::contains(message, words), message);
  };
  check_refused({}, "stream is missing");
  check_refused(replaced(good, "position", scalar(3)), "no batch of 4 begins at position 3");
  check_refused(replaced(good, "position", scalar(-4)), "no batch of 4 begins at position -4");
  check_refused(replaced(good, "position", scalar(12)), "no batch of 4 begins at position 12");
  check_refused(replaced(good, "epoch", scalar(-1)), "epochs are counted from 0: -1");
  check_refused(replaced(good, "order", arange(9)), "it is of 9 rows, the data set has 10");
  check_refused(replaced(good, "order", zeros({10}, {.dtype = DType::int64})),
                "order holds a row twice");
  State more = good;
  more.emplace_back("colour", scalar(1));
  check_refused(more, "colour is unknown");
  more.back().first = "epoch";
  check_refused(more, "epoch is doubled");
  CHECK_REFUSED(DtypeError, "[load_state] epoch of Batches must be int64: it is float32",
                batches.load_state(replaced(good, "epoch", scalar(1.0))));
  CHECK_REFUSED(ShapeError, "[load_state] order of Batches must have 1 axes",
                batches.load_state(replaced(good, "order", scalar(1))));
  const State after = batches.state();
  for (std::size_t i = 0; i < good.size(); ++i) CHECK_SAME(good[i].second, after[i].second);
}

TEST_CASE("batches: data that cannot be cut into batches is refused") {
  const Data data;
  Rng rng(0);
  const RngState before = rng.state();
  CHECK_REFUSED(ShapeError,
                "[Batches] features and targets need equally many rows: (10, 2) and (9,)",
                Batches(data.x, arange(9), {}, rng));
  CHECK_REFUSED(ShapeError, "[Batches] features and targets need equally many rows: () and ()",
                Batches(scalar(1), scalar(1), {}, rng));
  CHECK_REFUSED(ValueError, "[Batches] there is no data: features is (0, 2)",
                Batches(zeros({0, 2}), zeros({0}), {}, rng));
  CHECK_REFUSED(ValueError, "[Batches] a size must be at least 1: size = 0",
                Batches(data.x, data.y, {.size = 0}, rng));
  CHECK_REFUSED(ValueError, "[Batches] drop_last would leave out all rows: size = 11",
                Batches(data.x, data.y, {.size = 11, .drop_last = true}, rng));
  CHECK_REFUSED(GraphError, "[Batches]", Batches(Tensor(), data.y, {}, rng));
  CHECK(rng.state() == before);
}
