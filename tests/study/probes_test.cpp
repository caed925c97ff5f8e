// Probes of weights and of score gradients, against formulas written out here and numbers worked
// out elsewhere (lesson's softmaxes to 12 digits; limits of saturated and of soft attention).
#include "softtape/study/probes.hpp"

#include <algorithm>
#include <cmath>

#include "ops/support.hpp"
#include "softtape/attention/attention.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/study/derivatives.hpp"
#include "softtape/study/scores.hpp"
#include "support/compare.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using test_support::kDouble;
using test_support::kInf;
using test_support::kNaN;
using test_support::numbers;

namespace {

// The same norm by sums over the other keys, one by one.
double frobenius_by_sums(const std::vector<double>& p) {
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    double others = 0;
    double squares = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      if (j == i) continue;
      others += p[j];
      squares += p[j] * p[j];
    }
    total += p[i] * p[i] * (others * others + squares);
  }
  return std::sqrt(total);
}

// The largest eigenvalue by Jacobi rotations: slow, and of another kind than the secular equation.
double top_eigenvalue(std::vector<std::vector<double>> a) {
  const std::size_t n = a.size();
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        if (a[i][j] == 0) continue;
        const double angle = 0.5 * std::atan2(2 * a[i][j], a[j][j] - a[i][i]);
        const double c = std::cos(angle);
        const double s = std::sin(angle);
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[k][i], y = a[k][j];
          a[k][i] = c * x - s * y, a[k][j] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[i][k], y = a[j][k];
          a[i][k] = c * x - s * y, a[j][k] = s * x + c * y;
        }
      }
    }
  }
  double top = 0;
  for (std::size_t i = 0; i < n; ++i) top = std::max(top, a[i][i]);
  return top;
}

std::vector<double> softmax_of(Rng& rng, std::int64_t n, double spread) {
  return softmax(mul(randn(rng, {n}, kDouble), spread)).to_vector();
}

bool near(double a, double b, double relative) { return std::abs(a - b) <= relative * std::abs(b); }

}  // namespace

TEST_CASE("probes: the lesson's softmaxes to twelve digits") {
  struct Row {
    double gap, winner, loser, slope, jacobian, entropy;
  };
  const Row rows[] = {{8, 0.999664649870, 3.353501304665e-04, 3.352376707565e-04,
                       6.704753415129e-04, 3.018207416628e-03},
                      {1, 0.731058578630, 2.689414213700e-01, 1.966119332415e-01,
                       3.932238664830e-01, 5.822031088882e-01},
                      {16, 0.999999887465, 1.125351620551e-07, 1.125351493909e-07,
                       2.250702987819e-07, 1.913097761269e-06},
                      {2, 0.880797077978, 1.192029220221e-01, 1.049935854035e-01,
                       2.099871708070e-01, 3.653338550872e-01}};
  for (const Row& row : rows) {
    CAPTURE(row.gap);
    const test_support::LeakGuard leaks;
    const Tensor p = softmax(numbers({row.gap, 0.0}));
    CHECK(near(max_weight(p).item(), row.winner, 1e-12));
    CHECK(near(p.to_vector()[1], row.loser, 1e-12));
    CHECK(near(softmax_jacobian(p).to_vector()[3], row.slope, 1e-12));
    CHECK(near(jacobian_frobenius_norm(p).item(), row.jacobian, 1e-12));
    CHECK(near(jacobian_spectral_norm(p).item(), row.jacobian, 1e-12));
    CHECK(near(entropy(p).item(), row.entropy, 1e-12));
  }
}

TEST_CASE("probes: uniform, one-hot and empty rows") {
  const Tensor p = numbers({{0.25, 0.25, 0.25, 0.25}, {0.0, 1.0, 0.0, 0.0}, {0.0, 0.0, 0.0, 0.0}});
  CHECK_NUMBERS(entropy(p), numbers({std::log(4.0), 0.0, 0.0}), 1e-15, 0);
  CHECK_NUMBERS(effective_keys(p), numbers({4.0, 1.0, 0.0}));
  CHECK_NUMBERS(max_weight(p), numbers({0.25, 1.0, 0.0}));
  CHECK_NUMBERS(gini(p), numbers({0.0, 0.75, 0.0}));
  CHECK_NUMBERS(jacobian_frobenius_norm(p), numbers({std::sqrt(3.0) / 4, 0.0, 0.0}), 1e-15, 0);
  CHECK_NUMBERS(jacobian_spectral_norm(p), numbers({0.25, 0.0, 0.0}));
  CHECK_NUMBERS(softmax_jacobian(p[1]), zeros({4, 4}, kDouble), 0, 0);

  const Tensor none = zeros({2, 0}, kDouble);
  for (const auto& probe : {entropy, effective_keys, max_weight, jacobian_frobenius_norm,
                            jacobian_spectral_norm, row_gradient_norm, keys_carrying_gradient}) {
    CHECK_NUMBERS(probe(none), zeros({2}, kDouble));
    CHECK(probe(zeros({0, 3})).shape() == Shape{0});
  }
  CHECK(softmax_jacobian(none).shape() == Shape{2, 0, 0});
  // One key has everything, so nothing can move.
  CHECK(jacobian_frobenius_norm(numbers({1.0})).item() == 0);
  CHECK(jacobian_spectral_norm(numbers({1.0})).item() == 0);
  CHECK(entropy(numbers({1.0})).shape() == Shape{});
}

