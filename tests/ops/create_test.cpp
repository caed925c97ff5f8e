// Factories. Numbers of random tensors and ranges are NumPy's (1.24).
#include <cmath>
#include <limits>
#include <span>

#include "ops/support.hpp"
#include "support/constants.hpp"

using namespace softtape;
using test_support::kDouble;

namespace {

std::vector<double> rounded(std::vector<double> numbers) {
  for (double& x : numbers) x = static_cast<float>(x);
  return numbers;
}

}  // namespace

TEST_CASE("constants have the default dtype unless one is named") {
  CHECK(zeros({2, 3}).dtype() == DType::float32);
  CHECK(zeros({2, 3}).to_vector() == std::vector<double>(6, 0));
  CHECK(ones({}).item() == 1);
  CHECK(full({3}, 2.5).to_vector() == std::vector<double>(3, 2.5));
  CHECK(full({2}, 7).dtype() == DType::float32);
  CHECK(full({2}, -3, {.dtype = DType::int64}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>(2, -3));
  CHECK(ones({2}, {.dtype = DType::boolean}).to_vector<bool>() == std::vector<bool>(2, true));
  CHECK(empty({4, 0}).numel() == 0);
  CHECK(zeros({1, 1, 2, 1, 1, 1}).rank() == 6);
  CHECK(!zeros({2}).requires_grad());
  CHECK(ones({2}, {.requires_grad = true}).requires_grad());
  const DefaultDtype guard(DType::float64);
  CHECK(zeros({2}).dtype() == DType::float64);
  CHECK(tensor({1.0}).dtype() == DType::float64);
}

TEST_CASE("the like forms follow shape and dtype, not the graph") {
  const Tensor x = ones({2, 2}, {.dtype = DType::float64, .requires_grad = true});
  CHECK_SAME(zeros_like(x), zeros({2, 2}, kDouble));
  CHECK_SAME(ones_like(x), x);
  CHECK_SAME(full_like(x, 3), full({2, 2}, 3, kDouble));
  CHECK(empty_like(x).shape() == Shape{2, 2});
  CHECK(empty_like(x).dtype() == DType::float64);
  CHECK(!ones_like(x).requires_grad());
  CHECK(ones_like(x, {.dtype = DType::boolean}).dtype() == DType::boolean);
}

TEST_CASE("eye") {
  CHECK_SAME(eye(2), tensor({{1.0, 0.0}, {0.0, 1.0}}));
  CHECK_SAME(eye(2, 3, {.dtype = DType::int64}), tensor({{1, 0, 0}, {0, 1, 0}}));
  CHECK_SAME(eye(3, 1, {.dtype = DType::boolean}), tensor({{true}, {false}, {false}}));
  CHECK(eye(0).shape() == Shape{0, 0});
  CHECK(eye(3, 0).shape() == Shape{3, 0});
}

TEST_CASE("arange of whole numbers is int64") {
  CHECK_SAME(arange(4), tensor({0, 1, 2, 3}));
  CHECK_SAME(arange(2, 5), tensor({2, 3, 4}));
  CHECK_SAME(arange(5, 0, -2), tensor({5, 3, 1}));
  CHECK_SAME(arange(3, {.dtype = DType::float32}), tensor({0.0, 1.0, 2.0}));
  CHECK(arange(3, 3).shape() == Shape{0});
  CHECK(arange(-1).shape() == Shape{0});
  constexpr std::int64_t top = std::numeric_limits<std::int64_t>::max();
  CHECK_SAME(arange(top - 2, top), tensor({top - 2, top - 1}));
  CHECK_SAME(arange(-top - 1, top, top), tensor({-top - 1, std::int64_t{-1}, top - 1}));
}

TEST_CASE("arange and linspace of fractions are NumPy's to the bit") {
  CHECK_SAME(arange(0.1, 1.0, 0.1, kDouble),
             tensor({0.1, 0.2, 0.30000000000000004, 0.4, 0.5, 0.6, 0.7000000000000001, 0.8, 0.9},
                    kDouble));
  CHECK_SAME(arange(1, 0, -0.3, kDouble),
             tensor({1.0, 0.7, 0.3999999999999999, 0.09999999999999987}, kDouble));
  CHECK_SAME(arange(1.0, 1.3, 0.1, kDouble),
             tensor({1.0, 1.1, 1.2000000000000002, 1.3000000000000003}, kDouble));
  CHECK_SAME(arange(2.5), tensor({0.0, 1.0, 2.0}));
  CHECK(arange(1.0, 0.0).shape() == Shape{0});
  CHECK_SAME(linspace(0, 1, 7, kDouble), tensor({0.0, 0.16666666666666666, 0.3333333333333333, 0.5,
                                                 0.6666666666666666, 0.8333333333333333, 1.0},
                                                kDouble));
  CHECK_SAME(linspace(-3, 3.3, 4, kDouble),
             tensor({-3.0, -0.8999999999999999, 1.2000000000000002, 3.3}, kDouble));
  CHECK_SAME(linspace(5, 1, 3), tensor({5.0, 3.0, 1.0}));
  CHECK_SAME(linspace(2, 9, 1), tensor({2.0}));
  CHECK(linspace(0, 1, 0).shape() == Shape{0});
}

TEST_CASE("nested braces give shape and dtype") {
  CHECK(tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}).shape() == Shape{2, 3});
  CHECK(tensor({{{{{{1.5}}}}}}).shape() == Shape{1, 1, 1, 1, 1, 1});
  CHECK(tensor({{{1, 2}}, {{3, 4}}, {{5, 6}}}).to_vector() ==
        std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(tensor({1, 2}).dtype() == DType::int64);
  CHECK(tensor({1, 2.5}).dtype() == DType::float32);
  CHECK(tensor({1.0f, 2.0f}).dtype() == DType::float32);
  CHECK(tensor({true, false}).dtype() == DType::boolean);
  CHECK_SAME(tensor({true, 2 > 3, true}), tensor(std::vector<bool>{true, false, true}));
  CHECK_SAME(tensor({{true}, {2}}), tensor({{1}, {2}}));
  CHECK(tensor(5.0).shape() == Shape{});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK(tensor({{}, {}}).shape() == Shape{2, 0});
  CHECK(tensor({1, 2}, kDouble).dtype() == DType::float64);
  CHECK(tensor({2.0, 3.0}, {.dtype = DType::int64}).dtype() == DType::int64);
  CHECK(tensor({1.0}, {.requires_grad = true}).requires_grad());
  constexpr std::int64_t odd = (std::int64_t{1} << 53) + 1;  // no double holds it
  CHECK(tensor({odd}).data<std::int64_t>()[0] == odd);
  CHECK(scalar(3).dtype() == DType::int64);
  CHECK(scalar(0.1, kDouble).item() == 0.1);
  CHECK(scalar(true).dtype() == DType::boolean);
}

