// What is exactly true of softmax and of the gradients of attention: the Jacobian, its norms and
// bounds, the numbers of the lesson's example, and saturation in float32.
#include <complex>

#include "attention/support.hpp"
#include "softtape/study/derivatives.hpp"

using namespace attention_test;

namespace {

Tensor jacobian_of(const Tensor& scores) {
  return jacobian([](const Tensor& s) { return softmax(s); }, scores);
}

// Rows of scores from soft to saturated, 2 to 17 keys.
std::vector<Tensor> rows() {
  std::vector<Tensor> all{tensor(std::vector<double>{8, 0}, kDouble)};
  Rng rng(1);
  for (const std::int64_t keys : {2, 3, 5, 17}) {
    for (const double spread : {0.1, 1.0, 4.0}) {
      all.push_back(mul(normals(rng, {keys}), spread));
    }
  }
  return all;
}

double largest_eigenvalue(const Tensor& matrix) {
  Rng rng(2);
  Tensor v = normals(rng, {matrix.dim(0)});
  for (int i = 0; i < 3000; ++i) {
    const Tensor next = matmul(matrix, v);
    v = div(next, norm(next));
  }
  return matmul(v, matmul(matrix, v)).item();
}

}  // namespace

TEST_CASE("J = diag(p) - p p^T: symmetric, J 1 = 0, positive semidefinite, by complex steps too") {
  for (const Tensor& s : rows()) {
    const std::int64_t n = s.numel();
    const Tensor p = softmax(s);
    const Tensor j = jacobian_of(s);
    const Tensor closed = sub(mul(eye(n, kDouble), p), mul(unsqueeze(p, 1), p));
    CHECK_NUMBERS(j, closed.to_vector(), 1e-14, 2e-16);
    CHECK_NUMBERS(transpose(j), j.to_vector(), 1e-14, 1e-17);
    for (const double row : sum(j, -1).to_vector()) CHECK(std::abs(row) < 1e-15);
    Rng rng(3);
    for (int i = 0; i < 5; ++i) {
      const Tensor v = normals(rng, {n});
      CHECK(matmul(v, matmul(j, v)).item() > -1e-15);
    }
    // d p / d s_k by a step along the imaginary axis, which cancels nothing.
    const auto numbers = s.to_vector();
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      std::vector<std::complex<double>> e(numbers.begin(), numbers.end());
      e[k] += std::complex<double>(0, 1e-100);
      std::complex<double> total = 0;
      for (auto& x : e) total += (x = std::exp(x));
      for (std::size_t i = 0; i < e.size(); ++i) {
        const double want = (e[i] / total).imag() / 1e-100;
        CHECK(std::abs(j.to_vector()[i * e.size() + k] - want) < 3e-16);
      }
    }
  }
}

TEST_CASE("trace and Frobenius norm of J by sums of powers") {
  for (const Tensor& s : rows()) {
    const Tensor p = softmax(s);
    const Tensor j = jacobian_of(s);
    const double s2 = sum(pow(p, 2)).item();
    const double s3 = sum(pow(p, 3)).item();
    CHECK(sum(mul(j, eye(s.numel(), kDouble))).item() == doctest::Approx(1 - s2).epsilon(1e-12));
    CHECK(norm(j).item() == doctest::Approx(std::sqrt(s2 - 2 * s3 + s2 * s2)).epsilon(1e-9));
  }
}

TEST_CASE("spectral norm: secular equation, interlacing, and its bounds") {
  for (const Tensor& s : rows()) {
    std::vector<double> p = softmax(s).to_vector();
    std::sort(p.rbegin(), p.rend());
    const double lambda = largest_eigenvalue(jacobian_of(s));
    double most = 0;
    double secular = 0;
    for (const double x : p) {
      most = std::max(most, x * (1 - x));
      secular += x * x / (x - lambda);
    }
    CHECK(lambda <= p[0]);
    CHECK(lambda >= p[1] * (1 - 1e-9));
    CHECK(lambda >= most * (1 - 1e-12));
    CHECK(lambda <= 2 * most * (1 + 1e-12));
    CHECK(lambda <= 0.5 + 1e-15);
    if (p.size() > 2 && p[0] - p[1] > 1e-3 && p[1] < 0.9 * lambda) {
      CHECK(secular == doctest::Approx(1).epsilon(1e-6));
    }
    if (p.size() == 2) {
      CHECK(lambda == doctest::Approx(2 * p[0] * p[1]).epsilon(1e-12));
      CHECK(norm(jacobian_of(s)).item() == doctest::Approx(lambda).epsilon(1e-12));
    }
  }
}

