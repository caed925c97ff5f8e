// W1, W2, W5 and W6 by hand.
#include "hand.hpp"

namespace bench {

namespace {

// Products of this size go through Eigen's unblocked path.
class Lesson final : public Workload {
 public:
  explicit Lesson(const Sizes& s)
      : n_(s.tokens),
        scale_(1 / std::sqrt(static_cast<float>(s.head))),
        x_(uniform_matrix(100, n_, s.width, 1)),
        wq_(uniform_matrix(1, s.width, s.head, 1)),
        wk_(uniform_matrix(2, s.width, s.head, 1)),
        wv_(uniform_matrix(3, s.width, s.head, 1)) {}

  void run() override {
    q_.noalias() = x_.lazyProduct(wq_);
    k_.noalias() = x_.lazyProduct(wk_);
    v_.noalias() = x_.lazyProduct(wv_);
    weights_.noalias() = q_.lazyProduct(k_.transpose());
    causal_softmax(weights_, scale_);
    output_.noalias() = weights_.lazyProduct(v_);
    loss_ = output_.squaredNorm();

    goutput_ = 2 * output_;
    gv_.noalias() = weights_.transpose().lazyProduct(goutput_);
    slopes_.noalias() = goutput_.lazyProduct(v_.transpose());
    for (Index i = 0; i < n_; ++i) {  // whole rows: shorter ones cost more than they save
      const float mean = weights_.row(i).dot(slopes_.row(i));
      slopes_.row(i).array() = weights_.row(i).array() * (slopes_.row(i).array() - mean) * scale_;
    }
    gq_.noalias() = slopes_.lazyProduct(k_);
    gk_.noalias() = slopes_.transpose().lazyProduct(q_);
    gwq_.noalias() = x_.transpose().lazyProduct(gq_);
    gwk_.noalias() = x_.transpose().lazyProduct(gk_);
    gwv_.noalias() = x_.transpose().lazyProduct(gv_);
  }
  std::vector<float> results() const override {
    std::vector<float> all{loss_};
    for (const Matrix* g : {&gwq_, &gwk_, &gwv_}) append(all, *g);
    return all;
  }

