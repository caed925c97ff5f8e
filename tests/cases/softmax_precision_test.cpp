// How exact softmax and its gradient are where a row is saturated, and that place changes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/softmax.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

namespace {

using Long = long double;

// dq of one query in extended precision, from the scores as they are: sum_j ds_j k_j.
std::vector<Long> reference_dq(const double* scores, const double* g, const double* keys, int m,
                               int dk) {
  std::vector<Long> p(static_cast<std::size_t>(m));
  const Long top = *std::max_element(scores, scores + m);
  Long total = 0;
  for (int j = 0; j < m; ++j) {
    p[static_cast<std::size_t>(j)] = std::exp(static_cast<Long>(scores[j]) - top);
    total += p[static_cast<std::size_t>(j)];
  }
  const auto winner = std::max_element(scores, scores + m) - scores;
  Long mean = 0;
  for (int j = 0; j < m; ++j) {
    p[static_cast<std::size_t>(j)] /= total;
    mean += p[static_cast<std::size_t>(j)] * (static_cast<Long>(g[j]) - g[winner]);
  }
  std::vector<Long> dq(static_cast<std::size_t>(dk), 0.0L);
  for (int j = 0; j < m; ++j) {
    const Long ds = p[static_cast<std::size_t>(j)] * (static_cast<Long>(g[j]) - g[winner] - mean);
    for (int i = 0; i < dk; ++i) dq[static_cast<std::size_t>(i)] += ds * keys[j * dk + i];
  }
  return dq;
}

// The worst |dq - reference| / |reference| over rows of unscaled scores.
double worst_error(DType dtype, int rows, int m, int dk) {
  Rng rng(11);
  const TensorOptions options{.dtype = dtype};
  const Tensor q = randn(rng, {rows, 1, dk}, {.dtype = dtype, .requires_grad = true});
  const Tensor k = randn(rng, {rows, m, dk}, options);
  const Tensor g = randn(rng, {rows, 1, m}, options);
  const Tensor scores = matmul(q, k, {.transpose_b = true});
  const Tensor dq = grad(softmax(scores), q, {.grad_outputs = {g}})[0];
  const auto s = scores.to_vector();
  const auto upstream = g.to_vector();
  const auto keys = k.to_vector();
  const auto got = dq.to_vector();
  Long worst = 0;
  for (int row = 0; row < rows; ++row) {
    const auto want = reference_dq(s.data() + row * m, upstream.data() + row * m,
                                   keys.data() + static_cast<std::ptrdiff_t>(row) * m * dk, m, dk);
    Long error = 0;
    Long size = 0;
    for (int i = 0; i < dk; ++i) {
      const Long want_i = want[static_cast<std::size_t>(i)];
      const Long off = got[static_cast<std::size_t>(row * dk + i)] - want_i;
      error += off * off;
      size += want_i * want_i;
    }
    worst = std::max(worst, std::sqrt(error / size));
  }
  return static_cast<double>(worst);
}

std::uint64_t bits(const Tensor& x, std::int64_t i) {
  std::uint64_t out = 0;
  visit_float(x.dtype(), "test", [&](auto zero) {
    const auto value = x.data<decltype(zero)>()[static_cast<std::size_t>(i)];
    std::memcpy(&out, &value, sizeof value);
  });
  return out;
}

// Empty when entries of equal class have equal bits.
std::string unequal(const Tensor& y, const std::vector<int>& classes) {
  std::vector<std::int64_t> first(8, -1);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    std::int64_t& seen = first[static_cast<std::size_t>(classes[i])];
    if (seen < 0) seen = static_cast<std::int64_t>(i);
    if (bits(y, seen) != bits(y, static_cast<std::int64_t>(i))) {
      return fmt::format("{} and {} of {} differ", seen, i, classes.size());
    }
  }
  return "";
}

}  // namespace

TEST_CASE("saturated softmax: dq of unscaled scores is right in every row") {
  const LeakGuard guard;
  CHECK(worst_error(DType::float32, 1000, 16, 256) < 1e-5);
  CHECK(worst_error(DType::float64, 1000, 16, 256) < 1e-14);
  // Rows of the wider kernels.
  CHECK(worst_error(DType::float32, 300, 17, 256) < 1e-5);
  CHECK(worst_error(DType::float32, 300, 70, 64) < 1e-5);
  CHECK(worst_error(DType::float32, 300, 3, 256) < 1e-5);
}

