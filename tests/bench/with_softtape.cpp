// The workloads as a user of softtape writes them.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "softtape/softtape.hpp"
#include "workloads.hpp"

namespace bench {

using namespace softtape;

namespace {

Tensor uniform_tensor(unsigned seed, const Shape& shape, float scale) {
  return tensor(uniform(seed, shape.numel(), scale), shape);
}
Tensor weight(unsigned seed, const Shape& shape, float scale) {
  return uniform_tensor(seed, shape, scale).requires_grad_();
}

void append(std::vector<float>& to, const Tensor& x) {
  const auto numbers = x.data<float>();
  to.insert(to.end(), numbers.begin(), numbers.end());
}
std::vector<float> loss_and_gradients(const Tensor& loss, const std::vector<Tensor>& weights) {
  std::vector<float> all;
  append(all, loss);
  for (const Tensor& w : weights) append(all, w.grad());
  return all;
}

class Lesson final : public Workload {
 public:
  explicit Lesson(const Sizes& s)
      : scale_(1 / std::sqrt(static_cast<double>(s.head))),
        x_(uniform_tensor(100, {s.tokens, s.width}, 1)) {
    for (unsigned seed : {1u, 2u, 3u}) w_.push_back(weight(seed, {s.width, s.head}, 1));
  }
  void run() override {
    for (Tensor& w : w_) w.zero_grad();
    const Tensor q = matmul(x_, w_[0]);
    const Tensor k = matmul(x_, w_[1]);
    const Tensor v = matmul(x_, w_[2]);
    const Tensor scores = mul(matmul(q, k, {.transpose_b = true}), scale_);
    const Tensor weights = softmax(scores, {.mask = Mask::causal()});
    loss_ = sum(square(matmul(weights, v)));
    loss_.backward();
  }
  std::vector<float> results() const override { return loss_and_gradients(loss_, w_); }

 private:
  double scale_;
  Tensor x_, loss_;
  std::vector<Tensor> w_;
};

class OneHead final : public Workload {
 public:
  explicit OneHead(const Sizes& s)
      : composed_(s.composed),
        x_(uniform_tensor(100, {s.batch, s.tokens, s.width}, 1)),
        y_(tensor(labels(101, s.batch * s.tokens, s.classes), {s.batch, s.tokens})),
        w_({weight(1, {s.width, s.head}, 0.125f), weight(2, {s.width, s.head}, 0.125f),
            weight(3, {s.width, s.head}, 0.125f), weight(4, {s.head, s.classes}, 0.125f)}),
        optimizer_(w_, {.lr = kAdamRate}) {}
  void run() override {
    optimizer_.zero_grad();
    const Tensor output =
        scaled_dot_product_attention(matmul(x_, w_[0]), matmul(x_, w_[1]), matmul(x_, w_[2]),
                                     {.mask = Mask::causal(), .need_weights = composed_})
            .output;
    loss_ = cross_entropy(matmul(output, w_[3]), y_);
    loss_.backward();
    optimizer_.step();
  }
  std::vector<float> results() const override { return loss_and_gradients(loss_, w_); }

 private:
  bool composed_;
  Tensor x_, y_, loss_;
  std::vector<Tensor> w_;
  Adam optimizer_;
};

class LanguageModel final : public Workload {
 public:
  explicit LanguageModel(const Sizes& s)
      : ids_(tensor(labels(100, s.batch * s.tokens, s.classes), {s.batch, s.tokens})),
        targets_(tensor(labels(101, s.batch * s.tokens, s.classes), {s.batch, s.tokens})),
        embedding_(layers_.emplace<Embedding>(s.classes, s.width, rng_)) {
    layers_.emplace<LearnedPositions>(s.tokens, s.width, rng_);
    for (std::int64_t i = 0; i < s.layers; ++i) {
      layers_.emplace<TransformerBlock>(
          s.width, s.heads, TransformerBlockOptions{.attention = {.mask = Mask::causal()}}, rng_);
    }
    layers_.emplace<LayerNorm>(s.width);
    set_weights();
    optimizer_ =
        std::make_unique<AdamW>(layers_, AdamWOptions{.lr = kAdamRate, .weight_decay = kDecay});
  }
  void run() override {
    optimizer_->zero_grad();
    const Tensor logits = matmul(layers_(ids_), embedding_.weight, {.transpose_b = true});
    loss_ = cross_entropy(logits, targets_);
    loss_.backward();
    optimizer_->step();
  }
  std::vector<float> results() const override { return loss_and_gradients(loss_, w_); }