 private:
  Index n_;
  float scale_;
  float loss_ = 0;
  Matrix x_, wq_, wk_, wv_;
  Matrix q_, k_, v_, weights_, output_, goutput_, slopes_, gq_, gk_, gv_, gwq_, gwk_, gwv_;
};

class OneHead final : public Workload {
 public:
  OneHead(const Sizes& s, int threads)
      : sizes_(s), parameters_(static_cast<std::size_t>(count(s))), adam_(parameters_.size(), 0) {
    float* to = parameters_.data();
    unsigned seed = 1;
    for (const auto& [rows, columns] : shapes(s)) {
      const std::vector<float> w = uniform(seed++, rows * columns, 0.125f);
      to = std::copy(w.begin(), w.end(), to);
    }
    const auto x = uniform_matrix(100, s.batch * s.tokens, s.width, 1);
    const auto y = labels(101, s.batch * s.tokens, s.classes);
    for (Index i = 0; i < threads; ++i) {
      const Index begin = s.batch * i / threads * s.tokens;
      const Index rows = s.batch * (i + 1) / threads * s.tokens - begin;
      parts_.emplace_back(s, x.middleRows(begin, rows), y.data() + begin);
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
  static std::vector<std::pair<Index, Index>> shapes(const Sizes& s) {
    return {{s.width, s.head}, {s.width, s.head}, {s.width, s.head}, {s.head, s.classes}};
  }
  static Index count(const Sizes& s) { return 3 * s.width * s.head + s.head * s.classes; }

  // A share of the batch, with its activations and its part of the gradient.
  struct Part {
    Part(const Sizes& s, const Matrix& inputs, const std::int64_t* targets)
        : sizes(s),
          x(inputs),
          y(targets, targets + inputs.rows()),
          weights(static_cast<std::size_t>(x.rows() / s.tokens)),
          gradient(static_cast<std::size_t>(count(s))) {
      for (Matrix* m : {&q, &k, &v, &output, &goutput, &gq, &gk, &gv}) m->resize(x.rows(), s.head);
    }

    void run(const float* p) {
      const Index n = sizes.tokens;
      const Index size = sizes.width * sizes.head;
      const float scale = 1 / std::sqrt(static_cast<float>(sizes.head));
      const auto projection = [&](Index i) {
        return Eigen::Map<const Matrix>(p + i * size, sizes.width, sizes.head);
      };
      const Eigen::Map<const Matrix> last(p + 3 * size, sizes.head, sizes.classes);
      q.noalias() = x * projection(0);
      k.noalias() = x * projection(1);
      v.noalias() = x * projection(2);
      for (Index r = 0; r < x.rows(); r += n) {
        Matrix& w = weights[static_cast<std::size_t>(r / n)];
        w.noalias() = q.middleRows(r, n) * k.middleRows(r, n).transpose();
        causal_softmax(w, scale);
        output.middleRows(r, n).noalias() = w * v.middleRows(r, n);
      }
      logits.noalias() = output * last;
      const auto rows = static_cast<float>(sizes.batch * n);
      loss = cross_entropy_backward(logits, y.data(), 1 / rows) / static_cast<double>(rows);

      float* g = gradient.data();
      Eigen::Map<Matrix>(g + 3 * size, sizes.head, sizes.classes).noalias() =
          output.transpose() * logits;
      goutput.noalias() = logits * last.transpose();
      for (Index r = 0; r < x.rows(); r += n) {
        const Matrix& w = weights[static_cast<std::size_t>(r / n)];
        gv.middleRows(r, n).noalias() = w.transpose() * goutput.middleRows(r, n);
        slopes.noalias() = goutput.middleRows(r, n) * v.middleRows(r, n).transpose();
        causal_softmax_backward(w, slopes, scale);
        gq.middleRows(r, n).noalias() = slopes * k.middleRows(r, n);
        gk.middleRows(r, n).noalias() = slopes.transpose() * q.middleRows(r, n);
      }
      for (const Matrix* m : {&gq, &gk, &gv}) {
        Eigen::Map<Matrix>(g, sizes.width, sizes.head).noalias() = x.transpose() * *m;
        g += size;
      }
    }

    Sizes sizes;
    Matrix x;
    std::vector<std::int64_t> y;
    std::vector<Matrix> weights;
    std::vector<float> gradient;
    double loss = 0;
    Matrix q, k, v, output, logits, goutput, slopes, gq, gk, gv;
  };

  Sizes sizes_;
  std::vector<float> parameters_, gradient_;
  std::vector<Part> parts_;
  HandAdam adam_;
};

// The least a tape can be: numbers, indices and an op code in one array.
class Tape final : public Workload {
 public:
  void run() override {
    tape_.clear();
    for (const float leaf : {kStart, kFactor, kShift}) tape_.push_back({false, 0, 0, leaf, 0});
    std::size_t x = 0;
    for (int i = 0; i < kPairs; ++i) {
      x = push(true, x, 1);
      x = push(false, x, 2);
    }
    tape_.back().gradient = 1;
    for (std::size_t i = tape_.size() - 1; i > 2; --i) {
      const Step& step = tape_[i];
      Step& left = tape_[step.left];
      Step& right = tape_[step.right];
      left.gradient += step.product ? step.gradient * right.value : step.gradient;
      right.gradient += step.product ? step.gradient * left.value : step.gradient;
    }
  }
  std::vector<float> results() const override {
    return {tape_.back().value, tape_[0].gradient, tape_[1].gradient, tape_[2].gradient};
  }

 private:
  struct Step {
    bool product;
    std::size_t left, right;
    float value, gradient;
  };
  std::size_t push(bool product, std::size_t left, std::size_t right) {
    const float a = tape_[left].value;
    const float b = tape_[right].value;
    tape_.push_back({product, left, right, product ? a * b : a + b, 0});
    return tape_.size() - 1;
  }
  std::vector<Step> tape_;
};

class Regression final : public Workload {
 public:
  explicit Regression(const Sizes& s)
      : scale_(1 / std::sqrt(static_cast<float>(s.head))),
        x_(uniform_matrix(100, s.tokens, s.width, 1)),
        y_(uniform_matrix(101, s.tokens, s.head, 1)) {
    for (unsigned i = 0; i < 3; ++i) w_[i] = uniform_matrix(i + 1, s.width, s.head, 0.125f);
  }

  void run() override {
    q_.noalias() = x_ * w_[0];
    k_.noalias() = x_ * w_[1];
    v_.noalias() = x_ * w_[2];
    weights_.noalias() = q_ * k_.transpose();
    for (Index i = 0; i < weights_.rows(); ++i) {
      auto row = weights_.row(i).array();
      row = ((row - row.maxCoeff()) * scale_).exp();
      row *= 1 / row.sum();
    }
    error_.noalias() = weights_ * v_;
    error_ -= y_;
    loss_ = error_.squaredNorm() / static_cast<float>(error_.size());

    error_ *= 2 / static_cast<float>(error_.size());
    gv_.noalias() = weights_.transpose() * error_;
    slopes_.noalias() = error_ * v_.transpose();
    for (Index i = 0; i < weights_.rows(); ++i) {
      const float mean = weights_.row(i).dot(slopes_.row(i));
      slopes_.row(i).array() = weights_.row(i).array() * (slopes_.row(i).array() - mean) * scale_;
    }
    gq_.noalias() = slopes_ * k_;
    gk_.noalias() = slopes_.transpose() * q_;
    g_[0].noalias() = x_.transpose() * gq_;
    g_[1].noalias() = x_.transpose() * gk_;
    g_[2].noalias() = x_.transpose() * gv_;
    for (int i = 0; i < 3; ++i) w_[i] -= static_cast<float>(kSgdRate) * g_[i];
  }
  std::vector<float> results() const override {
    std::vector<float> all{loss_};
    for (const Matrix& g : g_) append(all, g);
    return all;
  }

 private:
  float scale_;
  float loss_ = 0;
  Matrix x_, y_, w_[3], g_[3];
  Matrix q_, k_, v_, weights_, error_, slopes_, gq_, gk_, gv_;
};

}  // namespace

std::unique_ptr<Workload> by_hand(const std::string& workload, const Sizes& sizes, int threads) {
  if (workload == "W1") return std::make_unique<Lesson>(sizes);
  if (workload == "W2") return std::make_unique<OneHead>(sizes, threads);
  if (workload == "W3") return hand_language_model(sizes, threads);
  if (workload == "W4") return hand_tiled_attention(sizes, threads);
  if (workload == "W5") return std::make_unique<Tape>();
  return std::make_unique<Regression>(sizes);
}

}  // namespace bench
