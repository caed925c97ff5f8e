// In-place change: of leaves only, under NoGrad, by sub_, add_, copy_, fill_ and mutable_data.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "softtape/base/parallel.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"
#include "support/threads.hpp"

using namespace softtape;
using namespace test_support;

namespace {

// Every way to change a float64 tensor of two numbers in place.
struct Update {
  std::string name;
  std::function<void(Tensor&)> call;
};
const std::vector<Update> kUpdates{
    {"sub_",
     [](Tensor& x) {
       x.sub_(numbers({1.0, 2.0}));
     }},
    {"add_",
     [](Tensor& x) {
       x.add_(numbers({1.0, 2.0}));
     }},
    {"copy_",
     [](Tensor& x) {
       x.copy_(numbers({1.0, 2.0}));
     }},
    {"fill_", [](Tensor& x) { x.fill_(3); }},
    {"mutable_data", [](Tensor& x) { x.mutable_data<double>()[0] = 4; }},
};

std::string refusal(const std::function<void(Tensor&)>& update, Tensor x) {
  try {
    update(x);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("updates compute what they say, in both float types") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    Tensor x = numbers({1.0, 2.0}, dtype);
    const Tensor y = numbers({10.0, 20.0}, dtype);
    CHECK(x.sub_(y).is_same(x));
    CHECK_NUMBERS(x, {-9.0, -18.0});
    CHECK_NUMBERS(x.sub_(y, 0.5), {-14.0, -28.0});
    CHECK_NUMBERS(x.add_(y), {-4.0, -8.0});
    CHECK_NUMBERS(x.add_(y, -2), {-24.0, -48.0});
    CHECK_NUMBERS(x.copy_(y), {10.0, 20.0});
    CHECK_NUMBERS(x.fill_(0.5), {0.5, 0.5});
    CHECK_NUMBERS(y, {10.0, 20.0});
    CHECK(x.version() == 6);
  }
}

TEST_CASE("a tensor may be its own source") {
  const LeakGuard guard;
  Tensor x = numbers({1.0, 2.0});
  CHECK_NUMBERS(x.add_(x), {2.0, 4.0});
  CHECK_NUMBERS(x.sub_(x, 0.5), {1.0, 2.0});
  CHECK_NUMBERS(x.copy_(x), {1.0, 2.0});
  CHECK_NUMBERS(x.copy_(x.detach()), {1.0, 2.0});
  CHECK_NUMBERS(x.sub_(x.detach()), {0.0, 0.0});
}

TEST_CASE("each update bumps the version of the numbers, whoever shares them") {
  const LeakGuard guard;
  for (const Update& update : kUpdates) {
    CAPTURE(update.name);
    Tensor x = numbers({5.0, 6.0});
    const Tensor alias = x.detach();
    CHECK(x.version() == 0);
    update.call(x);
    CHECK(x.version() == 1);
    CHECK(alias.version() == 1);
    CHECK(same_bits(alias, x));
  }
}

TEST_CASE("a leaf that requires a gradient changes under NoGrad only") {
  const LeakGuard guard;
  for (const Update& update : kUpdates) {
    CAPTURE(update.name);
    Tensor w = leaf({5.0, 6.0}).named("w");
    const std::string message = refusal(update.call, w);
    CHECK_MESSAGE(message.rfind("[" + update.name + "] 'w' requires a gradient", 0) == 0, message);
    CHECK(contains(message, "NoGrad"));
    CHECK(w.version() == 0);
    CHECK_NUMBERS(w, {5.0, 6.0});
    {
      const NoGrad no_grad;
      const EnableGrad recording;
      CHECK(refusal(update.call, w) == message);
    }
    const NoGrad no_grad;
    update.call(w);
    CHECK(w.version() == 1);
    CHECK(w.requires_grad());
    CHECK(w.is_leaf());
  }
}

TEST_CASE("a computed tensor never changes in place") {
  const LeakGuard guard;
  const NoGrad* off = nullptr;
  for (const bool no_grad : {false, true}) {
    for (const Update& update : kUpdates) {
      CAPTURE(update.name);
      const Tensor w = leaf({5.0, 6.0});
      const Tensor y = (w * 2).named("y");
      const Tensor flat = reshape(w, {2, 1});
      if (no_grad) off = new NoGrad;
      const std::string message = refusal(update.call, y);
      const std::string view = refusal(update.call, flat);
      delete std::exchange(off, nullptr);
      CHECK_MESSAGE(message.rfind("[" + update.name + "] only a leaf may change in place", 0) == 0,
                    message);
      CHECK(contains(message, "'y' was computed by op 'mul'"));
      CHECK(contains(view, "op 'reshape'"));
      CHECK_NUMBERS(y, {10.0, 12.0});
    }
  }
}

TEST_CASE("refused sources leave numbers and version alone") {
  const LeakGuard guard;
  Tensor x = numbers({1.0, 2.0});
  for (const Tensor& bad : {numbers({1.0, 2.0, 3.0}), numbers(1), numbers({{1.0, 2.0}})}) {
    CHECK_THROWS_SAYING(ShapeError, "sub_", "this is (2,)", x.sub_(bad));
    CHECK_THROWS_SAYING(ShapeError, "add_", "this is (2,)", x.add_(bad));
    CHECK_THROWS_SAYING(ShapeError, "copy_", "this is (2,)", x.copy_(bad));
  }
  for (const Tensor& bad : {numbers({1.0, 2.0}, DType::float32), tensor({1, 2})}) {
    CHECK_THROWS_SAYING(DtypeError, "sub_", "this is float64", x.sub_(bad));
    CHECK_THROWS_SAYING(DtypeError, "add_", "this is float64", x.add_(bad));
    CHECK_THROWS_SAYING(DtypeError, "copy_", "this is float64", x.copy_(bad));
  }
  CHECK_THROWS_SAYING(GraphError, "sub_", "undefined", x.sub_(Tensor()));
  CHECK_THROWS_SAYING(GraphError, "copy_", "undefined", x.copy_(Tensor()));
  CHECK(x.version() == 0);
  CHECK_NUMBERS(x, {1.0, 2.0});
}

TEST_CASE("integers and booleans are copied and filled with what they can hold") {
  const LeakGuard guard;
  Tensor ids = tensor({1, 2});
  CHECK_NUMBERS(ids.copy_(tensor({5, 6})), {5, 6});
  CHECK_NUMBERS(ids.fill_(-3), {-3, -3});
  CHECK_THROWS_SAYING(DtypeError, "sub_", "int64", ids.sub_(tensor({1, 1})));
  CHECK_THROWS_SAYING(DtypeError, "fill_", "2.5", ids.fill_(2.5));
  CHECK_THROWS_AS(ids.fill_(std::numeric_limits<double>::quiet_NaN()), Error);
  CHECK_THROWS_AS(ids.fill_(std::numeric_limits<double>::infinity()), Error);
  CHECK_THROWS_AS(ids.fill_(1e30), Error);
  CHECK_NUMBERS(ids, {-3, -3});
  Tensor flags = tensor({false, false});
  CHECK(flags.fill_(1).data<bool>()[1]);
  Tensor x = numbers({1.0});
  CHECK(std::isnan(x.fill_(std::numeric_limits<double>::quiet_NaN()).item()));
}

TEST_CASE("updates of many numbers do not depend on the number of threads") {
  const LeakGuard guard;
  Rng rng(3);
  const Tensor start = randn(rng, {200001});
  const Tensor step = randn(rng, {200001});
  const auto updated = [&](int threads) {
    const ThreadCount count(threads);
    Tensor x = start.clone();
    return x.sub_(step, 0.1).add_(step, 0.3);
  };
  CHECK(same_bits(updated(1), updated(2)));
}

TEST_CASE("updates of nothing are fine") {
  const LeakGuard guard;
  Tensor x = zeros({0, 3});
  x.sub_(zeros({0, 3})).copy_(zeros({0, 3})).fill_(1);
  CHECK(x.numel() == 0);
  CHECK(x.version() == 3);
}