TEST_CASE("the numbers of gaps 8, 1, 16 and 2") {
  struct Want {
    double gap, winner, loser, slope, norm, entropy;
  };
  const Want wants[] = {{8, 0.999664649870, 3.353501304665e-04, 3.352376707565e-04,
                         6.704753415129e-04, 3.018207416627e-03},
                        {1, 0.731058578630, 2.689414213700e-01, 1.966119332415e-01,
                         3.932238664830e-01, 5.822031088882e-01},
                        {16, 0.999999887465, 1.125351620551e-07, 1.125351493909e-07,
                         2.250702987819e-07, 1.913097761291e-06},
                        {2, 0.880797077978, 1.192029220221e-01, 1.049935854035e-01,
                         2.099871708070e-01, 3.653338550872e-01}};
  double slopes[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const Want& want = wants[i];
    const Tensor s = tensor(std::vector<double>{want.gap, 0}, kDouble);
    const Tensor p = softmax(s);
    const Tensor j = jacobian_of(s);
    const auto close = [](double got, double expected) {
      CHECK(got == doctest::Approx(expected).epsilon(1e-11));
    };
    close(p.to_vector()[0], want.winner);
    close(p.to_vector()[1], want.loser);
    slopes[i] = j.to_vector()[3];
    close(slopes[i], want.slope);
    close(norm(j).item(), want.norm);
    close(-sum(mul(p, log_softmax(s))).item(), want.entropy);
  }
  CHECK(slopes[1] / slopes[0] == doctest::Approx(586.485203).epsilon(1e-9));
  CHECK(slopes[1] / slopes[0] / 8 == doctest::Approx(73.310650).epsilon(1e-8));
  CHECK(slopes[3] / slopes[2] == doctest::Approx(932984.813827).epsilon(1e-9));
  CHECK(slopes[3] / slopes[2] / 8 == doctest::Approx(116623.101729).epsilon(1e-9));
}

TEST_CASE("the chain from dO to dWq, dWk and dV, in closed form") {
  Rng rng(4);
  const Tensor x = normals(rng, {6, 8});
  const auto w = leaves({normals(rng, {8, 4}), normals(rng, {8, 4}), normals(rng, {8, 3})});
  const Tensor go = normals(rng, {6, 3});
  const Tensor q = matmul(x, w[0]);
  const Tensor k = matmul(x, w[1]);
  const Tensor v = matmul(x, w[2]);
  const Attention a = scaled_dot_product_attention(q, k, v, {.mask = Mask::causal()});
  const auto g =
      grad(a.output, {a.weights, a.scores, q, k, v, w[0], w[1], w[2]}, {.grad_outputs = {go}});
  const Tensor p = a.weights.detach();
  const double c = 0.5;
  const Tensor want_gs = mul(p, sub(g[0], sum(mul(p, g[0]), -1, {.keepdim = true})));
  CHECK_AGREES(g[1], want_gs, 1e-15);
  CHECK_AGREES(g[2], mul(c, matmul(g[1], k.detach())), 1e-15);
  CHECK_AGREES(g[3], mul(c, matmul(g[1], q.detach(), {.transpose_a = true})), 1e-15);
  CHECK_AGREES(g[4], matmul(p, go, {.transpose_a = true}), 1e-15);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK_AGREES(g[5 + i], matmul(x, g[2 + i], {.transpose_a = true}), 1e-15);
  }
  for (const double total : sum(g[1], -1).to_vector()) CHECK(std::abs(total) < 1e-15);
  // sum_j p_j g_j = o . dL/do, what the fused backward pass rests on.
  CHECK_AGREES(sum(mul(p, g[0]), -1), sum(mul(a.output.detach(), go), -1), 1e-14);
}

TEST_CASE("with two keys winner and loser get equal and opposite gradients: both starve") {
  for (const double gap : {0.5, 8.0, 30.0}) {
    const Tensor s = leaf(tensor(std::vector<double>{gap, 0}, kDouble));
    const auto g =
        grad(softmax(s), s, {.grad_outputs = {tensor(std::vector<double>{3, -1}, kDouble)}})[0]
            .to_vector();
    CHECK(g[0] == doctest::Approx(-g[1]).epsilon(1e-12));
    const double p = 1 / (1 + std::exp(-gap));
    CHECK(g[0] == doctest::Approx(p * (1 - p) * 4).epsilon(1e-9));
  }
}

TEST_CASE("saturated softmax in float32: the winner's gradient does not cancel") {
  const Tensor s = to(tensor(std::vector<double>{20, 0}, kDouble), DType::float32);
  const Tensor x = leaf(s);
  const Tensor gy = to(tensor(std::vector<double>{1, 2}, kDouble), DType::float32);
  CHECK_NUMBERS(grad(softmax(x), x, {.grad_outputs = {gy}})[0],
                (std::vector<double>{-2.0611536e-9, 2.0611536e-9}), 1e-6, 0);

  // Unscaled scores at dk = 256: every row of dS keeps its relative precision.
  Rng rng(5);
  const Tensor scores = to(mul(normals(rng, {500, 16}), 16), DType::float32);
  const Tensor up = normals(rng, {500, 16}, DType::float32);
  const auto vjp_in = [&](DType dtype) {
    const Tensor t = leaf(to(scores, dtype));
    return to(grad(softmax(t), t, {.grad_outputs = {to(up, dtype)}})[0], DType::float64);
  };
  const Tensor exact = vjp_in(DType::float64);
  const Tensor error = norm(sub(vjp_in(DType::float32), exact), -1);
  const auto relative = div(error, norm(exact, -1)).to_vector();
  CHECK(*std::max_element(relative.begin(), relative.end()) < 5e-6);
}
