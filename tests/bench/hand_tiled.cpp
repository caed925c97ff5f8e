// W4 by hand: tiles of 128, hidden tiles skipped, online softmax, the weights computed again in
// backward, Eigen's products, a head per thread at a time. Tokens are a multiple of the tile.
#include <limits>

#include "hand.hpp"

namespace bench {

namespace {

constexpr Index kTile = 128;

class Tiled final : public Workload {
 public:
  Tiled(const Sizes& s, int threads)
      : length_(s.tokens),
        heads_(s.heads),
        width_(s.width),
        threads_(threads),
        scale_(1 / std::sqrt(static_cast<float>(s.width))) {
    unsigned seed = 1;
    for (Matrix* x : {&q_, &k_, &v_, &go_})
      *x = uniform_matrix(seed++, heads_ * length_, width_, 1);
    for (Matrix* x : {&o_, &gq_, &gk_, &gv_}) x->resize(heads_ * length_, width_);
    logsumexp_.resize(heads_ * length_);
  }

  void run() override {
#pragma omp parallel num_threads(threads_)
    {
      Scratch scratch(width_);
#pragma omp for schedule(dynamic)
      for (Index head = 0; head < heads_; ++head) {
        const Index at = head * length_;
        for (Matrix* x : {&gq_, &gk_, &gv_}) x->middleRows(at, length_).setZero();
        for (Index i = 0; i < length_; i += kTile) forward(scratch, at, i);
        for (Index i = 0; i < length_; i += kTile) backward(scratch, at, i);
      }
    }
  }
  std::vector<float> results() const override {
    std::vector<float> all;
    for (const Matrix* x : {&o_, &gq_, &gk_, &gv_}) append(all, *x);
    return all;
  }

 private:
  struct Scratch {
    explicit Scratch(Index width) : output(kTile, width) {}
    Matrix weights{kTile, kTile}, slopes{kTile, kTile}, output;
    Eigen::VectorXf top{kTile}, sum{kTile};
  };

  void forward(Scratch& s, Index head, Index i) {
    s.output.setZero();
    s.top.setConstant(-std::numeric_limits<float>::infinity());
    s.sum.setZero();
    for (Index j = 0; j <= i; j += kTile) {
      s.weights.noalias() =
          q_.middleRows(head + i, kTile) * k_.middleRows(head + j, kTile).transpose();
      for (Index r = 0; r < kTile; ++r) {
        const Index seen = i == j ? r + 1 : kTile;
        auto row = s.weights.row(r).head(seen).array();
        const float higher = std::max(s.top[r], row.maxCoeff() * scale_);
        const float shrink = std::exp(s.top[r] - higher);
        row = (row * scale_ - higher).exp();
        s.sum[r] = s.sum[r] * shrink + row.sum();
        s.top[r] = higher;
        s.output.row(r) *= shrink;
        s.weights.row(r).tail(kTile - seen).setZero();
      }
      s.output.noalias() += s.weights * v_.middleRows(head + j, kTile);
    }
    o_.middleRows(head + i, kTile) = s.output.array().colwise() / s.sum.array();
    logsumexp_.segment(head + i, kTile) = s.top.array() + s.sum.array().log();
  }

  void backward(Scratch& s, Index head, Index i) {
    const auto rows = [&](Matrix& x, Index at) { return x.middleRows(head + at, kTile); };
    s.sum = (rows(o_, i).array() * rows(go_, i).array()).rowwise().sum();
    for (Index j = 0; j <= i; j += kTile) {
      s.weights.noalias() = rows(q_, i) * rows(k_, j).transpose();
      for (Index r = 0; r < kTile; ++r) {
        const Index seen = i == j ? r + 1 : kTile;
        auto row = s.weights.row(r).head(seen).array();
        row = (row * scale_ - logsumexp_[head + i + r]).exp();
        s.weights.row(r).tail(kTile - seen).setZero();
      }
      rows(gv_, j).noalias() += s.weights.transpose() * rows(go_, i);
      s.slopes.noalias() = rows(go_, i) * rows(v_, j).transpose();
      s.slopes.array() = s.weights.array() * (s.slopes.array().colwise() - s.sum.array()) * scale_;
      rows(gq_, i).noalias() += s.slopes * rows(k_, j);
      rows(gk_, j).noalias() += s.slopes.transpose() * rows(q_, i);
    }
  }

  Index length_, heads_, width_;
  [[maybe_unused]] int threads_;  // unused without OpenMP
  float scale_;
  Matrix q_, k_, v_, go_, o_, gq_, gk_, gv_;
  Eigen::VectorXf logsumexp_;
};

}  // namespace

std::unique_ptr<Workload> hand_tiled_attention(const Sizes& sizes, int threads) {
  return std::make_unique<Tiled>(sizes, threads);
}

}  // namespace bench