TEST_CASE("probes: any leading axes and both float types, results in double") {
  Rng rng(1);
  const Tensor p = softmax(randn(rng, {2, 3, 4, 5}, kDouble));
  for (const auto& probe :
       {entropy, effective_keys, max_weight, jacobian_frobenius_norm, jacobian_spectral_norm}) {
    const Tensor all = probe(p);
    CHECK(all.shape() == Shape{2, 3, 4});
    CHECK_SAME(select(select(all, 0, 1), 0, 2), probe(p[1][2]));
    const Tensor single = probe(to(p, DType::float32));
    CHECK(single.dtype() == DType::float64);
    CHECK_NUMBERS(single, all, 1e-6, 0);
  }
  CHECK(softmax_jacobian(p).shape() == Shape{2, 3, 4, 5, 5});
}

TEST_CASE("probes: a NaN poisons its own row") {
  const Tensor p = numbers({{0.5, kNaN}, {0.5, 0.5}});
  for (const auto& probe : {entropy, effective_keys, max_weight, jacobian_frobenius_norm,
                            jacobian_spectral_norm, row_gradient_norm, keys_carrying_gradient}) {
    const std::vector<double> rows = probe(p).to_vector();
    CHECK(std::isnan(rows[0]));
    CHECK(std::isfinite(rows[1]));
  }
  CHECK(std::isnan(gini(p).to_vector()[0]));
}

TEST_CASE("probes: the Jacobian is the derivative of softmax") {
  Rng rng(2);
  const Tensor s = mul(randn(rng, {6}, kDouble), 2);
  const auto f = [](const Tensor& x) { return softmax(x); };
  const Tensor j = softmax_jacobian(softmax(s));
  CHECK_NUMBERS(j, jacobian(f, s), 1e-12, 1e-16);
  CHECK_NUMBERS(sum(j, -1), zeros({6}, kDouble), 0, 1e-16);
  CHECK_NUMBERS(jacobian_frobenius_norm(softmax(s)), norm(j), 1e-14, 0);
}

TEST_CASE("probes: the Frobenius norm agrees with sums over the other keys, saturated or not") {
  Rng rng(3);
  for (const double spread : {0.0, 0.5, 1.0, 4.0, 16.0, 64.0, 200.0}) {
    for (const std::int64_t n : {2, 3, 16, 33}) {
      CAPTURE(spread);
      CAPTURE(n);
      const std::vector<double> p = softmax_of(rng, n, spread);
      const double want = frobenius_by_sums(p);
      CHECK(near(jacobian_frobenius_norm(tensor(p, {n}, kDouble)).item(), want, 1e-12));
      // tr J = 1 - S2 and |J|_F^2 = S2 - 2 S3 + S2^2, where they do not cancel.
      if (spread > 1) continue;
      double s2 = 0, s3 = 0;
      for (const double x : p) s2 += x * x, s3 += x * x * x;
      CHECK(near(want, std::sqrt(s2 - 2 * s3 + s2 * s2), 1e-12));
    }
  }
}

TEST_CASE("probes: norms of a saturated row keep their digits, and do not underflow") {
  // Beside one winner J = e_w-centred: with a single loser of weight e, |J|_F = |J|_2 = 2 e (1-e).
  for (const double e : {1e-9, 1e-20, 1e-100, 1e-200, 1e-300}) {
    CAPTURE(e);
    const Tensor p = numbers({1.0 - e, e});
    CHECK(near(jacobian_frobenius_norm(p).item(), 2 * e * (1 - e), 1e-14));
    CHECK(near(jacobian_spectral_norm(p).item(), 2 * e * (1 - e), 1e-14));
  }
  // float32: 1 - p of the winner is 0, what the losers have is not.
  const Tensor p = softmax(tensor({20.0, 0.0}, {.dtype = DType::float32}));
  CHECK(p.to_vector()[0] == 1.0);
  CHECK(near(jacobian_frobenius_norm(p).item(), 2 * 2.0611536181902037e-09, 1e-6));
  CHECK(near(softmax_jacobian(p).to_vector()[0], 2.0611536181902037e-09, 1e-6));
}

