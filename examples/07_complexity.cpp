// 07: time and memory against the number of tokens T, forward and backward, causal, dk = dv = 32:
// composed attention keeps the T x T weights for its backward pass, the fused one recomputes them
// tile by tile, linear attention never has them. One thread; times are the best of three.
//
// Prints, with other times:
//
//          T      composed       kept         fused       kept        linear       kept
//        128       0.12 ms    0.10 MB       0.04 ms    0.02 MB       0.10 ms    0.20 MB
//        256       0.59 ms    0.37 MB       0.15 ms    0.04 MB       0.37 ms    0.40 MB
//        512       1.85 ms    1.39 MB       0.54 ms    0.09 MB       1.07 ms    0.81 MB
//       1024      12.18 ms    5.41 MB       1.75 ms    0.18 MB       2.02 ms    1.61 MB
//       2048      78.07 ms   21.30 MB       6.19 ms    0.35 MB       4.24 ms    3.20 MB
//     doubling T multiplies what is kept by 3.9, 2.0 and 2.0
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <vector>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

using Attend = Tensor (*)(const Tensor& q, const Tensor& k, const Tensor& v);

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v) {
  return scaled_dot_product_attention(q, k, v, {.mask = Mask::causal()}).output;
}
Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v) {
  return scaled_dot_product_attention(q, k, v, {.mask = Mask::causal(), .need_weights = false})
      .output;
}
Tensor linear(const Tensor& q, const Tensor& k, const Tensor& v) {
  return linear_attention(q, k, v, {.causal = true}).output;
}

struct Cost {
  double milliseconds = std::numeric_limits<double>::infinity();
  std::int64_t kept = 0;  // bytes that the graph holds between forward and backward
};

Cost cost_of(Attend attend, std::int64_t tokens) {
  Rng rng(0);
  const auto leaf = [&] { return randn(rng, {tokens, 32}).requires_grad_(); };
  const Tensor q = leaf(), k = leaf(), v = leaf();
  Cost cost;
  for (int run = 0; run < 3; ++run) {
    const std::int64_t before = memory_stats().live_bytes;
    const auto start = std::chrono::steady_clock::now();
    const Tensor loss = sum(square(attend(q, k, v)));
    cost.kept = memory_stats().live_bytes - before;
    grad(loss, {q, k, v});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    cost.milliseconds = std::min(cost.milliseconds, took.count());
  }
  return cost;
}

}  // namespace

int main() {
  set_num_threads(1);
  const struct {
    const char* name;
    Attend attend;
  } kinds[] = {{"composed", composed}, {"fused", fused}, {"linear", linear}};
  std::vector<std::int64_t> kept;
  fmt::print("{:>6}", "T");
  for (const auto& kind : kinds) fmt::print("   {:>11} {:>10}", kind.name, "kept");
  fmt::print("\n");
  for (const std::int64_t tokens : {128, 256, 512, 1024, 2048}) {
    fmt::print("{:>6}", tokens);
    for (const auto& kind : kinds) {
      const Cost cost = cost_of(kind.attend, tokens);
      kept.push_back(cost.kept);
      fmt::print("   {:>8.2f} ms {:>7.2f} MB", cost.milliseconds,
                 static_cast<double>(cost.kept) / 1e6);
    }
    fmt::print("\n");
  }
  // From 1024 to 2048 tokens: what is kept grows fourfold, or twofold.
  const std::size_t last = kept.size() - 3;
  const auto growth = [&](std::size_t kind) {
    return static_cast<double>(kept[last + kind]) / static_cast<double>(kept[last - 3 + kind]);
  };
  fmt::print("doubling T multiplies what is kept by {:.1f}, {:.1f} and {:.1f}\n", growth(0),
             growth(1), growth(2));
  return growth(0) > 3 && growth(1) < 2.1 && growth(2) < 2.1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
