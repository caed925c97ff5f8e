// W3 by hand: all parameters, and all gradients, in one array each.
#include <unsupported/Eigen/SpecialFunctions>
#include <utility>

#include "hand.hpp"

namespace bench {

namespace {

using Weights = Eigen::Map<const Matrix>;
using Gradients = Eigen::Map<Matrix>;
using Bias = Eigen::Map<const Row>;
using BiasGradient = Eigen::Map<Row>;

// Where the parameters stand. A weight is (out, in), as in PyTorch; q, k and v are one product.
struct Layout {
  struct Norm {
    Index weight, bias;
  };
  struct Linear {
    Index weight, bias, out, in;
  };
  struct Block {
    Norm norm1;
    Linear qkv, out;
    Norm norm2;
    Linear up, down;
  };

  explicit Layout(const Sizes& s) {
    table = take(s.classes * s.width);
    positions = take(s.tokens * s.width);
    for (Index i = 0; i < s.layers; ++i) {
      blocks.push_back({norm(s.width), linear(3 * s.width, s.width), linear(s.width, s.width),
                        norm(s.width), linear(4 * s.width, s.width), linear(s.width, 4 * s.width)});
    }
    last = norm(s.width);
  }
  Index take(Index n) { return std::exchange(count, count + n); }
  Norm norm(Index d) {
    const Index weight = take(d);
    norm_weights.push_back(weight);
    return {weight, take(d)};
  }
  Linear linear(Index out, Index in) {
    const Index weight = take(out * in);
    return {weight, take(out), out, in};
  }

  Index count = 0;
  Index table, positions;
  std::vector<Block> blocks;
  Norm last;
  std::vector<Index> norm_weights;
};

struct NormState {
  Matrix normal;
  Eigen::VectorXf inverse;  // 1 / standard deviation of each row
};

struct BlockState {
  Matrix x, h1, qkv, mixed, middle, h2, up, cdf, active;
  NormState norm1, norm2;
  std::vector<Matrix> weights;
};

// A share of the batch, with its activations and its part of the gradient.
class Part {
 public:
  Part(const Sizes& s, const Layout& layout, const std::int64_t* ids, const std::int64_t* targets,
       Index rows)
      : gradient(static_cast<std::size_t>(layout.count)),
        sizes_(s),
        layout_(layout),
        ids_(ids, ids + rows),
        targets_(targets, targets + rows),
        blocks_(static_cast<std::size_t>(s.layers)) {
    for (BlockState& b : blocks_) {
      b.weights.resize(static_cast<std::size_t>(rows / s.tokens * s.heads));
      b.mixed.resize(rows, s.width);
    }
    gqkv_.resize(rows, 3 * s.width);
    x_.resize(rows, s.width);
  }

  void run(const float* p) {
    p_ = p;
    const Index rows = x_.rows();
    const Weights table(p + layout_.table, sizes_.classes, sizes_.width);
    const Weights positions(p + layout_.positions, sizes_.tokens, sizes_.width);
    for (Index i = 0; i < rows; ++i) {
      x_.row(i) = table.row(ids_[static_cast<std::size_t>(i)]) + positions.row(i % sizes_.tokens);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) forward(layout_.blocks[i], blocks_[i]);
    norm(layout_.last, x_, last_, h_);
    logits_.noalias() = h_ * table.transpose();
    const auto all = static_cast<float>(sizes_.batch * sizes_.tokens);
    loss = cross_entropy_backward(logits_, targets_.data(), 1 / all) / static_cast<double>(all);

    std::fill(gradient.begin(), gradient.end(), 0.f);
    float* g = gradient.data();
    Gradients gtable(g + layout_.table, sizes_.classes, sizes_.width);
    Gradients gpositions(g + layout_.positions, sizes_.tokens, sizes_.width);
    gtable.noalias() += logits_.transpose() * h_;
    gh_.noalias() = logits_ * table;
    gx_.setZero(rows, sizes_.width);
    norm_backward(layout_.last, gh_, last_);
    for (std::size_t i = blocks_.size(); i-- > 0;) backward(layout_.blocks[i], blocks_[i]);
    for (Index i = 0; i < rows; ++i) {
      gtable.row(ids_[static_cast<std::size_t>(i)]) += gx_.row(i);
      gpositions.row(i % sizes_.tokens) += gx_.row(i);
    }
  }

  double loss = 0;
  std::vector<float> gradient;

 private:
  // x_ is the residual path; on the way back its gradient is gx_.
  void forward(const Layout::Block& at, BlockState& b) {
    b.x = x_;
    norm(at.norm1, b.x, b.norm1, b.h1);
    linear(at.qkv, b.h1, b.qkv);
    each_head(b, [&](Index row, Index column, Matrix& weights) {
      const auto part = [&](Index i) { return head(b.qkv, row, i * sizes_.width + column); };
      weights.noalias() = part(0) * part(1).transpose();
      causal_softmax(weights, scale());
      head(b.mixed, row, column).noalias() = weights * part(2);
    });
    linear(at.out, b.mixed, b.middle);
    b.middle += b.x;
    norm(at.norm2, b.middle, b.norm2, b.h2);
    linear(at.up, b.h2, b.up);
    b.cdf = 0.5f + 0.5f * (b.up.array() * 0.70710678f).erf();
    b.active = b.up.cwiseProduct(b.cdf);
    linear(at.down, b.active, x_);
    x_ += b.middle;
  }

