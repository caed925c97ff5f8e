// Part 1: the lesson's numbers to 6 digits, beside those of an independent computation (12 digits,
// made with Python's decimal arithmetic), and Var(q.k) = dk.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "output.hpp"
#include "parts.hpp"
#include "softtape/attention/attention.hpp"
#include "softtape/base/random.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/study/probes.hpp"

namespace starvation {

using namespace softtape;

namespace {

constexpr TensorOptions kDouble{.dtype = DType::float64};

struct Pair {
  double score;                           // of the winner; the loser's is 0
  double winner, loser, slope, jacobian;  // expected
};
// softmax(s, 0): p = 1 / (1 + e^-s), slope p (1 - p), ||J||_F = 2 p (1 - p).
constexpr Pair kPairs[] = {
    {8, 0.999664649870, 3.353501304665e-04, 3.352376707565e-04, 6.704753415129e-04},
    {1, 0.731058578630, 2.689414213700e-01, 1.966119332415e-01, 3.932238664830e-01},
    {16, 0.999999887465, 1.125351620551e-07, 1.125351493909e-07, 2.250702987819e-07},
    {2, 0.880797077978, 1.192029220221e-01, 1.049935854035e-01, 2.099871708070e-01},
};

class LessonRows {
 public:
  explicit LessonRows(Table& table) : table_(table) {}
  void add(const std::string& quantity, double winner, double loser, double value,
           double expected) {
    table_.add({quantity, winner, loser, value, expected});
  }

 private:
  Table& table_;
};

// The slope p (1 - p) of a pair, measured: dp_winner / ds_winner.
double slope_of(double score) {
  const Tensor s = tensor({score, 0.0}, kDouble).requires_grad_();
  return grad(softmax(s)[0], s)[0][0].item();
}

void add_pair(const Pair& pair, LessonRows& rows) {
  const Tensor s = tensor({pair.score, 0.0}, kDouble).requires_grad_();
  const Tensor p = softmax(s);
  const Tensor g = grad(p[0], s)[0];
  const auto row = [&](const char* quantity, double value, double expected) {
    rows.add(quantity, pair.score, 0, value, expected);
  };
  row("weight of the winner", p[0].item(), pair.winner);
  row("weight of the loser", p[1].item(), pair.loser);
  row("d winner / d winner's score", g[0].item(), pair.slope);
  row("d winner / d loser's score", g[1].item(), -pair.slope);
  row("p (1 - p)", p[0].item() * p[1].item(), pair.slope);
  row("Jacobian norm", jacobian_frobenius_norm(p).item(), pair.jacobian);
}

// The gain of scaling by 1/8 (dk = 64) on the score gradient, and on the query gradient, which
// carries the factor too.
void add_gain(double unscaled, double expected, LessonRows& rows) {
  const double gain = slope_of(unscaled / 8) / slope_of(unscaled);
  rows.add("gain of scaling on the score gradient", unscaled, 0, gain, expected);
  rows.add("gain of scaling on the query gradient", unscaled, 0, gain / 8, expected / 8);
}

// Exercise 1: q = (1, 0) against the keys (1, 0) and (0, 1), values the same; dk = 2.
void add_exercise(LessonRows& rows) {
  const Tensor q = tensor({{1.0, 0.0}}, kDouble);
  const Tensor kv = tensor({{1.0, 0.0}, {0.0, 1.0}}, kDouble);
  const Attention a = scaled_dot_product_attention(q, kv, kv);
  constexpr double kScore = 0.707106781187, kFirst = 0.669761549327, kSecond = 0.330238450673;
  rows.add("exercise 1: score of key 1", kScore, 0, a.scores[0][0].item(), kScore);
  rows.add("exercise 1: weight of key 1", kScore, 0, a.weights[0][0].item(), kFirst);
  rows.add("exercise 1: weight of key 2", kScore, 0, a.weights[0][1].item(), kSecond);
  rows.add("exercise 1: output 1", kScore, 0, a.output[0][0].item(), kFirst);
  rows.add("exercise 1: output 2", kScore, 0, a.output[0][1].item(), kSecond);
}

// Var(q.k) = dk by Monte Carlo. The standard error of a variance s^2 over n draws is
// sqrt((m4 - s^4) / n), m4 the fourth central moment.
void add_variance(std::int64_t dk, LessonRows& rows, std::string& words) {
  constexpr std::int64_t kDraws = 20000;
  Rng rng(static_cast<std::uint64_t>(dk));
  const Tensor q = randn(rng, {kDraws, dk}, kDouble);
  const Tensor k = randn(rng, {kDraws, dk}, kDouble);
  const Tensor dots = sum(q * k, -1);
  const Tensor off = dots - mean(dots);
  const double variance = sum(off * off).item() / static_cast<double>(kDraws - 1);
  const double fourth = mean(off * off * off * off).item();
  const double error = std::sqrt((fourth - variance * variance) / static_cast<double>(kDraws));
  rows.add(fmt::format("Var(q.k), dk = {}", dk), 0, 0, variance, static_cast<double>(dk));
  rows.add(fmt::format("its standard error, dk = {}", dk), 0, 0, error,
           static_cast<double>(dk) * std::sqrt(2.0 / kDraws * (1 + 3.0 / static_cast<double>(dk))));
  words += fmt::format("  dk {:5}: Var(q.k) {:.6g} +- {:.2g}\n", dk, variance, error);
}

}  // namespace

bool run_lesson(const Options& options, Results& results, bool say) {
  LessonRows rows(results.lesson);
  for (const Pair& pair : kPairs) add_pair(pair, rows);
  add_gain(8, 586.485203, rows);
  add_gain(16, 932984.813827, rows);
  add_exercise(rows);
  std::string variances;
  for (const std::int64_t dk :
       options.dk.empty() ? std::vector<std::int64_t>{4, 64, 256} : options.dk) {
    add_variance(dk, rows, variances);
  }
  if (say) {
    say_heading("The lesson's numbers");
    fmt::print("{:<40} {:>14} {:>14} {:>16}\n", "quantity", "scores", "computed", "expected");
    for (const auto& row : results.lesson.rows()) {
      const double winner = std::get<double>(row[1]);
      fmt::print("{:<40} {:>14} {:>14.6g} {:>16.6g}\n", std::get<std::string>(row[0]),
                 winner == 0 ? "" : fmt::format("({:.6g}, 0)", winner), std::get<double>(row[3]),
                 std::get<double>(row[4]));
    }
    fmt::print("\nA dot product of dk unit-variance pairs has variance dk:\n{}", variances);
  }
  return true;
}

}  // namespace starvation
