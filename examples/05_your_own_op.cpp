// 05: an op of your own: a function that computes, a rule beside it, and a check. Then the same op
// with three mistakes, to learn what the report of the checker says about each.
// Read next: 06, the probes on two kinds of attention.
//
// Prints:
//
//     softsign[-2.   0.5] = [-0.6667  0.3333]
//
//     gradcheck passed: softsign, order 2, 12 derivatives, largest error 1.1e-13 (seed 0)
//
//     gradcheck FAILED: forgets_square, order 1, 4 derivatives, largest error 0.51 (seed 0)
//       forgets_square: order 1 at 'x'[0]: wrong: analytic -0.3789872291, numeric -0.1263290764,
//           error 0.253 (relative 0.667), allowed 3.79e-07, step 0.000488 (seed 0)
//       forgets_square: order 1 at 'x'[1]: wrong: analytic -0.360649016, numeric -0.2404326773,
//           error 0.12 (relative 0.333), allowed 3.62e-07, step 0.000244 (seed 0)
//
//     gradcheck FAILED: forgets_upstream, order 1, 4 derivatives, largest error 0.68 (seed 0)
//       forgets_upstream: order 1 at 'x'[0]: wrong: analytic 0.1111111111, numeric -0.1263290764,
//           error 0.237 (relative 1.88), allowed 1.27e-07, step 0.000488 (seed 0)
//       forgets_upstream: order 1 at 'x'[1]: wrong: analytic 0.4444444444, numeric -0.2404326773,
//           error 0.685 (relative 1.54), allowed 4.45e-07, step 0.000244 (seed 0)
//
//     gradcheck passed: forgets_graph, order 1, 4 derivatives, largest error 1.1e-13 (seed 0)
//
//     gradcheck FAILED: forgets_graph, order 2, 12 derivatives, largest error 0.21 (seed 0)
//       forgets_graph: order 2 at 'x'[0]: no gradient arrives, but the gradient depends on it:
//           analytic 0, numeric -0.0852149942, error 0.0852 (relative 1), allowed 8.57e-08, step
//           0.000488; is the op recorded? (seed 0)
//       forgets_graph: order 2 at 'x'[1]: no gradient arrives, but the gradient depends on it:
//           analytic 0, numeric 0.2065026937, error 0.207 (relative 1), allowed 2.08e-07, step
//           0.000244; is the op recorded? (seed 0)
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

// softsign(x) = x / (1 + |x|), slope 1 / (1 + |x|)^2. The rule is written in ops, so that the
// gradient has a graph of its own and second derivatives come for nothing.
Tensor slope(const Tensor& x) { return div(1.0, square(add(abs(x), 1.0))); }

const OpInfo kSoftsign{"softsign", [](Vjp& r) { r.set(0, mul(r.gy(), slope(r.x(0)))); },
                       saves_inputs};

// Three rules with a mistake in them.
const OpInfo kForgetsSquare{
    "forgets_square", [](Vjp& r) { r.set(0, div(r.gy(), add(abs(r.x(0)), 1.0))); }, saves_inputs};
const OpInfo kForgetsUpstream{"forgets_upstream", [](Vjp& r) { r.set(0, slope(r.x(0))); },
                              saves_inputs};
const OpInfo kForgetsGraph{
    "forgets_graph", [](Vjp& r) { r.set(0, mul(r.gy(), slope(r.x(0).detach()))); }, saves_inputs};

// The forward pass: plain loops over the numbers, for every float type, then one call of record().
Tensor apply(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  visit_float(x.dtype(), op.name, [&](auto zero) {
    using T = decltype(zero);
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] / (1 + std::abs(in[i]));
  });
  return record(op, std::move(y), {x});
}

GradcheckReport check(const OpInfo& op, const Tensor& x, int order) {
  const GradcheckReport report =
      gradcheck([&](const Tensor& t) { return apply(op, t); }, {x}, {.order = order});
  fmt::print("{}\n\n", report);
  return report;
}

}  // namespace

int main() {
  const DefaultDtype dtype(DType::float64);
  const Tensor x = tensor({-2.0, 0.5}).requires_grad_().named("x");
  fmt::print("softsign{:.4} = {:.4}\n\n", x, apply(kSoftsign, x));

  const bool right = check(kSoftsign, x, 2).passed;
  const bool found = !check(kForgetsSquare, x, 1).passed && !check(kForgetsUpstream, x, 1).passed;
  // Right at first order; only the second shows that the gradient lost its way back to x.
  const bool subtle = check(kForgetsGraph, x, 1).passed && !check(kForgetsGraph, x, 2).passed;
  return right && found && subtle ? EXIT_SUCCESS : EXIT_FAILURE;
}
