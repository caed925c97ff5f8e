// What shares numbers, and that a pass never changes numbers that somebody else can see.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

const void* memory(const Tensor& x) { return x.data<double>().data(); }

// Its rule hands out a tensor that somebody else holds.
Tensor held_by_somebody;
const OpInfo kHandsOut{"hands_out", [](Vjp& r) { r.set(0, held_by_somebody); }};
Tensor hands_out(const Tensor& x) {
  Tensor y = empty_like(x);
  y.copy_(x.detach());
  return record(kHandsOut, std::move(y), {x});
}

// Its rule hands out one of the saved inputs.
const OpInfo kHandsOutInput{"hands_out_input", [](Vjp& r) { r.set(0, r.x(1)); }, saves_input(1)};
Tensor hands_out_input(const Tensor& x, const Tensor& saved) {
  Tensor y = empty_like(x);
  y.copy_(x.detach());
  return record(kHandsOutInput, std::move(y), {x, saved});
}

}  // namespace

TEST_CASE("reshape and detach share numbers, permute and slice copy") {
  const LeakGuard guard;
  const Tensor x = leaf({{1.0, 2.0}, {3.0, 4.0}});
  CHECK(memory(reshape(x, {4})) == memory(x));
  CHECK(memory(flatten(x)) == memory(x));
  CHECK(memory(unsqueeze(x, 0)) == memory(x));
  CHECK(memory(x.detach()) == memory(x));
  CHECK(memory(transpose(x)) != memory(x));
  CHECK(memory(slice(x, 0, 0, 1)) != memory(x));
  CHECK(memory(x.clone()) != memory(x));
}

TEST_CASE("accumulation never shows through a view of a gradient") {
  const LeakGuard guard;
  Tensor x = leaf({{1.0, 2.0}, {3.0, 4.0}});
  Tensor flat = reshape(x, {4});
  Tensor seen;  // shares storage with the gradient that goes on to x
  flat.register_hook([&](const Tensor& g) {
    seen = reshape(g, {2, 2}).detach();
    return Tensor();
  });
  const Tensor y = sum(square(flat)) + sum(x * 100);
  y.backward();
  CHECK_NUMBERS(seen, {{2.0, 4.0}, {6.0, 8.0}});
  CHECK_NUMBERS(x.grad(), {{102.0, 104.0}, {106.0, 108.0}});
  sum(x).backward();
  CHECK_NUMBERS(seen, {{2.0, 4.0}, {6.0, 8.0}});
}

TEST_CASE("a gradient that is a view of another one is accumulated apart") {
  const LeakGuard guard;
  // Both inputs of add get gy; through the reshapes their gradients share one storage.
  Tensor a = leaf({1.0, 2.0, 3.0, 4.0});
  Tensor b = leaf({1.0, 2.0, 3.0, 4.0});
  const Tensor both = reshape(a, {2, 2}) + reshape(b, {2, 2});
  const Tensor y = sum(both * numbers({{1.0, 2.0}, {3.0, 4.0}})) + sum(a * 10);
  y.backward();
  CHECK_NUMBERS(a.grad(), {11.0, 12.0, 13.0, 14.0});
  CHECK_NUMBERS(b.grad(), {1.0, 2.0, 3.0, 4.0});
  CHECK(memory(a.grad()) != memory(b.grad()));
}

TEST_CASE("two leaves never share a gradient") {
  const LeakGuard guard;
  const auto check = [](Tensor a, Tensor b, const Tensor& y, const Tensor& ga, const Tensor& gb) {
    y.backward();
    CHECK_NUMBERS(a.grad(), ga);
    CHECK_NUMBERS(b.grad(), gb);
    CHECK(memory(a.grad()) != memory(b.grad()));
    a.grad().mutable_data<double>()[0] = -7;
    CHECK_NUMBERS(b.grad(), gb);
  };
  const auto pair = [] { return std::pair(leaf({1.0, 2.0}), leaf({3.0, 4.0})); };
  const Tensor one = numbers({1.0, 1.0});
  const auto [a, b] = pair();
  check(a, b, sum(a + b), one, one);
  const auto [c, d] = pair();
  check(c, d, sum(reshape(c, {2, 1}) + reshape(d, {2, 1})), one, one);
  const auto [e, f] = pair();
  check(e, f, sum(e.clone() - f), one, numbers({-1.0, -1.0}));
  const auto [g, h] = pair();
  check(g, h, sum(where(numbers({1.0, 0.0}) > 0, g, h)), numbers({1.0, 0.0}), numbers({0.0, 1.0}));
}