TEST_CASE("probes: the spectral norm is the largest eigenvalue, within its bounds") {
  Rng rng(4);
  for (const double spread : {0.0, 1.0, 3.0, 8.0, 30.0}) {
    for (const std::int64_t n : {2, 3, 7, 16}) {
      CAPTURE(spread);
      CAPTURE(n);
      std::vector<double> p = softmax_of(rng, n, spread);
      const Tensor row = tensor(p, {n}, kDouble);
      const double found = jacobian_spectral_norm(row).item();
      const std::vector<double> j = softmax_jacobian(row).to_vector();
      std::vector<std::vector<double>> matrix;
      for (std::int64_t i = 0; i < n; ++i) {
        matrix.emplace_back(j.begin() + i * n, j.begin() + (i + 1) * n);
      }
      CHECK(near(found, top_eigenvalue(matrix), 1e-12));
      double slope = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        slope = std::max(slope, j[static_cast<std::size_t>(i * n + i)]);
      }
      CHECK(found >= slope * (1 - 1e-14));
      CHECK(found <= 2 * slope * (1 + 1e-14));
      CHECK(found <= 0.5);
      std::sort(p.rbegin(), p.rend());
      CHECK(found <= p[0] * (1 + 1e-14));
      CHECK(found >= p[1] * (1 - 1e-14));
      CHECK(found <= jacobian_frobenius_norm(row).item() * (1 + 1e-14));
    }
  }
  // Ties for the first place: the winner's weight is the eigenvalue.
  CHECK(jacobian_spectral_norm(numbers({0.375, 0.25, 0.375})).item() == 0.375);
}

TEST_CASE("probes: Zhai's entropy bound holds, with equality where it is tight") {
  const auto bound = [](double t, double sigma) {
    const double beta = std::exp(-sigma * std::sqrt(t / (t - 1)));
    return std::log1p((t - 1) * beta) +
           sigma * std::sqrt(t * (t - 1)) * beta / (1 + (t - 1) * beta);
  };
  CHECK(std::abs(bound(16, 1) - 2.716801) < 5e-7);
  CHECK(std::abs(bound(16, 4) - 1.018040) < 5e-7);
  CHECK(std::abs(bound(128, 4) - 3.985895) < 5e-7);
  Rng rng(5);
  for (const std::int64_t t : {2, 16, 128}) {
    const auto n = static_cast<double>(t);
    for (const double sigma : {0.1, 1.0, 4.0, 16.0}) {
      CAPTURE(t);
      CAPTURE(sigma);
      const Tensor s = randn(rng, {500, t}, kDouble);
      const Tensor limited = mul(s, sigma / norm(s, -1, {.keepdim = true}));
      CHECK(summarize(entropy(softmax(limited))).min >= bound(n, sigma) * (1 - 1e-12));
      std::vector<double> extreme(static_cast<std::size_t>(t), -sigma / std::sqrt(n * (n - 1)));
      extreme[0] = sigma * std::sqrt((n - 1) / n);
      CHECK(near(entropy(softmax(tensor(extreme, {t}, kDouble))).item(), bound(n, sigma), 1e-12));
    }
  }
}

TEST_CASE("probes: soft and condensed attention of unit-variance queries and keys") {
  // Monte Carlo with 2000 rows; the accepted ranges are about 4 standard errors, and what the
  // formulas for large dk leave out. f_16 = 1.765991 is the density at 0 of the gap between the two
  // largest of 16 standard normals.
  constexpr std::int64_t kRows = 2000, kKeys = 16, kWidth = 1024;
  constexpr double kGapDensity = 1.765991;
  Rng rng(6);
  const Tensor q = randn(rng, {kRows, 1, kWidth}, {.dtype = DType::float32});
  const Tensor k = randn(rng, {kRows, kKeys, kWidth}, {.dtype = DType::float32});
  const NoGrad values_only;
  const auto attend = [&](const Scale& scale) {
    return scaled_dot_product_attention(q, k, k, {.scale = scale});
  };
  const double root = std::sqrt(static_cast<double>(kWidth));

  const Attention raw = attend(Scale::none());
  CHECK(near(score_statistics(raw.scores).std, predicted_score_std(Scale::none(), kWidth), 0.03));
  const double jacobian_mean = summarize(jacobian_frobenius_norm(raw.weights)).mean;
  CHECK(near(jacobian_mean, kGapDensity / root, 0.2));
  CHECK(
      near(1 - summarize(max_weight(raw.weights)).mean, std::log(2.0) * kGapDensity / root, 0.25));
  CHECK(near(summarize(entropy(raw.weights)).mean, 1.644934 * kGapDensity / root, 0.25));
  CHECK(summarize(jacobian_frobenius_norm(raw.weights)).median < 1e-3 * jacobian_mean);

  const Attention scaled = attend(Scale::inv_sqrt_dk());
  CHECK(near(score_statistics(scaled.scores).std, 1, 0.03));
  CHECK(near(summarize(jacobian_frobenius_norm(scaled.weights)).mean, 0.305, 0.03));
  CHECK(near(summarize(max_weight(scaled.weights)).mean, 0.247, 0.06));
  CHECK(near(summarize(entropy(scaled.weights)).mean, 2.355, 0.02));
  CHECK(near(summarize(effective_keys(scaled.weights)).mean, 8.25, 0.05));
}

