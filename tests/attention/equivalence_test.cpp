// Scale and initialisation are one variable: attention scaled by 1/sqrt(d) with weights Wq, Wk is
// unscaled attention with d^(-1/4) Wq, d^(-1/4) Wk, step for step, when the learning rate of these
// two is divided by sqrt(d) (SGD), or by d^(1/4) with eps times d^(1/4) (Adam).
#include <array>
#include <cstring>

#include "attention/support.hpp"
#include "softtape/ops/loss.hpp"

using namespace attention_test;

namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kWidth = 6;
constexpr int kSteps = 200;

struct Rates {
  double lr = 0.3;       // of Wv
  double lr_qk = 0.3;    // of Wq and Wk
  double eps_qk = 1e-8;  // Adam alone
  bool adam = false;
};

// Gradient descent by hand on one head; the loss of every step.
std::vector<double> train(std::int64_t dk, const Scale& scale, double gain, const Rates& rates,
                          bool need_weights) {
  Rng rng(1);
  const Tensor x = normals(rng, {kTokens, kWidth});
  const Tensor target = normals(rng, {kTokens, 3});
  std::array<Tensor, 3> w{mul(normals(rng, {kWidth, dk}), gain),
                          mul(normals(rng, {kWidth, dk}), gain), normals(rng, {kWidth, 3})};
  std::array<Tensor, 3> m, v;
  for (std::size_t i = 0; i < 3; ++i) {
    w[i].requires_grad_();
    m[i] = zeros_like(w[i]);
    v[i] = zeros_like(w[i]);
  }
  std::vector<double> losses;
  for (int step = 1; step <= kSteps; ++step) {
    const Attention a = scaled_dot_product_attention(
        matmul(x, w[0]), matmul(x, w[1]), matmul(x, w[2]),
        {.mask = Mask::causal(), .scale = scale, .need_weights = need_weights});
    const Tensor loss = mse_loss(a.output, target);
    losses.push_back(loss.item());
    const std::vector<Tensor> g = grad(loss, {w[0], w[1], w[2]});
    const NoGrad guard;
    for (std::size_t i = 0; i < 3; ++i) {
      const double lr = i < 2 ? rates.lr_qk : rates.lr;
      if (!rates.adam) {
        w[i].sub_(g[i], lr);
        continue;
      }
      m[i] = add(mul(m[i], 0.9), mul(g[i], 0.1));
      v[i] = add(mul(v[i], 0.999), mul(square(g[i]), 0.001));
      const Tensor m_hat = div(m[i], 1 - std::pow(0.9, step));
      const Tensor v_hat = div(v[i], 1 - std::pow(0.999, step));
      w[i].sub_(div(m_hat, add(sqrt(v_hat), i < 2 ? rates.eps_qk : 1e-8)), lr);
    }
  }
  return losses;
}

void check_equivalence(std::int64_t dk, const Rates& scaled, const Rates& unscaled) {
  const double root4 = std::pow(static_cast<double>(dk), 0.25);
  for (const bool need_weights : {true, false}) {
    CAPTURE(dk);
    CAPTURE(need_weights);
    const auto a = train(dk, Scale::inv_sqrt_dk(), 1, scaled, need_weights);
    const auto b = train(dk, Scale::none(), 1 / root4, unscaled, need_weights);
    CHECK(a.back() < 0.9 * a.front());  // it does learn
    const std::string wrong = differs(b, a, dk == 16 && need_weights ? 0 : 1e-10, 0);
    CHECK_MESSAGE(wrong.empty(), wrong);
    // With its own learning rates the unscaled run is another one.
    const auto c = train(dk, Scale::none(), 1 / root4, scaled, need_weights);
    CHECK_FALSE(differs(c, a, 1e-3, 0).empty());
  }
}

}  // namespace

// At dk = 16 every factor is a power of two, so the two runs agree to the last bit.
TEST_CASE("SGD: scaled is unscaled with a smaller initialisation and learning rate") {
  for (const std::int64_t dk : {16, 64}) {
    const double root = std::sqrt(static_cast<double>(dk));
    check_equivalence(dk, {}, {.lr_qk = 0.3 / root});
  }
}

TEST_CASE("Adam: the learning rate goes by d^(-1/4), eps by d^(1/4)") {
  for (const std::int64_t dk : {16, 64}) {
    const double root4 = std::pow(static_cast<double>(dk), 0.25);
    check_equivalence(dk, {.lr = 0.01, .lr_qk = 0.01, .eps_qk = 1e-8, .adam = true},
                      {.lr = 0.01, .lr_qk = 0.01 / root4, .eps_qk = 1e-8 * root4, .adam = true});
  }
}