TEST_CASE("a leaf and a retained computed tensor never share a gradient") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  Tensor h = reshape(w, {1, 2});
  h.retain_grad();
  sum(h * 3).backward();
  CHECK_NUMBERS(w.grad(), {3.0, 3.0});
  h.grad().mutable_data<double>()[0] = 50;
  CHECK_NUMBERS(w.grad(), {3.0, 3.0});
}

TEST_CASE("the caller's upstream gradient stays the caller's") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const Tensor mine = numbers({1.0, 10.0});
  (w + w).backward({.gradient = mine});
  w.clone().backward({.gradient = mine});
  CHECK_NUMBERS(w.grad(), {3.0, 30.0});
  CHECK_NUMBERS(mine, {1.0, 10.0});
  CHECK(mine.version() == 0);
  // A leaf itself: the gradient is copied, not adopted.
  const Tensor v = leaf({1.0, 2.0});
  v.backward({.gradient = mine});
  v.grad().mutable_data<double>()[0] = -1;
  CHECK_NUMBERS(mine, {1.0, 10.0});
}

TEST_CASE("a gradient read from a leaf keeps its numbers in later passes") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  sum(w * 2).backward();
  const Tensor first = w.grad();
  const Tensor view = reshape(first, {2, 1});
  sum(w * 3).backward();
  CHECK_NUMBERS(w.grad(), {5.0, 5.0});
  CHECK_NUMBERS(first, {2.0, 2.0});
  CHECK_NUMBERS(view, {{2.0}, {2.0}});
  const Tensor given = numbers({1.0, 1.0});
  w.set_grad(given);
  sum(w).backward();
  CHECK_NUMBERS(given, {1.0, 1.0});
  CHECK_NUMBERS(w.grad(), {2.0, 2.0});
}

// The rule of mul works in place where it may. A pass that records itself never does.
TEST_CASE("products in place: the same bits as apart, and nothing that is held changes") {
  const LeakGuard guard;
  Rng rng(3);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const TensorOptions options{.dtype = dtype, .requires_grad = true};
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 40'000}}) {
      Tensor x = randn(rng, shape, options);
      Tensor factor = randn(rng, shape, options);
      Tensor number = randn(rng, {}, options);
      const Tensor upstream = randn(rng, shape, {.dtype = dtype});
      const std::vector<double> upstream_before = upstream.to_vector();
      Tensor inner = x * factor;
      inner.retain_grad();
      std::vector<Tensor> seen;
      Tensor middle = inner * inner * number;
      middle.register_hook([&](const Tensor& gradient) {
        seen.push_back(gradient);
        return Tensor();
      });
      const Tensor y = middle * factor * number;
      const std::vector<Tensor> leaves{x, factor, number};
      const auto apart = grad(
          {y}, leaves, {.grad_outputs = {upstream}, .retain_graph = true, .create_graph = true});
      y.backward({.gradient = upstream, .retain_graph = true});
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        CHECK(leaves[i].grad().to_vector() == apart[i].to_vector());
      }
      CHECK(upstream.to_vector() == upstream_before);
      REQUIRE(seen.size() == 2);
      CHECK(seen[0].to_vector() == seen[1].to_vector());
      const Tensor expected = grad({middle}, {inner}, {.grad_outputs = {seen[1]}})[0];
      CHECK(inner.grad().to_vector() == expected.to_vector());
    }
  }
}

// A sum hands its upstream gradient on to its first input, whose rule may then work in its memory.
TEST_CASE("sums hand gradients on: what is retained or shared keeps its numbers") {
  const LeakGuard guard;
  for (const bool anomaly : {false, true}) {
    Tensor a = tensor({1.0, 2.0}, {.requires_grad = true});
    Tensor b = tensor({3.0}, {.requires_grad = true});
    std::optional<AnomalyGuard> watch;
    if (anomaly) watch.emplace();
    Tensor h = a * 2 + b * 3;
    h.retain_grad();
    Tensor both = h + h;
    both.retain_grad();
    sum(both * 5).backward();
    CHECK_NUMBERS(both.grad(), {5.0, 5.0});
    CHECK_NUMBERS(h.grad(), {10.0, 10.0});
    CHECK_NUMBERS(a.grad(), {20.0, 20.0});
    CHECK_NUMBERS(b.grad(), {60.0});
  }
}

TEST_CASE("hooks that keep gradients keep their numbers") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  std::vector<Tensor> kept;
  const auto keep = [&](const Tensor& g) {
    kept.push_back(g);
    return Tensor();
  };
  w.register_hook(keep);
  Tensor h = w * 1;
  h.register_hook(keep);
  const Tensor y = sum(h + h * 2) + sum(w);
  y.backward({.retain_graph = true});
  y.backward();
  REQUIRE(kept.size() == 4);
  CHECK_NUMBERS(kept[0], {3.0, 3.0});
  CHECK_NUMBERS(kept[1], {4.0, 4.0});
  CHECK_NUMBERS(kept[2], {3.0, 3.0});
  CHECK_NUMBERS(kept[3], {4.0, 4.0});
  CHECK_NUMBERS(w.grad(), {8.0, 8.0});
}