TEST_CASE("tensors from ranges") {
  const std::vector<double> numbers{1, 2, 3, 4, 5, 6};
  CHECK_SAME(tensor(numbers, {2, 3}), tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}));
  CHECK_SAME(tensor(numbers), tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}));
  CHECK_SAME(tensor(std::span(numbers).subspan(2, 2)), tensor({3.0, 4.0}));
  const float raw[] = {1, 2};
  CHECK_SAME(tensor(raw), tensor({1.0, 2.0}));
  CHECK(tensor(raw, {.dtype = DType::float64}).dtype() == DType::float64);
  CHECK(tensor(std::vector<int>{1, 2}, {2, 1}).dtype() == DType::int64);
  CHECK(tensor(std::vector<int>{1, 0}, {.dtype = DType::boolean}).to_vector<bool>() ==
        std::vector<bool>{true, false});
  CHECK(tensor(numbers, {6}, {.requires_grad = true}).requires_grad());
  CHECK(tensor(std::vector<float>{}).shape() == Shape{0});
}

TEST_CASE("random tensors draw NumPy's float64 stream, and its float32 stream where it is named") {
  const std::vector<double> random{0.625095466604667, 0.8972138009695755, 0.7756856902451935};
  const std::vector<double> random32{0.9449049234390259, 0.6250954270362854, 0.6841799020767212};
  const std::vector<double> gauss{0.0012301533574825742, 0.2987455375084699, -0.2741378553622176};
  const std::vector<double> gauss32{1.5219693183898926, -1.1441057920455933, 1.150161623954773};
  const auto draw = [](auto f) {
    Rng rng(7);
    return f(rng).to_vector();
  };
  CHECK(draw([](Rng& r) { return rand(r, {3}, kDouble); }) == random);
  CHECK(draw([](Rng& r) { return rand(r, {3}); }) == rounded(random));
  CHECK(draw([](Rng& r) { return rand(r, {3}, {.dtype = DType::float32}); }) == random32);
  CHECK(draw([](Rng& r) { return randn(r, {3, 1}, kDouble); }) == gauss);
  CHECK(draw([](Rng& r) { return randn(r, {1, 3}); }) == rounded(gauss));
  CHECK(draw([](Rng& r) { return randn(r, {3}, {.dtype = DType::float32}); }) == gauss32);
  CHECK(draw([](Rng& r) { return normal(r, 2, 0.5, {3}, kDouble); }) ==
        std::vector<double>{2.0006150766787414, 2.149372768754235, 1.8629310723188912});
  CHECK(draw([](Rng& r) { return normal(r, 2, 0.5, {3}); }) ==
        rounded({2.0006150766787414, 2.149372768754235, 1.8629310723188912}));
  CHECK(draw([](Rng& r) { return uniform(r, -1, 3, {3}, kDouble); }) ==
        std::vector<double>{1.5003818664186679, 2.588855203878302, 2.102742760980774});
  CHECK(draw([](Rng& r) {
          return randint(r, -5, 5, {2, 3});
        }) == std::vector<double>{4, 1, 1, 3, 0, 2});
  CHECK(draw([](Rng& r) { return permutation(r, 6); }) == std::vector<double>{5, 2, 0, 4, 1, 3});
  Rng rng(7);
  {
    const DefaultDtype guard(DType::float64);
    CHECK(randn(rng, {3}).to_vector() == gauss);
  }
  CHECK(randint(rng, 0, 2, {3}).dtype() == DType::int64);
  CHECK(randn(rng, {2}, {.requires_grad = true}).requires_grad());
  CHECK(rand(rng, {0, 4}).numel() == 0);
}