TEST_CASE("probes: gini over visible keys, and against its definition") {
  const Tensor p = numbers({{0.5, 0.5, 0.0, 0.0}, {0.7, 0.1, 0.2, 0.0}});
  const Mask two = Mask::keep(tensor({{true, true, false, false}, {true, true, true, false}}));
  CHECK_NUMBERS(gini(p, two), numbers({0.0, (0.6 + 0.5 + 0.1) / 3}), 1e-15, 0);
  CHECK(gini(p).to_vector()[0] == doctest::Approx(0.5).epsilon(1e-15));
  Rng rng(7);
  const std::vector<double> row = softmax_of(rng, 9, 2);
  double differences = 0;
  for (const double a : row) {
    for (const double b : row) differences += std::abs(a - b);
  }
  CHECK(gini(tensor(row, {9}, kDouble)).item() == doctest::Approx(differences / 18).epsilon(1e-13));
}

TEST_CASE("probes: dead keys count visible pairs of one sample's loss") {
  const Tensor g = numbers({{1e-7, -1e-7, 0.0}, {2e-6, -1e-6, -1e-6}});
  CHECK(dead_keys(g) == 0.5);
  CHECK(dead_keys(g, {.threshold = 1.5e-6}) == doctest::Approx(5.0 / 6));
  // A mean over 100 samples made them a hundred times smaller.
  CHECK(dead_keys(g, {.samples = 100}) == doctest::Approx(1.0 / 6));
  const Mask mask = Mask::keep(tensor({{true, true, false}, {true, true, true}}));
  CHECK(dead_keys(g, {.mask = mask}) == doctest::Approx(2.0 / 5));
  CHECK(dead_keys(g, {.samples = 100, .mask = mask}) == 0);
  CHECK(dead_keys(zeros({2, 0})) == 0);
  // Exactly at the threshold is not below it, either in float32.
  CHECK(dead_keys(numbers({1e-6, -1e-6})) == 0);

  // Relative: whatever size the loss has. Row 0: norm 5, row 1 has no upstream and is left out.
  const Tensor gp = numbers({{3.0, 4.0, 1e9}, {0.0, 0.0, 0.0}});
  const Tensor gs = numbers({{4e-6, -4e-6, 0.0}, {0.0, 0.0, 0.0}});
  CHECK(dead_keys_relative(gs, gp, {.mask = mask}) == 1);
  CHECK(dead_keys_relative(mul(gs, 2), gp, {.mask = mask}) == 0);
  CHECK(dead_keys_relative(mul(gs, 2e9), mul(gp, 1e9), {.samples = 3, .mask = mask}) == 0);
  CHECK(dead_keys_relative(gs, gp, {.threshold = 1e-7, .mask = mask}) == 0);
}

TEST_CASE("probes: starved rows, row norms and keys carrying gradient") {
  const Tensor g = numbers({{3e-7, -4e-7, 0.0}, {3.0, -4.0, 1.0}, {0.0, 0.0, 0.0}});
  CHECK_NUMBERS(row_gradient_norm(g), numbers({5e-7, std::sqrt(26.0), 0.0}), 1e-15, 0);
  CHECK_NUMBERS(keys_carrying_gradient(g), numbers({49.0 / 25, 64.0 / 26, 0.0}), 1e-14, 0);
  CHECK(starved_rows(g) == doctest::Approx(2.0 / 3));
  CHECK(starved_rows(g, {.samples = 10}) == doctest::Approx(1.0 / 3));
  // Row 2 sees one key: no softmax, so nothing to starve.
  const Mask mask =
      Mask::keep(tensor({{true, true, false}, {true, true, true}, {false, true, false}}));
  CHECK(starved_rows(g, {.mask = mask}) == 0.5);
  CHECK(starved_rows(zeros({3, 1})) == 0);
  // Squares that leave the range of double.
  const Tensor far = numbers({{3e-200, -4e-200}, {3e200, -4e200}});
  CHECK_NUMBERS(row_gradient_norm(far), numbers({5e-200, 5e200}), 1e-15, 0);
  CHECK_NUMBERS(keys_carrying_gradient(far), numbers({49.0 / 25, 49.0 / 25}), 1e-14, 0);
  CHECK(row_gradient_norm(numbers({kInf, 1.0})).item() == kInf);
}

