// Layers one by one: the handed cases, shapes, and what they refuse.
#include <doctest/doctest.h>

#include <cmath>

#include "softtape/graph/grad.hpp"
#include "softtape/nn/dropout.hpp"
#include "softtape/nn/embedding.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/nn/mlp.hpp"
#include "softtape/nn/norm.hpp"
#include "softtape/nn/sequential.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::kNaN;
using test_support::leaf;
using test_support::numbers;

namespace {

void set(Tensor& parameter, const NestedNumbers& values) {
  const NoGrad guard;
  parameter.copy_(tensor(values, {.dtype = parameter.dtype()}));
}

}  // namespace

TEST_CASE("layers: a layer takes the default dtype") {
  Rng rng(1);
  CHECK(Linear(2, 3, rng).weight.dtype() == DType::float32);
  const DefaultDtype guard(DType::float64);
  CHECK(Linear(2, 3, rng).bias.dtype() == DType::float64);
  CHECK(LayerNorm(3).weight.dtype() == DType::float64);
}

TEST_CASE("Linear: y = x W^T + b, with PyTorch's bounds at the start") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  Linear layer(4, 3, rng);
  CHECK(layer.weight.shape() == Shape{3, 4});
  CHECK(max(abs(layer.weight)).item() <= 0.5);
  CHECK(max(abs(layer.bias)).item() <= 0.5);
  CHECK(max(abs(layer.weight)).item() > 0.3);
  CHECK(layer(ones({2, 5, 4})).shape() == Shape{2, 5, 3});
  CHECK(layer(ones({4})).shape() == Shape{3});
  CHECK_FALSE(Linear(4, 3, {.bias = false}, rng).bias.defined());
  CHECK_THROWS_SAYING(ValueError, "Linear", "in must be at least 1: got 0", Linear(0, 3, rng));
  CHECK_THROWS_SAYING(ValueError, "Linear", "out must be at least 1: got -1", Linear(2, -1, rng));
  CHECK_THROWS_SAYING(ShapeError, "Linear", "4 entries: x is (2, 3)", layer(ones({2, 3})));
  CHECK_THROWS_SAYING(ShapeError, "Linear", "x is ()", layer(ones({})));
  CHECK_THROWS_SAYING(DtypeError, "Linear", "int64", layer(tensor({1, 2, 3, 4})));
  CHECK_THROWS_SAYING(GraphError, "Linear", "undefined", layer(Tensor()));
  CHECK_THROWS_AS(layer(ones({2, 4}, {.dtype = DType::float64})), DtypeError);
}

TEST_CASE("Embedding: gradients of repeated ids add up, absent rows get exact zeros") {
  const test_support::LeakGuard leaks;
  const DefaultDtype guard(DType::float64);
  Rng rng(1);
  Embedding layer(3, 2, rng);
  const Tensor ids = tensor({2, 0, 2, 2});
  const Tensor y = layer(ids);
  CHECK(y.shape() == Shape{4, 2});
  y.backward({.gradient = numbers({{1, 1}, {2, 2}, {4, 4}, {8, 8}})});
  CHECK_NUMBERS(layer.weight.grad(), {{2, 2}, {0, 0}, {13, 13}});
  CHECK(layer(tensor({{1, 2, 0}, {0, 0, 1}})).shape() == Shape{2, 3, 2});
  CHECK_THROWS_AS(layer(tensor({0, 3})), ValueError);
  CHECK_THROWS_AS(layer(tensor({-1})), ValueError);
  CHECK_THROWS_AS(layer(ones({2})), DtypeError);
  CHECK_THROWS_SAYING(ValueError, "Embedding", "vocab must be at least 1", Embedding(0, 2, rng));
  CHECK_THROWS_SAYING(ValueError, "Embedding", "d must be at least 1", Embedding(3, 0, rng));
  CHECK_THROWS_AS(Embedding(3, 2, {.std = -1}, rng), ValueError);
  CHECK_NUMBERS(Embedding(2, 2, {.std = 0}, rng).weight, {{0, 0}, {0, 0}});
}

TEST_CASE("LayerNorm: a constant row gives exactly the bias") {
  const test_support::LeakGuard leaks;
  const DefaultDtype guard(DType::float64);
  LayerNorm layer(4);
  set(layer.weight, {1, 2, 1, 1});
  set(layer.bias, {0.1, 0.2, 0.3, 0.4});
  const Tensor x = leaf({{5, 5, 5, 5}});
  const Tensor y = layer(x);
  CHECK_NUMBERS(y, {{0.1, 0.2, 0.3, 0.4}});
  y.backward({.gradient = numbers({{1, 0, 0, 0}})});
  CHECK_NUMBERS(x.grad(),
                {{237.17082451262843, -79.05694150420948, -79.05694150420948, -79.05694150420948}},
                1e-10, 1e-12);
  CHECK_NUMBERS(layer.weight.grad(), {0, 0, 0, 0});
  CHECK_NUMBERS(layer.bias.grad(), {1, 0, 0, 0});
}

TEST_CASE("LayerNorm: one feature") {
  const DefaultDtype guard(DType::float64);
  LayerNorm layer(1);
  set(layer.weight, {2});
  set(layer.bias, {0.5});
  const Tensor x = leaf({{7}, {-3}});
  const Tensor y = layer(x);
  CHECK_NUMBERS(y, {{0.5}, {0.5}});
  y.backward({.gradient = numbers({{1}, {4}})});
  CHECK_NUMBERS(x.grad(), {{0}, {0}});
  CHECK_NUMBERS(layer.weight.grad(), zeros({1}));
  CHECK_NUMBERS(layer.bias.grad(), {5});
}

