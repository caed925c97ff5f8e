// The handle: what a tensor tells, what copies share, and what an undefined one refuses.
#include "softtape/graph/tensor.hpp"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/mask.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

TEST_CASE("an undefined tensor says only that it is undefined") {
  const LeakGuard guard;
  Tensor x;
  CHECK_FALSE(x.defined());
  CHECK(x.is_same(Tensor()));
  const Tensor y = numbers(1);
  CHECK_THROWS_SAYING(GraphError, "shape", "undefined", x.shape());
  CHECK_THROWS_SAYING(GraphError, "shape", "undefined", x.rank());
  CHECK_THROWS_SAYING(GraphError, "shape", "undefined", x.numel());
  CHECK_THROWS_SAYING(GraphError, "dtype", "undefined", x.dtype());
  CHECK_THROWS_SAYING(GraphError, "data", "undefined", x.data<float>());
  CHECK_THROWS_SAYING(GraphError, "mutable_data", "undefined", x.mutable_data<float>());
  CHECK_THROWS_SAYING(GraphError, "item", "undefined", x.item());
  CHECK_THROWS_SAYING(GraphError, "requires_grad", "undefined", x.requires_grad());
  CHECK_THROWS_SAYING(GraphError, "requires_grad_", "undefined", x.requires_grad_());
  CHECK_THROWS_SAYING(GraphError, "is_leaf", "undefined", x.is_leaf());
  CHECK_THROWS_SAYING(GraphError, "grad", "undefined", x.grad());
  CHECK_THROWS_SAYING(GraphError, "set_grad", "undefined", (x.set_grad(y), 0));
  CHECK_THROWS_SAYING(GraphError, "set_grad", "undefined", (x.zero_grad(), 0));
  CHECK_THROWS_SAYING(GraphError, "retain_grad", "undefined", x.retain_grad());
  CHECK_THROWS_SAYING(GraphError, "backward", "undefined", (x.backward(), 0));
  CHECK_THROWS_SAYING(GraphError, "register_hook", "undefined",
                      x.register_hook([](const Tensor& g) { return g; }));
  CHECK_THROWS_SAYING(GraphError, "remove_hook", "undefined", (x.remove_hook(0), 0));
  CHECK_THROWS_SAYING(GraphError, "detach", "undefined", x.detach());
  CHECK_THROWS_SAYING(GraphError, "clone", "undefined", x.clone());
  CHECK_THROWS_SAYING(GraphError, "name", "undefined", x.name());
  CHECK_THROWS_SAYING(GraphError, "named", "undefined", x.named("x"));
  CHECK_THROWS_SAYING(GraphError, "sub_", "undefined", x.sub_(y));
  CHECK_THROWS_SAYING(GraphError, "add_", "undefined", x.add_(y));
  CHECK_THROWS_SAYING(GraphError, "copy_", "undefined", x.copy_(y));
  CHECK_THROWS_SAYING(GraphError, "fill_", "undefined", x.fill_(0));
  CHECK_THROWS_SAYING(GraphError, "version", "undefined", x.version());
  CHECK_THROWS_SAYING(GraphError, "add", "undefined", x + y);
  CHECK_THROWS_SAYING(GraphError, "exp", "undefined", exp(x));
}

TEST_CASE("copies share numbers, and the last one frees them") {
  const LeakGuard guard;
  Tensor a = numbers({1.0, 2.0});
  Tensor b = a;
  CHECK(b.is_same(a));
  b.fill_(7);
  CHECK_NUMBERS(a, {7.0, 7.0});
  const Tensor c = std::move(b);
  CHECK_FALSE(b.defined());  // NOLINT(bugprone-use-after-move): that is the question
  a = Tensor();
  CHECK_NUMBERS(c, {7.0, 7.0});
  Tensor d = c;
  Tensor& same = d;
  d = same;
  CHECK(d.is_same(c));
  d = std::move(same);
  CHECK(d.is_same(c));
}

TEST_CASE("data knows its element type") {
  const LeakGuard guard;
  Tensor x = tensor({1.0f, 2.0f});
  CHECK(x.dtype() == DType::float32);
  CHECK(x.data<float>().size() == 2);
  CHECK_THROWS_SAYING(DtypeError, "data", "holds float32, asked for float64", x.data<double>());
  CHECK_THROWS_SAYING(DtypeError, "data", "asked for int64", x.mutable_data<std::int64_t>());
  CHECK(x.version() == 0);
  CHECK(tensor({true, false}).data<bool>()[0]);
  CHECK(x.to_vector<int>() == std::vector<int>{1, 2});
  CHECK(zeros({0, 3}).data<float>().empty());
}