TEST_CASE("probes: summaries take the middle as NumPy does") {
  const Summary even = summarize(numbers({{4.0, 1.0}, {3.0, 10.0}}));
  CHECK(even.mean == 4.5);
  CHECK(even.median == 3.5);
  CHECK(even.min == 1);
  CHECK(even.max == 10);
  CHECK(summarize(numbers({2.0, 9.0, 1.0})).median == 2);
  CHECK(summarize(scalar(3.0f)).median == 3);
  CHECK(summarize(numbers({kInf, kInf})).median == kInf);
  const Summary poisoned = summarize(numbers({1.0, kNaN, 2.0}));
  CHECK(std::isnan(poisoned.mean));
  CHECK(std::isnan(poisoned.median));
  CHECK(std::isnan(poisoned.min));
  CHECK(std::isnan(poisoned.max));
}

TEST_CASE("probes: nothing is recorded and no gradient is touched") {
  const test_support::LeakGuard leaks;
  Tensor s = test_support::leaf({{1.0, 2.0, 3.0}});
  const Tensor p = softmax(s);
  s.set_grad(ones_like(s));
  for (const auto& probe : {entropy, effective_keys, max_weight, jacobian_frobenius_norm,
                            jacobian_spectral_norm, softmax_jacobian, row_gradient_norm}) {
    CHECK(!probe(p).requires_grad());
  }
  CHECK(!gini(p).requires_grad());
  CHECK_NUMBERS(s.grad(), ones({1, 3}, kDouble));
  const Tensor loss = sum(mul(p, numbers({1.0, 5.0, 2.0})));
  CHECK(grad(loss, s)[0].defined());
}

TEST_CASE("probes: refused calls") {
  const Tensor scores = numbers({{1.0, -0.5}, {2.0, 3.0}});
  const Tensor whole = tensor({1, 0});
  CHECK_REFUSED(ValueError,
                "[entropy] weights must not be negative: got -0.5 at [0, 1]; pass "
                "softmax(scores)",
                entropy(scores));
  CHECK_REFUSED(ValueError, "[effective_keys] weights", effective_keys(scores));
  CHECK_REFUSED(ValueError, "[max_weight] weights", max_weight(numbers({-kInf, 1.0})));
  CHECK_REFUSED(ValueError, "[gini] weights", gini(scores));
  CHECK_REFUSED(ValueError, "[softmax_jacobian] weights", softmax_jacobian(scores));
  CHECK_REFUSED(ValueError, "[jacobian_frobenius_norm] weights", jacobian_frobenius_norm(scores));
  CHECK_REFUSED(ValueError, "[jacobian_spectral_norm] weights", jacobian_spectral_norm(scores));
  CHECK_REFUSED(GraphError, "[entropy] ", entropy(Tensor()));
  CHECK_REFUSED(DtypeError, "[entropy] ", entropy(whole));
  CHECK_REFUSED(ShapeError, "[entropy] weights must have rank 1 or more", entropy(scalar(0.5)));
  CHECK_REFUSED(ShapeError, "[", softmax_jacobian(zeros({1, 1, 1, 1, 1, 2})));
  CHECK_REFUSED(ShapeError, "[", gini(numbers({0.5, 0.5}), Mask::causal()));
  CHECK_REFUSED(DtypeError, "[row_gradient_norm] ", row_gradient_norm(whole));
  CHECK_REFUSED(ValueError, "[dead_keys] samples must be positive and finite: got 0",
                dead_keys(scores, {.samples = 0}));
  CHECK_REFUSED(ValueError, "[starved_rows] threshold must be positive and finite: got nan",
                starved_rows(scores, {.threshold = kNaN}));
  CHECK_REFUSED(ShapeError,
                "[dead_keys_relative] shapes must be equal: gscores is (2, 2), gweights "
                "is (2,)",
                dead_keys_relative(scores, numbers({1.0, 2.0})));
  CHECK_REFUSED(ValueError, "[summarize] needs numbers: values is (0,)", summarize(zeros({0})));
}
