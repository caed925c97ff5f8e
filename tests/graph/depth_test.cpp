// Depth and sharing: a pass and a destruction are loops, and no node is visited twice.
#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>

#include "softtape/graph/grad.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

constexpr int kLong = 1000000;

// Runs f on a thread with the stack of a usual main thread, whatever this process was given.
void with_usual_stack(std::function<void()> f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, std::size_t{8} << 20) == 0);
  pthread_t thread;
  const auto call = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, call, &f) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

Tensor chain(const Tensor& x, int length) {
  Tensor y = x;
  for (int i = 0; i < length; ++i) y = y + 0.5;
  return y;
}

// x + x, counting how often its rule runs.
int twice_rule_calls = 0;
const OpInfo kTwice{"twice", [](Vjp& r) {
                      ++twice_rule_calls;
                      r.set(0, r.gy());
                      r.set(1, r.gy());
                    }};
Tensor twice(const Tensor& x) {
  Tensor y = empty_like(x);
  const auto in = x.data<double>();
  const auto out = y.mutable_data<double>();
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] + in[i];
  return record(kTwice, std::move(y), {x, x});
}

}  // namespace

TEST_CASE("AGR-017 a chain of a million nodes differentiates and goes away") {
  with_usual_stack([] {
    const LeakGuard guard;
    const Tensor x = leaf(1.0);
    {
      const Tensor y = chain(x, kLong);
      CHECK(y.item() == 500001);
      CHECK(graph_stats().live_nodes >= kLong);
      y.backward({.retain_graph = true});
      CHECK(x.grad().item() == 1);
      y.backward();
      CHECK(x.grad().item() == 2);
    }
    Tensor(x).zero_grad();
  });
}

TEST_CASE("a chain of a million nodes goes away without a pass") {
  with_usual_stack([] {
    const LeakGuard guard;
    const Tensor x = leaf({1.0, 2.0});
    Tensor y = chain(x, kLong);
    y = exp(y * 0);
    y = Tensor();
  });
}

TEST_CASE("grad finds its way through a million nodes") {
  with_usual_stack([] {
    const LeakGuard guard;
    const Tensor x = leaf(1.0);
    const Tensor beside = leaf(3.0);
    const Tensor middle = chain(x, kLong / 2);
    const Tensor y = chain(middle * beside, kLong / 2);
    const auto g = grad(y, {x, middle, beside}, {.retain_graph = true});
    CHECK(g[0].item() == 3);
    CHECK(g[1].item() == 3);
    CHECK(g[2].item() == middle.item());
    // An input that the long way down does not lead to.
    CHECK(grad(y, beside)[0].item() == middle.item());
  });
}

TEST_CASE("a chain of saved values goes away too") {
  with_usual_stack([] {
    const LeakGuard guard;
    const Tensor x = leaf(0.5);
    Tensor y = x;
    for (int i = 0; i < kLong / 10; ++i) y = square(y) * 2;  // each node keeps its input
    y = Tensor();
    y = x;
    for (int i = 0; i < kLong / 10; ++i) y = tanh(y);  // each node keeps its output
    grad(y, x);
  });
}

TEST_CASE("second derivatives of a long chain") {
  with_usual_stack([] {
    const LeakGuard guard;
    const Tensor x = leaf(2.0);
    const Tensor y = chain(square(x), 100000);
    const Tensor dy = grad(y, x, {.create_graph = true})[0];
    CHECK(dy.item() == 4);
    CHECK(grad(dy, x)[0].item() == 2);
  });
}

TEST_CASE("a wide sum and a comb of many leaves") {
  with_usual_stack([] {
    const LeakGuard guard;
    std::vector<Tensor> leaves;
    Tensor y = numbers(0);
    for (int i = 0; i < 100000; ++i) {
      leaves.push_back(leaf(1.0));
      y = y + leaves.back() * i;
    }
    y.backward();
    CHECK(leaves[0].grad().item() == 0);
    CHECK(leaves[99999].grad().item() == 99999);
    const Tensor x = leaf(1.0);
    Tensor wide = numbers(0);
    for (int i = 0; i < 100000; ++i) wide = wide + x;
    CHECK(grad(wide, x)[0].item() == 100000);
  });
}

TEST_CASE("sixty doublings call sixty rules") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, -3.0});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = twice(y);
  const double factor = 0x1p60;
  CHECK_NUMBERS(y, {factor, -3 * factor});
  twice_rule_calls = 0;
  const Tensor root = sum(y);
  CHECK_NUMBERS(grad(root, x, {.retain_graph = true})[0], {factor, factor});
  CHECK(twice_rule_calls == 60);
  twice_rule_calls = 0;
  root.backward();
  CHECK_NUMBERS(x.grad(), {factor, factor});
  CHECK(twice_rule_calls == 60);
}

TEST_CASE("sixty doublings of library ops, to second order") {
  const LeakGuard guard;
  const Tensor x = leaf(1.0);
  Tensor y = square(x);
  for (int i = 0; i < 60; ++i) y = y + y;
  const Tensor dy = grad(y, x, {.create_graph = true})[0];
  CHECK(dy.item() == 0x1p61);
  CHECK(grad(dy, x)[0].item() == 0x1p61);
}
