// What the programs written by hand share: matrices, the causal softmax and Adam.
//
// Buffers are made once and reused, softmax visits only the visible part of a row, and a batch is
// cut into one part per thread, Eigen itself staying on one: its own threads slow small products.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>

#include "workloads.hpp"

namespace bench {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::RowVectorXf;

inline Matrix uniform_matrix(unsigned seed, Index rows, Index columns, float scale) {
  return Eigen::Map<const Matrix>(uniform(seed, rows * columns, scale).data(), rows, columns);
}

inline void append(std::vector<float>& to, const Matrix& x) {
  to.insert(to.end(), x.data(), x.data() + x.size());
}

/// Scores, of which row i sees the first i + 1, become weights.
inline void causal_softmax(Matrix& scores, float scale) {
  for (Index i = 0; i < scores.rows(); ++i) {
    auto row = scores.row(i).head(i + 1).array();
    row = ((row - row.maxCoeff()) * scale).exp();
    row *= 1 / row.sum();
    scores.row(i).tail(scores.cols() - i - 1).setZero();
  }
}

/// Gradients of weights become gradients of the scores before scaling.
inline void causal_softmax_backward(const Matrix& weights, Matrix& slopes, float scale) {
  for (Index i = 0; i < weights.rows(); ++i) {
    const auto p = weights.row(i).head(i + 1);
    auto row = slopes.row(i).head(i + 1);
    const float mean = p.dot(row);
    row.array() = p.array() * (row.array() - mean) * scale;
    slopes.row(i).tail(slopes.cols() - i - 1).setZero();
  }
}

/// Logits become gradients of the summed loss times `factor`; returns that sum, not scaled.
inline double cross_entropy_backward(Matrix& logits, const std::int64_t* labels, float factor) {
  double loss = 0;
  for (Index i = 0; i < logits.rows(); ++i) {
    auto row = logits.row(i).array();
    const float top = row.maxCoeff();
    const float at_label = logits(i, labels[i]) - top;
    row = (row - top).exp();
    const float sum = row.sum();
    loss += static_cast<double>(std::log(sum) - at_label);
    row *= factor / sum;
    logits(i, labels[i]) -= factor;
  }
  return loss;
}

/// Adam over all parameters as one array; `decay` is AdamW's.
class HandAdam {
 public:
  HandAdam(std::size_t count, double decay)
      : m_(count), v_(count), keep_(static_cast<float>(1 - kAdamRate * decay)) {}

  void step(float* __restrict p, const float* __restrict g) {
    ++t_;
    constexpr auto kB1 = static_cast<float>(kBeta1);
    constexpr auto kB2 = static_cast<float>(kBeta2);
    constexpr auto kEps = static_cast<float>(kAdamEps);
    const auto rate = static_cast<float>(kAdamRate / (1 - std::pow(kBeta1, t_)));
    const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t_)));
    float* __restrict m = m_.data();
    float* __restrict v = v_.data();
    for (std::size_t i = 0; i < m_.size(); ++i) {
      m[i] = kB1 * m[i] + (1 - kB1) * g[i];
      v[i] = kB2 * v[i] + (1 - kB2) * (g[i] * g[i]);
      p[i] = keep_ * p[i] - rate * m[i] / (std::sqrt(v[i]) * root + kEps);
    }
  }

 private:
  std::vector<float> m_, v_;
  float keep_;
  int t_ = 0;
};

/// Runs part.run(p) for every part, each on a thread of its own, and adds up their gradients.
template <class Part>
void run_parts(std::vector<Part>& parts, const float* p, std::vector<float>& gradient) {
  const int count = static_cast<int>(parts.size());
#pragma omp parallel for num_threads(count) schedule(static, 1)
  for (int i = 0; i < count; ++i) parts[static_cast<std::size_t>(i)].run(p);
  for (const Part& part : parts) {
    if (&part == &parts.front()) {
      gradient = part.gradient;
    } else {
      std::transform(gradient.begin(), gradient.end(), part.gradient.begin(), gradient.begin(),
                     std::plus<>());
    }
  }
}

std::unique_ptr<Workload> hand_language_model(const Sizes& sizes, int threads);
std::unique_ptr<Workload> hand_tiled_attention(const Sizes& sizes, int threads);

}  // namespace bench
