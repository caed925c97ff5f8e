// grad(): the functional core. Any outputs, any inputs, nothing stored.
#include "softtape/graph/grad.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "softtape/graph/op.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

// Identity that counts how often its rule runs.
int rule_calls = 0;
const OpInfo kCounted{"counted", [](Vjp& r) {
                        ++rule_calls;
                        r.set(0, r.gy());
                      }};
Tensor counted(const Tensor& x) {
  Tensor y = empty_like(x);
  y.copy_(x.detach());
  return record(kCounted, std::move(y), {x});
}

}  // namespace

TEST_CASE("grad returns gradients of leaves and of computed tensors, and stores nothing") {
  const LeakGuard guard;
  Tensor x = leaf({2.0, 3.0});
  const Tensor h = square(x);
  const Tensor loss = sum(h * x);
  const auto g = grad(loss, {x, h}, {.retain_graph = true});
  CHECK_NUMBERS(g[0], {12.0, 27.0});
  CHECK_NUMBERS(g[1], {2.0, 3.0});
  CHECK_FALSE(g[0].requires_grad());
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(h.grad().defined());
}

TEST_CASE("an output may be an input, and an input may be asked for twice") {
  const LeakGuard guard;
  const Tensor x = leaf(3.0);
  const Tensor y = square(x);
  const auto g = grad(y, {y, x, x}, {.retain_graph = true});
  CHECK(g[0].item() == 1);
  CHECK(g[1].item() == 6);
  CHECK(g[2].item() == 6);
  CHECK(grad(x, x)[0].item() == 1);
  const auto twice = grad({y, y}, x);
  CHECK(twice[0].item() == 12);
}

TEST_CASE("an input below another input gets its whole gradient") {
  const LeakGuard guard;
  const Tensor x = leaf(3.0);
  const Tensor h = x * 2;
  const Tensor y = h * h + h;
  const auto g = grad(y, {h, x});
  CHECK(g[0].item() == 13);
  CHECK(g[1].item() == 26);
}

TEST_CASE("several outputs add up, each with its upstream gradient") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor a = square(x);
  const Tensor b = sum(x);
  const auto g = grad({a, b}, x, {.grad_outputs = {numbers({1.0, 10.0}), numbers(5)}});
  CHECK_NUMBERS(g[0], {7.0, 45.0});
  // An undefined one means 1, for a scalar.
  const auto h = grad({sum(square(x)), sum(x)}, x, {.grad_outputs = {Tensor(), numbers(3)}});
  CHECK_NUMBERS(h[0], {5.0, 7.0});
}

TEST_CASE("grad_outputs must match their outputs") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = x * 2;
  CHECK_THROWS_SAYING(GraphError, "grad", "must be a scalar: got shape (2,)", grad(y, x));
  CHECK_THROWS_SAYING(GraphError, "grad", "must be a scalar",
                      grad({y, sum(y)}, x, {.grad_outputs = {Tensor(), Tensor()}}));
  CHECK_THROWS_SAYING(ShapeError, "grad", "(1, 2) and (2,)",
                      grad(y, x, {.grad_outputs = {numbers({{1.0, 2.0}})}}));
  CHECK_THROWS_SAYING(DtypeError, "grad", "float32 and float64",
                      grad(y, x, {.grad_outputs = {numbers({1.0, 2.0}, DType::float32)}}));
  CHECK_THROWS_SAYING(GraphError, "grad", "2 for 1",
                      grad(y, x, {.grad_outputs = {numbers({1.0, 2.0}), Tensor()}}));
  CHECK_THROWS_SAYING(GraphError, "grad", "at least one output", grad(std::vector<Tensor>{}, x));
  // Nothing was used up by what was refused.
  CHECK_NUMBERS(grad(y, x, {.grad_outputs = {numbers({1.0, 2.0})}})[0], {2.0, 4.0});
}

TEST_CASE("undefined tensors and constants are refused by name") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  Tensor c = numbers(3).named("offset");
  CHECK_THROWS_SAYING(GraphError, "grad", "output 0 is an undefined", grad(Tensor(), x));
  CHECK_THROWS_SAYING(GraphError, "grad", "input 1 is an undefined",
                      grad(square(x), {x, Tensor()}));
  CHECK_THROWS_SAYING(GraphError, "grad", "needs no gradient", grad(square(c), x));
  CHECK_THROWS_SAYING(GraphError, "grad", "'offset'", grad(square(x), {x, c}));
}

