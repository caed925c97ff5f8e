// 04: scaled dot-product attention by hand, in plain loops. Six forward passes, numbered; the
// backward passes walk them in reverse, each undoing one. The engine must say the same.
// Read next: 05, an op of your own.
//
// Prints:
//
//     weights P:
//     [[1.     0.     0.    ]
//      [0.6288 0.3712 0.    ]
//      [0.7958 0.1045 0.0997]]
//     what arrives at the scores, dL/dS:
//     [[ 0.      0.      0.    ]
//      [-0.1156  0.1156  0.    ]
//      [-0.0241  0.0286 -0.0045]]
//     loss 0.741733 by hand, 0.741733 by the engine
//     P, dL/dS, dL/dWq, dL/dWk, dL/dWv agree to 1e-12: true
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

constexpr int n = 3;   // queries and keys
constexpr int d = 4;   // width of a token
constexpr int dk = 2;  // width of queries, keys and values

// Numbers in rows; enough for a lesson.
struct Matrix {
  Matrix(int rows, int columns) : width(columns), x(static_cast<std::size_t>(rows * columns)) {}
  explicit Matrix(const Tensor& t) : width(static_cast<int>(t.dim(1))), x(t.to_vector()) {}
  double& operator()(int i, int j) { return x[static_cast<std::size_t>(i * width + j)]; }
  int width;
  std::vector<double> x;
};

double difference(const Matrix& a, const Tensor& b) {
  double most = 0;
  const std::vector<double> y = b.to_vector();
  for (std::size_t i = 0; i < y.size(); ++i) most = std::max(most, std::abs(a.x[i] - y[i]));
  return most;
}

}  // namespace

int main() {
  const DefaultDtype dtype(DType::float64);
  Rng rng(0);
  const Tensor tx = randn(rng, {n, d});
  const Tensor twq = randn(rng, {d, dk}).requires_grad_();
  const Tensor twk = randn(rng, {d, dk}).requires_grad_();
  const Tensor twv = randn(rng, {d, dk}).requires_grad_();
  Matrix X(tx), Wq(twq), Wk(twk), Wv(twv);
  const double c = 1 / std::sqrt(static_cast<double>(dk));

  // 1. Projections. 2. Scores, scaled. 3. The mask: only j <= i is visible from here on.
  Matrix Q(n, dk), K(n, dk), V(n, dk), S(n, n), P(n, n), O(n, dk);
  for (int i = 0; i < n; ++i)
    for (int a = 0; a < dk; ++a)
      for (int e = 0; e < d; ++e) {
        Q(i, a) += X(i, e) * Wq(e, a), K(i, a) += X(i, e) * Wk(e, a), V(i, a) += X(i, e) * Wv(e, a);
      }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j)
      for (int a = 0; a < dk; ++a) S(i, j) += c * Q(i, a) * K(j, a);
  // 4. Softmax over the visible scores of a row. 5. Weighted sum of values. 6. Loss: sum of O^2.
  double loss = 0;
  for (int i = 0; i < n; ++i) {
    double total = 0;
    for (int j = 0; j <= i; ++j) total += P(i, j) = std::exp(S(i, j));
    for (int j = 0; j <= i; ++j) P(i, j) /= total;
    for (int j = 0; j <= i; ++j)
      for (int a = 0; a < dk; ++a) O(i, a) += P(i, j) * V(j, a);
    for (int a = 0; a < dk; ++a) loss += O(i, a) * O(i, a);
  }

  Matrix gO(n, dk), gP(n, n), gV(n, dk), gS(n, n), gQ(n, dk), gK(n, dk);
  Matrix gWq(d, dk), gWk(d, dk), gWv(d, dk);
  for (int i = 0; i < n; ++i) {
    for (int a = 0; a < dk; ++a) gO(i, a) = 2 * O(i, a);  // 6
    for (int j = 0; j <= i; ++j)
      for (int a = 0; a < dk; ++a)
        gP(i, j) += gO(i, a) * V(j, a), gV(j, a) += P(i, j) * gO(i, a);  // 5
    double mean = 0;  // 4: gS = P (gP - sum P gP); 3: hidden scores get nothing
    for (int j = 0; j <= i; ++j) mean += P(i, j) * gP(i, j);
    for (int j = 0; j <= i; ++j) gS(i, j) = P(i, j) * (gP(i, j) - mean);
    for (int j = 0; j <= i; ++j)  // 2
      for (int a = 0; a < dk; ++a)
        gQ(i, a) += c * gS(i, j) * K(j, a), gK(j, a) += c * gS(i, j) * Q(i, a);
  }
  for (int i = 0; i < n; ++i)  // 1
    for (int e = 0; e < d; ++e)
      for (int a = 0; a < dk; ++a) {
        gWq(e, a) += X(i, e) * gQ(i, a), gWk(e, a) += X(i, e) * gK(i, a);
        gWv(e, a) += X(i, e) * gV(i, a);
      }

  const Attention engine = scaled_dot_product_attention(matmul(tx, twq), matmul(tx, twk),
                                                        matmul(tx, twv), {.mask = Mask::causal()});
  const Tensor engine_loss = sum(square(engine.output));
  const auto g = grad(engine_loss, {engine.weights, engine.scores, twq, twk, twv});
  fmt::print("weights P:\n{:.4}\nwhat arrives at the scores, dL/dS:\n{:.4}\n", engine.weights,
             g[1]);
  fmt::print("loss {:.6f} by hand, {:.6f} by the engine\n", loss, engine_loss.item());
  const double worst = std::max({std::abs(loss - engine_loss.item()), difference(P, engine.weights),
                                 difference(gS, g[1]), difference(gWq, g[2]), difference(gWk, g[3]),
                                 difference(gWv, g[4])});
  fmt::print("P, dL/dS, dL/dWq, dL/dWk, dL/dWv agree to 1e-12: {}\n", worst < 1e-12);
  return worst < 1e-12 ? EXIT_SUCCESS : EXIT_FAILURE;
}
