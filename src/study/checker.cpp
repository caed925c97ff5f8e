// Compares d<weights, f(x)> / dx by the rules with differences: number by number when a tensor is
// small, along random directions always. A direction that fails is halved down to the number that
// is to blame.
#include "study/checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/node.hpp"
#include "softtape/base/random.hpp"
#include "study/difference.hpp"

namespace softtape::detail {
namespace {

using Kind = GradcheckFailure::Kind;
using Numbers = std::vector<double>;

// All numbers of a list of tensors; an undefined one counts as `sizes[i]` zeros.
Numbers flatten(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& sizes) {
  Numbers all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Numbers numbers = tensors[i].defined() ? tensors[i].to_vector()
                                                 : Numbers(static_cast<std::size_t>(sizes[i]), 0.0);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

bool same_numbers(const Numbers& a, const Numbers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (x != x && y != y); });
}

class Checker {
 public:
  Checker(const Problem& problem, const GradcheckOptions& options, bool single,
          GradcheckReport& report)
      : problem_(problem), options_(options), report_(report), rng_({options.seed, 1}) {
    difference_.first_step = options.step.value_or(single ? 0x1p-5 : 0x1p-10);
    difference_.last_step = std::min(difference_.first_step / 8, single ? 0x1p-10 : 0x1p-24);
    difference_.rtol = options.rtol.value_or(single ? 1e-2 : 1e-6);
    difference_.atol = options.atol.value_or(single ? 1e-3 : 1e-9);
    difference_.epsilon =
        single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  }

  // False when nothing could be compared.
  bool run() {
    const std::vector<Tensor> outputs = problem_.f(problem_.inputs, false);
    for (const Tensor& y : outputs) sizes_.push_back(y.defined() ? y.numel() : 0);
    for (std::size_t i = 0; problem_.order == 2 && i < outputs.size(); ++i) {
      sizes_[i] = problem_.inputs[i].numel();  // an undefined gradient stands for zeros
    }
    at_zero_ = flatten(outputs, sizes_);
    if (!same_numbers(at_zero_, flatten(problem_.f(problem_.inputs, false), sizes_))) {
      fail(Kind::not_deterministic);
      return false;
    }
    weights_ = random_weights(options_.seed, at_zero_.size());
    if (!differentiate()) return false;
    for (std::size_t i = 0; i < problem_.inputs.size(); ++i) {
      if (problem_.checked[i]) check_input(i);
    }
    return true;
  }

 private:
  struct Comparison {
    double analytic;
    Slope numeric;
    double tolerance;
    double difference;
    bool kink, wrong;
    bool failed() const { return !numeric.finite || kink || wrong; }
    // How bad, to find the worst half of a direction.
    double badness() const {
      return numeric.finite ? std::max(std::abs(difference), std::abs(numeric.jump))
                            : std::numeric_limits<double>::infinity();
    }
  };

