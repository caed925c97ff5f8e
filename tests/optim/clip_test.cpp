// Clipping: norms, limits, gradients that are not finite.
#include "softtape/optim/clip.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "softtape/ops/create.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"
#include "support/threads.hpp"

using namespace softtape;
using test_support::kInf;
using test_support::kNaN;
using test_support::leaf;
using test_support::numbers;

namespace {

struct Two {
  Tensor a = leaf({0});
  Tensor b = leaf({0});
  Two(double ga, double gb) {
    a.set_grad(numbers({ga}));
    b.set_grad(numbers({gb}));
  }
  ParameterList list() const { return {a, b}; }
};

}  // namespace

TEST_CASE("clip_grad_norm_: one factor for all, the norm before is returned") {
  const test_support::LeakGuard leaks;
  const Two two(3, 4);
  const Tensor held = two.a.grad();
  CHECK(clip_grad_norm_(two.list(), 1) == 5);
  CHECK_NUMBERS(two.a.grad(), {0.6}, 1e-15);
  CHECK_NUMBERS(two.b.grad(), {0.8}, 1e-15);
  CHECK_NUMBERS(held, {3});  // who held the gradient keeps it
  CHECK(clip_grad_norm_(two.list(), 2) == doctest::Approx(1));
  CHECK_NUMBERS(two.a.grad(), {0.6}, 1e-15);
  CHECK(clip_grad_norm_(two.list(), kInf) == doctest::Approx(1));
  CHECK(clip_grad_norm_(two.list(), 0) == doctest::Approx(1));
  CHECK_NUMBERS(two.b.grad(), zeros({1}));
}

TEST_CASE("clip_grad_norm_: what has no gradient does not count") {
  Tensor a = leaf({1, 2}), b = leaf({1});
  CHECK(clip_grad_norm_({a, b}, 1) == 0);
  a.set_grad(numbers({0, 2}));
  CHECK(clip_grad_norm_({a, b}, 1) == 2);
  CHECK_NUMBERS(a.grad(), {0, 1});
  CHECK_FALSE(b.grad().defined());
  CHECK(clip_grad_norm_(State{}, 1) == 0);
}

TEST_CASE("clip_grad_norm_: squares outside the range of double") {
  const Two huge(3e200, 4e200), tiny(3e-200, 4e-200), zero(0, 0);
  CHECK(clip_grad_norm_(huge.list(), 5e100) == doctest::Approx(5e200).epsilon(1e-14));
  CHECK_NUMBERS(huge.a.grad(), {3e100}, 1e-14);
  CHECK(clip_grad_norm_(tiny.list(), 1) == doctest::Approx(5e-200).epsilon(1e-14));
  CHECK_NUMBERS(tiny.a.grad(), {3e-200});
  CHECK(clip_grad_norm_(zero.list(), 0) == 0);
}

TEST_CASE("clip_grad_norm_: float32 is summed in double") {
  Tensor p = zeros({3000000}, {.requires_grad = true});
  p.set_grad(full({3000000}, 0.1));
  const double want = static_cast<double>(0.1f) * std::sqrt(3e6);
  CHECK(clip_grad_norm_({p}, kInf) == doctest::Approx(want).epsilon(1e-12));
}

TEST_CASE("clipping: a gradient that is not finite is reported, left alone, and refused") {
  for (const double bad : {kNaN, kInf}) {
    Two two(bad, 4);
    const double norm = clip_grad_norm_(two.list(), 1);
    CHECK((std::isnan(bad) ? std::isnan(norm) : norm == kInf));
    const double most = clip_grad_value_(two.list(), 1);
    CHECK((std::isnan(bad) ? std::isnan(most) : most == kInf));
    CHECK_NUMBERS(two.a.grad(), {bad});
    CHECK_NUMBERS(two.b.grad(), {4});
    SGD optimizer(two.list());
    CHECK_THROWS_SAYING(ValueError, "SGD", "finite", optimizer.step());
    CHECK_NUMBERS(two.b, zeros({1}));
  }
}

TEST_CASE("clip_grad_value_: every entry on its own") {
  Tensor p = leaf({1, 2, 3, 4});
  p.set_grad(numbers({-3, 0.5, 2, -0.1}));
  CHECK(clip_grad_value_({p}, 1) == 3);
  CHECK_NUMBERS(p.grad(), {-1, 0.5, 1, -0.1});
  CHECK(clip_grad_value_({p}, 1) == 1);
  CHECK(clip_grad_value_({p}, 0) == 1);
  CHECK_NUMBERS(p.grad(), {0, 0, 0, 0});
}

TEST_CASE("clipping: limits that are negative or NaN are refused") {
  const Two two(3, 4);
  for (const double bad : {-1.0, kNaN}) {
    CHECK_THROWS_SAYING(ValueError, "clip_grad_norm_", "max_norm",
                        clip_grad_norm_(two.list(), bad));
    CHECK_THROWS_SAYING(ValueError, "clip_grad_value_", "limit", clip_grad_value_(two.list(), bad));
  }
  CHECK_THROWS_SAYING(GraphError, "clip_grad_norm_", "undefined", clip_grad_norm_({Tensor()}, 1));
  CHECK_NUMBERS(two.a.grad(), {3});
}

TEST_CASE("clip_grad_norm_: the same bits at one and two threads [thread]") {
  Rng rng(1);
  Tensor p = zeros({200000}, {.requires_grad = true});
  p.set_grad(randn(rng, {200000}));
  const auto norm = [&](int threads) {
    const test_support::ThreadCount count(threads);
    return clip_grad_norm_({p}, kInf);
  };
  CHECK(norm(1) == norm(2));
}