TEST_CASE("factories refuse what cannot be") {
  constexpr TensorOptions whole{.dtype = DType::int64, .requires_grad = true};
  constexpr TensorOptions integer{.dtype = DType::int64};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor none;
  Rng rng(1);
  CHECK_REFUSED(ShapeError, "[shape] sizes must not be negative", zeros({-1}));
  CHECK_REFUSED(DtypeError, "[zeros] only float tensors", zeros({1}, whole));
  CHECK_REFUSED(DtypeError, "[ones] only float tensors", ones({1}, whole));
  CHECK_REFUSED(DtypeError, "[full] only float tensors", full({1}, 1, whole));
  CHECK_REFUSED(DtypeError, "[full] a fractional number", full({1}, 0.5, integer));
  CHECK_REFUSED(ValueError, "[full] a number must fit int64", full({1}, 0x1p63, integer));
  CHECK_REFUSED(DtypeError, "[full] a fractional number", full({1}, nan, integer));
  CHECK_REFUSED(DtypeError, "[empty] only float tensors", empty({1}, whole));
  CHECK_REFUSED(GraphError, "[zeros_like]", zeros_like(none));
  CHECK_REFUSED(GraphError, "[ones_like]", ones_like(none));
  CHECK_REFUSED(GraphError, "[full_like]", full_like(none, 1));
  CHECK_REFUSED(GraphError, "[empty_like]", empty_like(none));
  CHECK_REFUSED(DtypeError, "[full_like] a fractional number", full_like(tensor({1}), 0.5));
  CHECK_REFUSED(DtypeError, "[eye] only float tensors", eye(2, whole));
  CHECK_REFUSED(ShapeError, "[shape] sizes must not be negative", eye(-2));
  CHECK_REFUSED(ValueError, "[arange] step must not be 0", arange(1, 2, 0));
  CHECK_REFUSED(ValueError, "[arange] bounds must be finite", arange(0.0, 1.0, 0.0));
  CHECK_REFUSED(ValueError, "[arange] bounds must be finite", arange(0.0, nan));
  CHECK_REFUSED(ValueError, "[arange] too many", arange(0.0, 1e300, 1e-3));
  CHECK_REFUSED(DtypeError, "[arange] fractions need a float dtype", arange(0, 1, 0.5, integer));
  CHECK_REFUSED(ValueError, "[linspace] bounds must be finite", linspace(0, nan, 3));
  CHECK_REFUSED(ValueError, "[linspace] bounds must be finite and count not", linspace(0, 1, -1));
  CHECK_REFUSED(DtypeError, "[linspace] needs a float", linspace(0, 1, 3, integer));
  CHECK_REFUSED(ShapeError, "[tensor] braces of one depth must hold equally many: (2,) beside (1,)",
                tensor({{1, 2}, {3}}));
  CHECK_REFUSED(ShapeError, "[tensor] braces of one depth", tensor({{1, 2}, 3}));
  CHECK_REFUSED(ShapeError, "[shape] at most 6 axes", tensor({{{{{{{1}}}}}}}));
  CHECK_REFUSED(DtypeError, "[tensor] a fractional number", tensor({1.5}, integer));
  CHECK_REFUSED(DtypeError, "[tensor] only float tensors", tensor({1}, {.requires_grad = true}));
  CHECK_REFUSED(ShapeError, "[tensor] the shape must hold all numbers: 3 of them for (2, 2)",
                tensor(std::vector<float>{1, 2, 3}, {2, 2}));
  CHECK_REFUSED(DtypeError, "[tensor] floats need a float dtype",
                tensor(std::vector<float>{1, 2, 3}, integer));
  CHECK_REFUSED(DtypeError, "[tensor] only float tensors",
                tensor(std::vector<int>{1}, {.requires_grad = true}));
  CHECK_REFUSED(DtypeError, "[rand] needs a float", rand(rng, {2}, integer));
  CHECK_REFUSED(DtypeError, "[randn] needs a float", randn(rng, {2}, integer));
  CHECK_REFUSED(ValueError, "[normal]", normal(rng, 0, -1, {2}));
  CHECK_REFUSED(ValueError, "[uniform]", uniform(rng, 1, 0, {2}));
  CHECK_REFUSED(ValueError, "[randint]", randint(rng, 3, 3, {2}));
  CHECK_REFUSED(ValueError, "[permutation]", permutation(rng, -1));
  CHECK(rng.state() == Rng(1).state());
}