TEST_CASE("unused inputs throw unless they are allowed") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  Tensor other = leaf({1.0, 2.0}).named("other");
  const Tensor y = square(x);
  CHECK_THROWS_SAYING(GraphError, "grad", "'other' (2,) was not used",
                      grad(y, {x, other}, {.retain_graph = true}));
  const auto g = grad(y, {other, x}, {.retain_graph = true, .allow_unused = true});
  CHECK_FALSE(g[0].defined());
  CHECK(g[1].item() == 4);
  // Computed from x, but y was not computed from it.
  const Tensor sibling = x * 3;
  CHECK_THROWS_SAYING(GraphError, "grad", "was not used", grad(y, sibling, {.retain_graph = true}));
  CHECK_FALSE(grad(y, sibling, {.retain_graph = true, .allow_unused = true})[0].defined());
  CHECK(grad(y, std::vector<Tensor>{}).empty());
}

TEST_CASE("only nodes between inputs and outputs are visited") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  const Tensor z = leaf(5.0);
  const Tensor below = counted(counted(x));
  const Tensor beside = counted(z);
  const Tensor above = counted(below * beside);
  rule_calls = 0;
  CHECK(grad(above, below, {.retain_graph = true})[0].item() == 5);
  CHECK(rule_calls == 1);
  rule_calls = 0;
  CHECK(grad(above, z, {.retain_graph = true})[0].item() == 2);
  CHECK(rule_calls == 2);
  rule_calls = 0;
  CHECK(grad(above, x)[0].item() == 5);
  CHECK(rule_calls == 3);
}

TEST_CASE("a used-up graph says so, and which option keeps it") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = sum(square(x));
  grad(y, x);
  CHECK_THROWS_SAYING(GraphError, "backward", "retain_graph = true", grad(y, x));
  // Values computed before stay readable.
  CHECK(y.item() == 5);
  // A part that was used up stops what is built on it.
  const Tensor h = square(x);
  grad(sum(h), x);
  CHECK_THROWS_SAYING(GraphError, "backward", "op 'square' was freed", grad(sum(h * 2), x));
}

TEST_CASE("a tensor whose own graph was used up can still be an input") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor h = square(x);
  grad(sum(h), x);
  CHECK_NUMBERS(grad(sum(h * h), h)[0], {2.0, 8.0});
  CHECK_NUMBERS(grad(h, h, {.grad_outputs = {numbers({1.0, 3.0})}})[0], {1.0, 3.0});
  CHECK_THROWS_AS(grad(sum(h * h), {h, x}), GraphError);
}

TEST_CASE("a refused call uses nothing up") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  const Tensor other = leaf(3.0);
  const Tensor y = square(x);
  CHECK_THROWS_SAYING(GraphError, "grad", "was not used", grad(y, {x, other}));
  CHECK_THROWS_AS(grad(y, x, {.grad_outputs = {numbers({1.0})}}), ShapeError);
  const Tensor used = square(x);
  grad(used, x);
  CHECK_THROWS_SAYING(GraphError, "backward", "was freed", grad(y + used, x));
  CHECK(grad(y, x)[0].item() == 4);
}

TEST_CASE("retain_graph keeps the graph for any number of passes") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0});
  const Tensor y = sum(exp(x) * x);
  const Tensor first = grad(y, x, {.retain_graph = true})[0];
  for (int i = 0; i < 3; ++i) CHECK(same_bits(grad(y, x, {.retain_graph = true})[0], first));
  CHECK(same_bits(grad(y, x)[0], first));
  // create_graph keeps it unless told otherwise.
  const Tensor z = sum(x * x * x);
  grad(z, x, {.create_graph = true});
  grad(z, x, {.retain_graph = false, .create_graph = true});
  CHECK_THROWS_AS(grad(z, x), GraphError);
}

TEST_CASE("grad restores the recording mode, also when it throws") {
  const LeakGuard guard;
  const Tensor x = leaf(2.0);
  grad(square(x), x);
  CHECK(grad_enabled());
  const NoGrad no_grad;
  CHECK_THROWS_AS(grad(square(x), x), GraphError);
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("gradients have the dtype of their input through a cast") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, 2.0}, DType::float32);
  const auto g = grad(sum(square(to(x, DType::float64))), x);
  CHECK(g[0].dtype() == DType::float32);
  CHECK_NUMBERS(g[0], {2.0, 4.0});
}

TEST_CASE("empty and rank 6 tensors have gradients too") {
  const LeakGuard guard;
  const Tensor nothing = zeros({0, 3}, {.dtype = DType::float64, .requires_grad = true});
  CHECK(grad(sum(square(nothing)), nothing)[0].shape() == Shape{0, 3});
  const Tensor deep = ones({1, 2, 1, 2, 1, 2}, {.requires_grad = true});
  const Tensor g = grad(sum(deep * deep), deep)[0];
  CHECK(g.shape() == deep.shape());
  CHECK(sum(g).item() == 16);
}
