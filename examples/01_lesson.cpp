// 01: the lesson. Its demo with NumPy's own random numbers, the two facts it asks to verify, and
// its three exercises. Read next: 02, what a backward pass walks through.
//
// Prints:
//
//     Output shape: (5, 4)
//     Attention weights (row = query, col = key):
//     [[1.    0.    0.    0.    0.   ]
//      [0.515 0.485 0.    0.    0.   ]
//      [0.348 0.343 0.309 0.    0.   ]
//      [0.242 0.248 0.261 0.249 0.   ]
//      [0.188 0.21  0.205 0.211 0.186]]
//     Each row sums to: [1. 1. 1. 1. 1.]
//     What the mask shows:
//     # . . . .
//     # # . . .
//     # # # . .
//     # # # # .
//     # # # # #
//
//
//     Exercise 1: scores [[0.7071 0.    ]], weights [[0.6698 0.3302]], output [[0.6698 0.3302]]
//
//     Exercise 2: raw scores (8, 0), dk = 64
//       scale 1      weights 0.999665 and 0.000335, the loser's slope 0.000335
//       scale 0.125  weights 0.731059 and 0.268941, the loser's slope 0.196612
//       Scaling does not change who wins; it changes whether the loser is heard.
//
//     Exercise 3: rows sum to 1: true, upper triangle exactly 0: true; output shape (6, 8)
#include <fmt/core.h>

#include <cstdlib>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

// Rows that sum to 1, and exact zeros where a future token would be seen.
bool rows_sum_to_one(const Tensor& weights) {
  return allclose(sum(weights, -1), ones({weights.dim(0)}));
}
bool future_is_zero(const Tensor& weights) { return equal(triu(weights, 1), zeros_like(weights)); }

bool demo() {
  // default_rng(0) in NumPy: the same five streams of numbers, bit for bit.
  Rng rng(0);
  const Tensor x = normal(rng, 0, 1, {5, 8});
  const Tensor wq = normal(rng, 0, 0.1, {8, 4});
  const Tensor wk = normal(rng, 0, 0.1, {8, 4});
  const Tensor wv = normal(rng, 0, 0.1, {8, 4});
  const Attention a = scaled_dot_product_attention(matmul(x, wq), matmul(x, wk), matmul(x, wv),
                                                   {.mask = Mask::causal()});
  fmt::print("Output shape: {}\n", a.output.shape());
  fmt::print("Attention weights (row = query, col = key):\n{:.3}\n", a.weights);
  fmt::print("Each row sums to: {:.4}\n", sum(a.weights, 1));
  fmt::print("What the mask shows:\n{}\n", Mask::causal().to_string({5, 5}));
  return rows_sum_to_one(a.weights) && future_is_zero(a.weights);
}

void exercise_1() {
  const Tensor q = tensor({{1.0, 0.0}});
  const Tensor k = tensor({{1.0, 0.0}, {0.0, 1.0}});
  const Attention a = scaled_dot_product_attention(q, k, k);  // values as the keys
  fmt::print("\nExercise 1: scores {:.4}, weights {:.4}, output {:.4}\n", a.scores, a.weights,
             a.output);
}

void exercise_2() {
  fmt::print("\nExercise 2: raw scores (8, 0), dk = 64\n");
  for (const double scale : {1.0, 0.125}) {
    const Tensor s = mul(tensor({8.0, 0.0}), scale).detach().requires_grad_();
    const Tensor p = softmax(s);
    // How the loser's weight answers to its own score: p (1 - p).
    const double slope = grad(select(p, 0, 1), s)[0].to_vector()[1];
    fmt::print("  scale {:<5}  weights {:.6f} and {:.6f}, the loser's slope {:.6f}\n", scale,
               p.to_vector()[0], p.to_vector()[1], slope);
  }
  fmt::print("  Scaling does not change who wins; it changes whether the loser is heard.\n");
}

bool exercise_3() {
  Rng rng(0);
  const Tensor q = normal(rng, 0, 1, {6, 8});
  const Tensor k = normal(rng, 0, 1, {6, 8});
  const Tensor v = normal(rng, 0, 1, {6, 8});
  const Attention a = scaled_dot_product_attention(q, k, v, {.mask = Mask::causal()});
  const bool holds = rows_sum_to_one(a.weights) && future_is_zero(a.weights);
  fmt::print("\nExercise 3: rows sum to 1: {}, upper triangle exactly 0: {}; output shape {}\n",
             rows_sum_to_one(a.weights), future_is_zero(a.weights), a.output.shape());
  return holds;
}

}  // namespace

int main() {
  const DefaultDtype as_numpy(DType::float64);
  const bool first = demo();
  exercise_1();
  exercise_2();
  return first && exercise_3() ? EXIT_SUCCESS : EXIT_FAILURE;
}
