// Independent models on several threads, and tensors that end their life on another thread.
#include "support/threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using namespace test_support;

namespace {

// Trains a small model of its own and returns its weights.
std::vector<float> train(std::uint64_t seed) {
  Rng rng(seed);
  Tensor w = randn(rng, {24, 32}, {.requires_grad = true});
  Tensor v = randn(rng, {32, 10}, {.requires_grad = true});
  const Tensor x = randn(rng, {64, 24});
  const Tensor y = randint(rng, 0, 10, {64});
  for (int step = 0; step < 10; ++step) {
    const Tensor h = softmax(matmul(x, w));
    const Tensor loss = cross_entropy(matmul(h, v), y);
    w.zero_grad();
    v.zero_grad();
    loss.backward();
    const NoGrad no_grad;
    w.sub_(w.grad());
    v.sub_(v.grad());
  }
  return w.to_vector<float>();
}

}  // namespace

TEST_CASE("independent models train side by side, each as if alone [thread]") {
  const LeakGuard guard;
  const ThreadCount count(2);
  std::vector<std::vector<float>> alone;
  for (std::uint64_t seed = 0; seed < 4; ++seed) alone.push_back(train(seed));
  std::vector<std::vector<float>> together(4);
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] { together[seed] = train(seed); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(together == alone);
}

TEST_CASE("a graph may be built on one thread and differentiated on another [thread]") {
  const LeakGuard guard;
  Tensor x;
  Tensor loss;
  std::thread([&] {
    x = leaf({1.0, 2.0});
    loss = sum(exp(x) * x);
  }).join();
  std::thread([&] { loss.backward(); }).join();
  CHECK_NUMBERS(x.grad(), exp(x.detach()) * (x.detach() + 1), 1e-15);
}

TEST_CASE("tensors and graphs may be released on another thread [thread]") {
  const LeakGuard guard;
  for (int round = 0; round < 20; ++round) {
    Tensor x = leaf({1.0, 2.0, 3.0});
    std::vector<Tensor> graphs;
    for (int i = 0; i < 50; ++i) graphs.push_back(tanh(square(x) * i));
    std::thread([&, mine = std::move(graphs), root = std::move(x)]() mutable {
      mine.clear();
      root = Tensor();
    }).join();
  }
}

TEST_CASE("a thread's tensors outlive it [thread]") {
  const LeakGuard guard;
  std::vector<Tensor> results(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&results, t] {
      const Tensor x = full({1000}, static_cast<double>(t), {.requires_grad = true});
      results[t] = grad(sum(square(x)), x)[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < results.size(); ++t) {
    CHECK(results[t].data<float>()[999] == 2 * static_cast<float>(t));
  }
}

TEST_CASE("thread_local tensors end with their thread [thread]") {
  std::thread([] {
    // Released by the thread's own destructors, before or after those of the pool.
    thread_local Tensor kept;
    kept = full({100}, 1, {.requires_grad = true});
    sum(kept * 2).backward();
  }).join();
  CHECK(sum(ones({10})).item() == 10);
}