  void backward(const Layout::Block& at, BlockState& b) {
    linear_backward(at.down, b.active, gx_, gup_);
    gup_.array() *=
        b.cdf.array() + b.up.array() * (-0.5f * b.up.array().square()).exp() * 0.39894228f;
    linear_backward(at.up, b.h2, gup_, gh_);
    norm_backward(at.norm2, gh_, b.norm2);
    linear_backward(at.out, b.mixed, gx_, gmixed_);
    each_head(b, [&](Index row, Index column, const Matrix& weights) {
      const auto part = [&](Index i) { return head(b.qkv, row, i * sizes_.width + column); };
      const auto gpart = [&](Index i) { return head(gqkv_, row, i * sizes_.width + column); };
      const auto goutput = head(gmixed_, row, column);
      gpart(2).noalias() = weights.transpose() * goutput;
      slopes_.noalias() = goutput * part(2).transpose();
      causal_softmax_backward(weights, slopes_, scale());
      gpart(0).noalias() = slopes_ * part(1);
      gpart(1).noalias() = slopes_.transpose() * part(0);
    });
    linear_backward(at.qkv, b.h1, gqkv_, gh_);
    norm_backward(at.norm1, gh_, b.norm1);
  }

  float scale() const { return 1 / std::sqrt(static_cast<float>(sizes_.head)); }

  template <class F>
  void each_head(BlockState& b, F f) {
    std::size_t i = 0;
    for (Index row = 0; row < x_.rows(); row += sizes_.tokens) {
      for (Index h = 0; h < sizes_.heads; ++h) f(row, h * sizes_.head, b.weights[i++]);
    }
  }
  Eigen::Block<Matrix> head(Matrix& x, Index row, Index column) const {
    return x.block(row, column, sizes_.tokens, sizes_.head);
  }

  void linear(const Layout::Linear& at, const Matrix& x, Matrix& y) const {
    y.noalias() = x * Weights(p_ + at.weight, at.out, at.in).transpose();
    y.rowwise() += Bias(p_ + at.bias, at.out);
  }
  void linear_backward(const Layout::Linear& at, const Matrix& x, const Matrix& gy, Matrix& gx) {
    Gradients(gradient.data() + at.weight, at.out, at.in).noalias() += gy.transpose() * x;
    BiasGradient(gradient.data() + at.bias, at.out) += gy.colwise().sum();
    gx.noalias() = gy * Weights(p_ + at.weight, at.out, at.in);
  }

  void norm(const Layout::Norm& at, const Matrix& x, NormState& s, Matrix& y) const {
    const Bias weight(p_ + at.weight, x.cols());
    const Bias bias(p_ + at.bias, x.cols());
    s.normal.resize(x.rows(), x.cols());
    s.inverse.resize(x.rows());
    y.resize(x.rows(), x.cols());
    for (Index i = 0; i < x.rows(); ++i) {
      const auto row = x.row(i).array();
      const float mean = row.mean();
      s.inverse[i] = 1 / std::sqrt((row - mean).square().mean() + static_cast<float>(kNormEps));
      s.normal.row(i) = (row - mean) * s.inverse[i];
      y.row(i) = s.normal.row(i).cwiseProduct(weight) + bias;
    }
  }
  // Adds the gradient of the norm's input to gx_.
  void norm_backward(const Layout::Norm& at, const Matrix& gy, const NormState& s) {
    const Bias weight(p_ + at.weight, gy.cols());
    BiasGradient gweight(gradient.data() + at.weight, gy.cols());
    BiasGradient gbias(gradient.data() + at.bias, gy.cols());
    for (Index i = 0; i < gy.rows(); ++i) {
      const auto normal = s.normal.row(i);
      gweight += gy.row(i).cwiseProduct(normal);
      gbias += gy.row(i);
      row_ = gy.row(i).cwiseProduct(weight);
      const float mean = row_.mean();
      const float along = row_.dot(normal) / static_cast<float>(gy.cols());
      gx_.row(i).array() += (row_.array() - mean - normal.array() * along) * s.inverse[i];
    }
  }

  Sizes sizes_;
  const Layout& layout_;
  std::vector<std::int64_t> ids_, targets_;
  const float* p_ = nullptr;
  std::vector<BlockState> blocks_;
  NormState last_;
  Row row_;
  Matrix x_, h_, logits_, gx_, gh_, gup_, gmixed_, gqkv_, slopes_;
};

class LanguageModel final : public Workload {
 public:
  LanguageModel(const Sizes& s, int threads)
      : layout_(s),
        parameters_(uniform(1, layout_.count, 0.1f)),
        adam_(parameters_.size(), kDecay) {
    for (const Index at : layout_.norm_weights) {
      for (Index i = at; i < at + s.width; ++i) parameters_[static_cast<std::size_t>(i)] += 1;
    }
    const auto ids = labels(100, s.batch * s.tokens, s.classes);
    const auto targets = labels(101, s.batch * s.tokens, s.classes);
    for (Index i = 0; i < threads; ++i) {
      const Index begin = s.batch * i / threads * s.tokens;
      const Index end = s.batch * (i + 1) / threads * s.tokens;
      parts_.emplace_back(s, layout_, ids.data() + begin, targets.data() + begin, end - begin);
    }
  }

  void run() override {
    run_parts(parts_, parameters_.data(), gradient_);
    adam_.step(parameters_.data(), gradient_.data());
  }
  std::vector<float> results() const override {
    double loss = 0;
    for (const Part& part : parts_) loss += part.loss;
    std::vector<float> all{static_cast<float>(loss)};
    all.insert(all.end(), gradient_.begin(), gradient_.end());
    return all;
  }

 private:
  Layout layout_;
  std::vector<float> parameters_, gradient_;
  std::vector<Part> parts_;
  HandAdam adam_;
};

}  // namespace

std::unique_ptr<Workload> hand_language_model(const Sizes& sizes, int threads) {
  return std::make_unique<LanguageModel>(sizes, threads);
}

}  // namespace bench