TEST_CASE("a rule may hand out tensors that others hold") {
  const LeakGuard guard;
  held_by_somebody = numbers({5.0, 6.0});
  Tensor w = leaf({1.0, 2.0});
  const Tensor y = sum(hands_out(w) + hands_out(w) + w);
  y.backward();
  CHECK_NUMBERS(w.grad(), {11.0, 13.0});
  CHECK_NUMBERS(held_by_somebody, {5.0, 6.0});
  held_by_somebody = Tensor();

  // The saved input is held by nobody once the op is used up, and is not changed before that.
  Tensor v = leaf({1.0, 2.0});
  const Tensor inner = v * 3;
  const Tensor z = sum(hands_out_input(v, inner)) + sum(inner * inner);
  z.backward();
  CHECK_NUMBERS(v.grad(), {3.0 + 18.0, 6.0 + 36.0});
  CHECK_NUMBERS(inner, {3.0, 6.0});
}

TEST_CASE("results of grad are not changed by later passes") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const Tensor h = w * 2;
  const Tensor y = sum(h * h) + sum(h);
  const auto g = grad(y, {h, w}, {.retain_graph = true});
  const auto copy = g[0].clone();
  y.backward();
  CHECK(same_bits(g[0], copy));
  CHECK_NUMBERS(g[1], {10.0, 18.0});
}

TEST_CASE("a parameter changed between forward and backward is named, with its versions") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0}).named("encoder.weight");
  const Tensor x = leaf({3.0, 4.0});
  const Tensor y = sum(w * x);
  {
    const NoGrad no_grad;
    w.sub_(numbers({0.1, 0.1})).fill_(0);
  }
  CHECK_THROWS_SAYING(GraphError, "mul",
                      "'encoder.weight' was changed in place after the forward pass: version 2, "
                      "saved at 0",
                      (y.backward(), 0));
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a change through any alias of saved numbers is noticed") {
  const LeakGuard guard;
  const auto check = [](auto change, auto f) {
    Tensor w = leaf({1.0, 2.0});
    const Tensor y = sum(f(w));
    change(w);
    CHECK_THROWS_AS(y.backward(), GraphError);
    CHECK_FALSE(w.grad().defined());
  };
  const auto through_detach = [](Tensor& w) { w.detach().fill_(3); };
  const auto through_view = [](Tensor& w) { reshape(w.detach(), {2, 1}).fill_(3); };
  const auto direct = [](Tensor& w) {
    const NoGrad no_grad;
    w.mutable_data<double>()[0] = 3;
  };
  for (int i = 0; i < 3; ++i) {
    const auto change = [&](Tensor& w) {
      i == 0 ? through_detach(w) : i == 1 ? through_view(w) : direct(w);
    };
    check(change, [](const Tensor& w) { return square(w); });
    check(change, [](const Tensor& w) { return square(reshape(w, {1, 2})); });
    check(change, [](const Tensor& w) { return matmul(w, leaf({{1.0}, {2.0}})); });
  }
}

TEST_CASE("a change through an alias of a saved output is noticed") {
  const LeakGuard guard;
  const Tensor w = leaf({1.0, 2.0});
  const Tensor p = softmax(w);
  const Tensor y = sum(p * numbers({1.0, 5.0}));
  p.detach().fill_(0.5);
  CHECK_THROWS_SAYING(GraphError, "softmax", "output was changed in place", (y.backward(), 0));
}

TEST_CASE("changes that no rule would see are free") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  Tensor ids = tensor({1, 0});
  const Tensor y = sum(w + 1) + sum(w * 3);  // neither keeps w
  const Tensor z = sum(take_rows(w, ids));   // keeps the ids
  {
    const NoGrad no_grad;
    w.fill_(100);
  }
  y.backward();
  CHECK_NUMBERS(w.grad(), {4.0, 4.0});
  ids.fill_(0);
  CHECK_THROWS_AS(z.backward(), GraphError);
}

TEST_CASE("an update after the pass is what training does") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  for (int step = 0; step < 3; ++step) {
    w.zero_grad();
    sum(square(w)).backward();
    const NoGrad no_grad;
    w.sub_(w.grad(), 0.25);
  }
  CHECK_NUMBERS(w, {0.125, 0.25});
}
