// A step updates the elements of all parameters in one parallel pass: nothing else may show it.
#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <vector>

#include "softtape/ops/compare.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/optim/sgd.hpp"
#include "support/compare.hpp"
#include "support/threads.hpp"

using namespace softtape;

// Each chunk of the update has its part of every parameter.
TEST_CASE("optimisers: parameters updated together change as each alone") {
  std::vector<std::int64_t> sizes{1, 0, 8191, 5, 8193, 0, 0, 40000, 1024, 1025};
  sizes.insert(sizes.end(), 60, 1000);
  Rng rng(2);
  std::vector<Tensor> together, alone;
  for (const std::int64_t n : sizes) {
    together.push_back(randn(rng, {n}, {.requires_grad = true}));
    alone.push_back(together.back().detach().clone().requires_grad_());
  }
  Adam adam(together);
  SGD sgd(together, {.momentum = 0.9, .nesterov = true});
  std::vector<std::unique_ptr<Optimizer>> own;
  for (const Tensor& p : alone) {
    own.push_back(std::make_unique<Adam>(ParameterList{p}));
    own.push_back(
        std::make_unique<SGD>(ParameterList{p}, SgdOptions{.momentum = 0.9, .nesterov = true}));
  }
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const Tensor g = randn(rng, together[i].shape());
      together[i].set_grad(g);
      alone[i].set_grad(g);
    }
    adam.step();
    sgd.step();
    for (const auto& optimizer : own) optimizer->step();
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CAPTURE(sizes[i]);
    CHECK(test_support::same_bits(together[i], alone[i]));
  }
  // A bad number is found wherever it lies.
  Tensor bad = zeros({40000});
  bad.mutable_data<float>()[39999] = std::numeric_limits<float>::quiet_NaN();
  const Tensor before = together[0].detach().clone();
  together[7].set_grad(bad);
  CHECK_THROWS_SAYING(ValueError, "Adam", "that of 7 is not", adam.step());
  CHECK(test_support::same_bits(together[0], before));
}

TEST_CASE("optimisers: parameters and gradients that share numbers are updated in order [thread]") {
  const test_support::ThreadCount count(4);
  for (const std::int64_t n : {1000, 5000}) {
    int wrong = 0;
    for (int round = 0; round < 200; ++round) {
      const Tensor p = full({n}, 1.0, {.requires_grad = true});
      std::vector<Tensor> all{p};
      for (int i = 0; i < 7; ++i) all.push_back(p.detach().requires_grad_());
      all.push_back(full({60000}, 1.0, {.requires_grad = true}));
      for (Tensor& tied : all) tied.set_grad(ones(tied.shape()));
      // Its gradient is another parameter, as it was before the step.
      all.push_back(full({n}, 1.0, {.requires_grad = true}));
      all.back().set_grad(p.detach());
      SGD(all, {.lr = 0.125}).step();
      wrong += !equal(p, zeros({n})) || !equal(all.back(), full({n}, 0.875));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("optimisers: the same bits at one and two threads [thread]") {
  const auto run = [](int threads) {
    const test_support::ThreadCount count(threads);
    Rng rng(1);
    Tensor p = randn(rng, {300, 301}, {.requires_grad = true});
    AdamW adam({p});
    SGD sgd({p}, {.momentum = 0.9});
    for (int i = 0; i < 3; ++i) {
      p.set_grad(randn(rng, {300, 301}));
      adam.step();
      sgd.step();
    }
    return p;
  };
  CHECK(test_support::same_bits(run(1), run(2)));
}