TEST_CASE("saturated softmax: the winner's gradient does not cancel") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::float64 ? 1e-14 : 1e-6;
    const auto soft = [](const Tensor& x) { return softmax(x); };
    const double slope = 2.061153613941e-9;  // p (1 - p), p = sigmoid(20)
    CHECK_NUMBERS(evaluate(soft, numbers({20.0, 0.0}, dtype), numbers({1.0, 2.0})).gradient,
                  {-slope, slope}, std::max(tolerance, 1e-12));
    CHECK_NUMBERS(evaluate(soft, numbers({0.0, 20.0}, dtype), numbers({2.0, 1.0})).gradient,
                  {slope, -slope}, std::max(tolerance, 1e-12));
    // Adding a constant to g changes nothing.
    CHECK_NUMBERS(evaluate(soft, numbers({20.0, 0.0}, dtype), numbers({1025.0, 1026.0})).gradient,
                  {-slope, slope}, std::max(tolerance, 1e-12));
    CHECK_NUMBERS(evaluate(soft, numbers({20.0, 0.0}, dtype), numbers({7.0, 7.0})).gradient,
                  {0.0, 0.0});
  }
}

TEST_CASE("equal scores get bit-equal weights wherever they stand") {
  const LeakGuard guard;
  Rng rng(12);
  for (const DType dtype : kFloats) {
    CAPTURE(to_string(dtype));
    for (std::int64_t m = 1; m <= 130; ++m) {
      CAPTURE(m);
      // All equal: 1 / m each.
      const std::vector<int> one(static_cast<std::size_t>(m), 0);
      const Tensor flat = softmax(full({m}, rng.normal(0, 5), {.dtype = dtype}));
      CHECK(unequal(flat, one) == "");
      CHECK(flat.to_vector()[0] == doctest::Approx(1.0 / static_cast<double>(m)));
      // Three scores, each at every place in one of three rows.
      const double scores[] = {rng.normal(0, 3), rng.normal(0, 3), rng.normal(0, 3)};
      const double upstream[] = {rng.normal(0, 1), rng.normal(0, 1), rng.normal(0, 1)};
      for (int shift = 0; shift < 3; ++shift) {
        std::vector<int> classes;
        std::vector<double> x;
        std::vector<double> g;
        for (std::int64_t j = 0; j < m; ++j) {
          classes.push_back(static_cast<int>((j + shift) % 3));
          x.push_back(scores[classes.back()]);
          g.push_back(upstream[classes.back()]);
        }
        const Tensor row = tensor(x, {.dtype = dtype});
        const auto soft = evaluate([](const Tensor& t) { return softmax(t); }, row, tensor(g));
        CHECK(unequal(soft.output, classes) == "");
        CHECK(unequal(soft.gradient, classes) == "");
        const auto log_soft =
            evaluate([](const Tensor& t) { return log_softmax(t); }, row, tensor(g));
        CHECK(unequal(log_soft.output, classes) == "");
        CHECK(unequal(log_soft.gradient, classes) == "");
        CHECK(unequal(evaluate([](const Tensor& t) { return logsumexp(t); }, row).gradient,
                      classes) == "");
      }
    }
  }
}

TEST_CASE("equal scores get bit-equal weights beside masked ones") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    for (const std::int64_t m : {2, 7, 16, 17, 31, 33, 64, 100, 130}) {
      CAPTURE(m);
      // Every query sees another number of equal keys, hidden ones behind or among them.
      const Tensor scores = full({m, m}, 1.25, {.dtype = dtype});
      const Tensor causal = softmax(scores, {.mask = Mask::causal()});
      for (std::int64_t i = 0; i < m; ++i) {
        std::vector<int> classes(static_cast<std::size_t>(m), 0);
        std::fill(classes.begin() + i + 1, classes.end(), 1);
        CHECK(unequal(causal[i], classes) == "");
      }
      std::vector<bool> hidden;
      std::vector<int> classes;
      for (std::int64_t j = 0; j < m; ++j) {
        hidden.push_back(j % 5 == 1);
        classes.push_back(hidden.back() ? 1 : 0);
      }
      const Mask mask = Mask::masked_out(tensor(hidden, {m}));
      const Tensor p = softmax(scores, {.mask = mask});
      for (std::int64_t i = 0; i < m; ++i) CHECK(unequal(p[i], classes) == "");
    }
  }
}