  // The gradients of <weights, outputs> by the rules.
  bool differentiate() {
    std::vector<Tensor> leaves;
    std::vector<Tensor> wanted;
    for (std::size_t i = 0; i < problem_.inputs.size(); ++i) {
      leaves.push_back(moved(problem_.inputs[i], 0, {}));
      if (problem_.checked[i]) wanted.push_back(leaves.back().requires_grad_());
    }
    std::vector<Tensor> gradients(wanted.size());
    try {
      std::vector<Tensor> connected;
      GradOptions options{.allow_unused = true};
      std::size_t start = 0;
      const std::vector<Tensor> outputs = problem_.f(leaves, true);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].defined() && outputs[i].requires_grad()) {
          connected.push_back(outputs[i]);
          options.grad_outputs.push_back(
              tensor_from(weights_.data() + start, outputs[i].shape(), outputs[i].dtype()));
        }
        start += static_cast<std::size_t>(sizes_[i]);
      }
      if (!connected.empty()) gradients = grad(connected, wanted, options);
    } catch (const std::exception& thrown) {
      fail(Kind::error).message = thrown.what();
      return false;
    }
    auto next = gradients.begin();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Tensor g = problem_.checked[i] ? *next++ : Tensor();
      connected_.push_back(g.defined());
      analytic_.push_back(flatten({g}, {leaves[i].numel()}));
      if (g.defined() && g.requires_grad()) locate(fail(Kind::needless_graph), i);
    }
    return true;
  }

  Comparison compare(std::size_t input, const Numbers& direction) {
    const Curve curve = [&](double t) {
      std::vector<Tensor> x = problem_.inputs;
      x[input] = moved(x[input], t, direction);
      return flatten(problem_.f(x, false), sizes_);
    };
    Comparison c{};
    for (std::size_t j = 0; j < direction.size(); ++j) {
      if (direction[j] != 0) c.analytic += direction[j] * analytic_[input][j];
    }
    c.numeric = slope_at_zero(curve, at_zero_, weights_, difference_);
    c.difference = c.analytic - c.numeric.value;
    // A function with a bent slope converges too slowly for atol: its error estimate counts, within
    // limits.
    c.tolerance = difference_.atol + c.numeric.noise +
                  std::min(c.numeric.error, 100 * difference_.atol) +
                  difference_.rtol * std::max(std::abs(c.analytic), std::abs(c.numeric.value));
    c.wrong = !(std::abs(c.difference) <= c.tolerance);
    c.kink = std::abs(c.numeric.jump) > kJumpFactor * c.tolerance ||
             (c.wrong && c.numeric.error > c.tolerance);
    ++report_.comparisons;
    if (c.numeric.finite && !c.kink) {
      report_.max_rel_error = std::max(
          report_.max_rel_error, std::abs(c.difference) / std::max(1.0, std::abs(c.numeric.value)));
    }
    return c;
  }

  double scale(std::size_t input, std::size_t j) const {
    return std::max(1.0, std::abs(start_[input][j]));
  }

  bool check_entry(std::size_t input, std::size_t j) {
    Numbers direction(analytic_[input].size(), 0.0);
    direction[j] = scale(input, j);
    const Comparison c = compare(input, direction);
    if (c.failed()) report(c, input, static_cast<std::int64_t>(j), direction[j]);
    return !c.failed();
  }

  void check_input(std::size_t input) {
    start_.resize(problem_.inputs.size());
    start_[input] = problem_.inputs[input].to_vector();
    const std::size_t n = start_[input].size();
    bool good = true;
    if (static_cast<std::int64_t>(n) <= options_.max_entries) {
      for (std::size_t j = 0; j < n; ++j) good = check_entry(input, j) && good;
    }
    for (int k = 0; k < options_.directions && n > 0; ++k) {
      Numbers direction(n);
      for (std::size_t j = 0; j < n; ++j) {
        direction[j] = std::clamp(rng_.standard_normal(), -3.0, 3.0) / 3 * scale(input, j);
      }
      const Comparison c = compare(input, direction);
      if (c.failed() && good) good = narrow(input, direction, c);
    }
  }

  // A direction failed: halves it towards the number that is to blame.
  bool narrow(std::size_t input, Numbers direction, const Comparison& whole) {
    std::size_t begin = 0;
    std::size_t end = direction.size();
    while (end - begin > 1) {
      const std::size_t middle = begin + (end - begin) / 2;
      Numbers halves[2] = {direction, direction};
      std::fill(halves[0].begin() + static_cast<std::ptrdiff_t>(middle), halves[0].end(), 0.0);
      std::fill(halves[1].begin(), halves[1].begin() + static_cast<std::ptrdiff_t>(middle), 0.0);
      const bool second = compare(input, halves[1]).badness() > compare(input, halves[0]).badness();
      direction = std::move(halves[second]);
      (second ? begin : end) = middle;
    }
    if (check_entry(input, begin)) report(whole, input, -1, 1);
    return false;
  }

  GradcheckFailure& fail(Kind kind) { return add_failure(report_, kind, problem_.order); }

  void locate(GradcheckFailure& failure, std::size_t input) {
    failure.input = static_cast<int>(input);
    failure.input_name = label(problem_.inputs[input], fmt::format("input {}", input));
    failure.shape = problem_.inputs[input].shape();
  }

  void report(const Comparison& c, std::size_t input, std::int64_t element, double unit) {
    const bool lost = !connected_[input] && c.wrong;
    GradcheckFailure& failure = fail(!c.numeric.finite ? Kind::not_finite
                                     : c.kink          ? Kind::non_differentiable
                                     : lost            ? Kind::not_connected
                                                       : Kind::mismatch);
    locate(failure, input);
    failure.element = element;
    failure.analytic = c.analytic / unit;
    failure.numeric =
        c.numeric.finite ? c.numeric.value / unit : std::numeric_limits<double>::quiet_NaN();
    failure.abs_error = std::abs(failure.analytic - failure.numeric);
    if (failure.abs_error != 0) {
      failure.rel_error =
          failure.abs_error / std::max(std::abs(failure.analytic), std::abs(failure.numeric));
    }
    failure.slope_jump = c.numeric.jump / unit;
    failure.step = c.numeric.step * unit;
    failure.tolerance = c.tolerance / unit;
  }

  const Problem& problem_;
  const GradcheckOptions& options_;
  GradcheckReport& report_;
  Rng rng_;
  DifferenceOptions difference_;
  std::vector<std::int64_t> sizes_;  // of the outputs
  Numbers at_zero_;                  // the outputs at the inputs
  Numbers weights_;                  // of the outputs
  std::vector<Numbers> analytic_;    // gradients by the rules, per input
  std::vector<Numbers> start_;       // numbers of the inputs
  std::vector<bool> connected_;      // whether there was a gradient, per input
};

}  // namespace

bool check_problem(const Problem& problem, const GradcheckOptions& options, bool single,
                   GradcheckReport& report) {
  return Checker(problem, options, single, report).run();
}

GradcheckFailure& add_failure(GradcheckReport& report, GradcheckFailure::Kind kind, int order) {
  report.passed = false;
  GradcheckFailure& failure = report.failures.emplace_back();
  failure.kind = kind;
  failure.order = order;
  failure.op = report.op;
  failure.seed = report.seed;
  return failure;
}

Tensor moved(const Tensor& x, double t, const std::vector<double>& direction) {
  const NoGrad mode;
  Tensor copy = x.detach().clone();
  if (!x.name().empty()) copy.named(x.name());
  if (direction.empty()) return copy;
  visit_float(x.dtype(), "gradcheck", [&](auto zero) {
    using T = decltype(zero);
    const auto numbers = copy.mutable_data<T>();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (direction[i] != 0) numbers[i] = static_cast<T>(numbers[i] + t * direction[i]);
    }
  });
  return copy;
}

Tensor tensor_from(const double* numbers, const Shape& shape, DType dtype) {
  Tensor t = make_tensor(shape, dtype);
  visit_float(dtype, "gradcheck", [&](auto zero) {
    using T = decltype(zero);
    std::transform(numbers, numbers + shape.numel(), fresh_numbers<T>(t),
                   [](double x) { return static_cast<T>(x); });
  });
  return t;
}

std::vector<double> random_weights(std::uint64_t seed, std::size_t n) {
  Rng rng(seed);
  Numbers weights(n);
  for (double& w : weights) {
    const double size = rng.uniform(0.5, 1.5);
    w = rng.random() < 0.5 ? -size : size;
  }
  return weights;
}

}  // namespace softtape::detail