TEST_CASE("norm layers: eps must be positive, sizes must fit") {
  for (const double eps : {0.0, -1e-5, kNaN}) {
    CHECK_THROWS_AS(LayerNorm(4, {.eps = eps}), ValueError);
    CHECK_THROWS_AS(RMSNorm(4, {.eps = eps}), ValueError);
  }
  CHECK_THROWS_AS(LayerNorm(4, {.eps = 1e-300}), ValueError);  // 0 in float32
  CHECK_THROWS_SAYING(ValueError, "LayerNorm", "d must be at least 1", LayerNorm(0));
  CHECK_THROWS_SAYING(ValueError, "RMSNorm", "d must be at least 1", RMSNorm(0));
  CHECK_THROWS_SAYING(ShapeError, "LayerNorm", "4 entries: x is (3,)", LayerNorm(4)(ones({3})));
  CHECK_THROWS_SAYING(ShapeError, "RMSNorm", "4 entries: x is (3,)", RMSNorm(4)(ones({3})));
}

TEST_CASE("RMSNorm: x / rms(x) times the weight") {
  const DefaultDtype guard(DType::float64);
  RMSNorm layer(2, {.eps = 1e-12});
  set(layer.weight, {1, 3});
  const double rms = std::sqrt(12.5);
  CHECK_NUMBERS(layer(numbers({3, 4})), {3 / rms, 12 / rms}, 1e-11);
}

TEST_CASE("Dropout: the identity at p = 0 and in eval, zeros at p = 1") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  const Tensor x = leaf({0.1, -3.5, 1e300});
  const Tensor gy = numbers({1, 2, 3});
  Dropout none(0, rng), most(0.9, rng), all(1, rng);
  most.eval();
  for (const Dropout* layer : {&none, &most}) {
    const Tensor y = (*layer)(x);
    CHECK(test_support::same_bits(y, x));
    CHECK(test_support::same_bits(grad(mul(y, 1), x, {.grad_outputs = {gy}}).front(), gy));
  }
  const Tensor y = all(x);
  CHECK_NUMBERS(y, {0, 0, 0});
  CHECK_NUMBERS(grad(y, x, {.grad_outputs = {ones_like(x)}}).front(), {0, 0, 0});
  CHECK(none.state().empty());
  CHECK(most.state().size() == 1);
  for (const double p : {-0.1, 1.5, kNaN}) {
    CHECK_THROWS_SAYING(ValueError, "Dropout", "a probability must lie in [0, 1]", Dropout(p, rng));
  }
}

TEST_CASE("Dropout: its own stream, saved and loaded") {
  Rng rng(1), same(1);
  Dropout layer(0.5, rng);
  CHECK(rng.random() == same.random());  // spawning draws nothing
  const Tensor x = ones({100});
  layer(x);
  const State saved = layer.state();
  const Tensor next = layer(x);
  CHECK_FALSE(equal(layer(x), next));
  layer.load_state(saved);
  CHECK(equal(layer(x), next));
  Dropout other(0.5, rng);
  other.load_state(saved);
  CHECK(equal(other(x), next));
  for (const float value : next.data<float>()) CHECK((value == 0 || value == 2));
}

TEST_CASE("Sequential: layers and functions in order") {
  const test_support::LeakGuard leaks;
  Rng rng(1);
  Sequential net;
  const Tensor x = ones({2, 3});
  CHECK(net(x).is_same(x));
  auto& first = net.emplace<Linear>(3, 4, rng);
  net.add(relu);
  auto& last = net.emplace<Linear>(4, 2, rng);
  CHECK(net.size() == 3);
  CHECK(equal(net(x), last(relu(first(x)))));
  CHECK(net.named_parameters()[2].first == "2.weight");
  CHECK_THROWS_SAYING(ValueError, "Sequential", "null", net.add(std::unique_ptr<Layer>()));
  CHECK_THROWS_SAYING(ValueError, "Sequential", "empty", net.add(Activation()));
  CHECK_THROWS_SAYING(GraphError, "Sequential", "undefined", net(Tensor()));
  CHECK(net.size() == 3);
}

TEST_CASE("Mlp: GELU unless told otherwise, dropout while training") {
  Rng rng(1);
  const Tensor x = ones({2, 3});
  Mlp plain(3, 5, rng);
  CHECK(equal(plain(x), plain.down(gelu(plain.up(x)))));
  Mlp other(3, 5, {.activation = relu, .bias = false}, rng);
  CHECK(equal(other(x), other.down(relu(other.up(x)))));
  CHECK_FALSE(other.up.bias.defined());
  Mlp dropped(3, 5, {.dropout = 1}, rng);
  CHECK(equal(dropped(x), dropped.down(zeros({2, 5}))));
  dropped.eval();
  CHECK(equal(dropped(x), dropped.down(gelu(dropped.up(x)))));
  CHECK_THROWS_AS(Mlp(3, 0, rng), ValueError);
  CHECK_THROWS_AS(Mlp(3, 5, {.dropout = 2}, rng), ValueError);
}