 private:
  // The weights in the order of hand_language_model.cpp's one array, with that array's numbers.
  void set_weights() {
    std::vector<std::string> order{"0.weight", "1.weight"};
    const std::size_t blocks = layers_.size() - 3;
    for (std::size_t i = 2; i < 2 + blocks; ++i) {
      for (const char* name :
           {"norm1.weight", "norm1.bias", "attention.query.weight", "attention.key.weight",
            "attention.value.weight", "attention.query.bias", "attention.key.bias",
            "attention.value.bias", "attention.out.weight", "attention.out.bias", "norm2.weight",
            "norm2.bias", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"}) {
        order.push_back(std::to_string(i) + "." + name);
      }
    }
    for (const char* name : {".weight", ".bias"}) {
      order.push_back(std::to_string(2 + blocks) + name);
    }
    const NoGrad guard;
    const State named = layers_.named_parameters();
    const std::unordered_map<std::string, Tensor> parameters(named.begin(), named.end());
    const std::vector<float> numbers = uniform(1, layers_.parameter_count(), 0.1f);
    auto from = numbers.begin();
    for (const std::string& name : order) {
      Tensor w = parameters.at(name);
      const bool norm_weight = w.rank() == 1 && name.ends_with("weight");
      for (float& number : w.mutable_data<float>()) number = *from++ + (norm_weight ? 1.f : 0.f);
      w_.push_back(w);
    }
  }

  Rng rng_{0};
  Tensor ids_, targets_, loss_;
  Sequential layers_;
  Embedding& embedding_;
  std::unique_ptr<AdamW> optimizer_;
  std::vector<Tensor> w_;
};

class LongAttention final : public Workload {
 public:
  explicit LongAttention(const Sizes& s) : composed_(s.composed) {
    const Shape shape{s.heads, s.tokens, s.width};
    for (unsigned seed : {1u, 2u, 3u}) x_.push_back(weight(seed, shape, 1));
    upstream_ = uniform_tensor(4, shape, 1);
  }
  void run() override {
    output_ = scaled_dot_product_attention(x_[0], x_[1], x_[2],
                                           {.mask = Mask::causal(), .need_weights = composed_})
                  .output;
    gradients_ = grad({output_}, x_, {.grad_outputs = {upstream_}});
  }
  std::vector<float> results() const override {
    std::vector<float> all;
    append(all, output_);
    for (const Tensor& g : gradients_) append(all, g);
    return all;
  }

 private:
  bool composed_;
  std::vector<Tensor> x_, gradients_;
  Tensor upstream_, output_;
};

class Chain final : public Workload {
 public:
  void run() override {
    for (Tensor& leaf : leaves_) leaf.zero_grad();
    x_ = leaves_[0];
    for (int i = 0; i < kPairs; ++i) {
      x_ = x_ * leaves_[1];
      x_ = x_ + leaves_[2];
    }
    x_.backward();
  }
  std::vector<float> results() const override { return loss_and_gradients(x_, leaves_); }

 private:
  std::vector<Tensor> leaves_{full({}, kStart, {.requires_grad = true}),
                              full({}, kFactor, {.requires_grad = true}),
                              full({}, kShift, {.requires_grad = true})};
  Tensor x_;
};

class Regression final : public Workload {
 public:
  explicit Regression(const Sizes& s)
      : x_(uniform_tensor(100, {s.tokens, s.width}, 1)),
        y_(uniform_tensor(101, {s.tokens, s.head}, 1)),
        w_({weight(1, {s.width, s.head}, 0.125f), weight(2, {s.width, s.head}, 0.125f),
            weight(3, {s.width, s.head}, 0.125f)}),
        optimizer_(w_, {.lr = kSgdRate}) {}
  void run() override {
    optimizer_.zero_grad();
    const Tensor output = scaled_dot_product_attention(matmul(x_, w_[0]), matmul(x_, w_[1]),
                                                       matmul(x_, w_[2]), {.need_weights = false})
                              .output;
    loss_ = mse_loss(output, y_);
    loss_.backward();
    optimizer_.step();
  }
  std::vector<float> results() const override { return loss_and_gradients(loss_, w_); }

 private:
  Tensor x_, y_, loss_;
  std::vector<Tensor> w_;
  SGD optimizer_;
};

}  // namespace

std::unique_ptr<Workload> with_softtape(const std::string& workload, const Sizes& sizes) {
  if (workload == "W1") return std::make_unique<Lesson>(sizes);
  if (workload == "W2") return std::make_unique<OneHead>(sizes);
  if (workload == "W3") return std::make_unique<LanguageModel>(sizes);
  if (workload == "W4") return std::make_unique<LongAttention>(sizes);
  if (workload == "W5") return std::make_unique<Chain>();
  return std::make_unique<Regression>(sizes);
}

}  // namespace bench