TEST_CASE("item needs exactly one element, of any shape and type") {
  const LeakGuard guard;
  CHECK(scalar(2.5).item() == 2.5);
  CHECK(numbers({{{3.0}}}).item() == 3);
  CHECK(scalar(7).item() == 7);
  CHECK(scalar(true).item() == 1);
  CHECK_THROWS_SAYING(ShapeError, "item", "(2,)", numbers({1.0, 2.0}).item());
  CHECK_THROWS_SAYING(ShapeError, "item", "(0,)", zeros({0}).item());
}

TEST_CASE("names stay with the tensor and appear in errors") {
  const LeakGuard guard;
  Tensor w = leaf({1.0, 2.0});
  CHECK(w.name().empty());
  CHECK(w.named("weights").is_same(w));
  CHECK(Tensor(w).name() == "weights");
  CHECK((w * 2).named("doubled").name() == "doubled");
  CHECK(w.detach().name().empty());
  CHECK_THROWS_SAYING(GraphError, "fill_", "'weights'", w.fill_(0));
  CHECK_THROWS_SAYING(GraphError, "backward", "(2,)", (w.backward(), 0));
}

TEST_CASE("only float leaves ask for gradients") {
  const LeakGuard guard;
  Tensor x = numbers({1.0});
  CHECK(x.is_leaf());
  CHECK_FALSE(x.requires_grad());
  CHECK(x.requires_grad_().is_same(x));
  const Tensor y = x * 2;
  CHECK_FALSE(y.is_leaf());
  CHECK(y.requires_grad());
  CHECK_THROWS_SAYING(GraphError, "requires_grad_", "op 'mul'", Tensor(y).requires_grad_());
  CHECK_THROWS_SAYING(GraphError, "requires_grad_", "leaf", Tensor(y).requires_grad_(false));
  CHECK_FALSE(x.requires_grad_(false).requires_grad());
  CHECK_FALSE((x * 2).requires_grad());
  CHECK_THROWS_SAYING(DtypeError, "requires_grad_", "int64", tensor({1}).requires_grad_());
  CHECK_THROWS_SAYING(DtypeError, "requires_grad_", "boolean", tensor({true}).requires_grad_());
  CHECK_FALSE(tensor({1}).requires_grad_(false).requires_grad());
}

TEST_CASE("detach shares numbers outside the graph, clone copies inside it") {
  const LeakGuard guard;
  Tensor x = leaf({1.0, 2.0});
  const Tensor constant = x.detach();
  CHECK_FALSE(constant.requires_grad());
  CHECK(constant.data<double>().data() == x.data<double>().data());
  const Tensor copy = x.clone();
  CHECK(copy.requires_grad());
  CHECK(copy.data<double>().data() != x.data<double>().data());
  {
    const NoGrad no_grad;
    x.fill_(5);
    CHECK_FALSE(x.clone().requires_grad());
  }
  CHECK_NUMBERS(constant, {5.0, 5.0});
  CHECK_NUMBERS(copy, {1.0, 2.0});
  copy.backward({.gradient = numbers({3.0, 4.0})});
  CHECK_NUMBERS(x.grad(), {3.0, 4.0});
  CHECK(same_bits(tensor({true, false}).clone(), tensor({true, false})));
}

TEST_CASE("integers and booleans never join the graph") {
  const LeakGuard guard;
  const Tensor x = leaf({1.0, -2.0});
  CHECK_FALSE((x > 0).requires_grad());
  CHECK_FALSE(to(x, DType::int64).requires_grad());
  CHECK((x > 0).is_leaf());
}

TEST_CASE("CPP-004 public types live in standard containers") {
  const LeakGuard guard;
  std::vector<Tensor> list(3, leaf({1.0, 2.0}));
  list.resize(100, numbers(0));
  std::map<std::string, Tensor> by_name{{"w", list[0]}, {"b", list[99]}};
  auto shared = std::make_shared<Tensor>(list[1] * list[2]);
  list.clear();
  list.shrink_to_fit();
  grad(*shared, by_name["w"], {.grad_outputs = {numbers({1.0, 1.0})}});
  std::map<int, Shape> shapes{{1, {2, 3}}};
  std::vector<Rng> generators(5, Rng(1));
  CHECK(generators[4].next_uint64() == generators[0].next_uint64());
  std::vector<Mask> masks(4, Mask::causal());
  auto options = std::make_unique<GradOptions>(GradOptions{.grad_outputs = {by_name["b"]}});
  auto mask = std::make_shared<Mask>(masks[1] & Mask::keep(tensor({{true}})));
  CHECK_FALSE(mask->empty());
  std::map<int, Operand> operands;
  operands.emplace(0, Operand(by_name["w"]));
  CHECK(operands.at(0).is_tensor());
  CHECK_NUMBERS(*shared, {1.0, 4.0});
}
