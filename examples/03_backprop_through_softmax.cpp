// 03: backwards through softmax. Its Jacobian J = diag(p) - p p^T is never built: a backward pass
// needs J^T g only, which is p (g - p.g). Where softmax saturates that form cancels, and a shift
// that changes nothing in theory saves the digits. Read next: 04, a whole attention by hand.
//
// Prints:
//
//     p = [0.705385 0.259496 0.035119]
//     J = diag(p) - p p^T =
//     [[ 0.207817 -0.183045 -0.024772]
//      [-0.183045  0.192158 -0.009113]
//      [-0.024772 -0.009113  0.033886]]
//     g J           = [ 0.561521 -0.571918  0.010397]
//     p (g - p.g)   = [ 0.561521 -0.571918  0.010397]
//     the engine    = [ 0.561521 -0.571918  0.010397]
//     J times ones  = 0, so a constant added to g changes nothing: [ 0.561521 -0.571918  0.010397]
//     the sum of dL/ds is 0: what one score gains the others lose
//
//     saturated, float32: p = (1, 2.061e-09)
//     p (g - p.g)             = (0, 2.061e-09)
//     centred on the winner   = (-2.061e-09, 2.061e-09)
//     the engine              = (-2.061e-09, 2.061e-09)
//
//     cross-entropy, target 2: p - y = [[ 0.705385  0.259496 -0.964881]]
//                   the engine:      [[ 0.705385  0.259496 -0.964881]]
#include <fmt/core.h>

#include <cstdlib>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

// The rule as it stands in most textbooks.
Tensor usual_vjp(const Tensor& p, const Tensor& g) { return mul(p, sub(g, sum(mul(p, g)))); }

}  // namespace

int main() {
  bool right = true;
  {
    const DefaultDtype dtype(DType::float64);
    const Tensor s = tensor({2.0, 1.0, -1.0}).requires_grad_();
    const Tensor p = softmax(s);
    const Tensor g = tensor({1.0, -2.0, 0.5});  // dL/dp, whatever comes from above
    const Tensor j = softmax_jacobian(p);
    fmt::print("p = {:.6}\nJ = diag(p) - p p^T =\n{:.6}\n", p, j);

    const Tensor by_matrix = matmul(g, j);
    const Tensor by_engine = grad(p, s, {.grad_outputs = {g}, .retain_graph = true})[0];
    fmt::print("g J           = {:.6}\n", by_matrix);
    fmt::print("p (g - p.g)   = {:.6}\n", usual_vjp(p, g));
    fmt::print("the engine    = {:.6}\n", by_engine);
    fmt::print("J times ones  = 0, so a constant added to g changes nothing: {:.6}\n",
               usual_vjp(p, add(g, 100.0)));
    fmt::print("the sum of dL/ds is 0: what one score gains the others lose\n");
    right = right && allclose(by_matrix, by_engine) && allclose(usual_vjp(p, g), by_engine) &&
            allclose(j, jacobian([](const Tensor& x) { return softmax(x); }, s));
  }
  {
    // float32, and a winner 20 ahead: p = (1, 2e-9), g = (1, 2). The loser's gradient is
    // p2 (2 - 1); the winner's must be its negative, but 1 - p.g is lost in rounding.
    const Tensor s = tensor({20.0, 0.0}).requires_grad_();
    const Tensor p = softmax(s);
    const Tensor g = tensor({1.0, 2.0});
    fmt::print("\nsaturated, float32: p = ({:.9g}, {:.4g})\n", p.to_vector()[0], p.to_vector()[1]);
    const auto line = [](const char* name, const Tensor& ds) {
      fmt::print("{} ({:.4g}, {:.4g})\n", name, ds.to_vector()[0], ds.to_vector()[1]);
    };
    line("p (g - p.g)             =", usual_vjp(p, g));
    line("centred on the winner   =", usual_vjp(p, sub(g, select(g, 0, 0))));
    const Tensor by_engine = grad(p, s, {.grad_outputs = {g}})[0];
    line("the engine              =", by_engine);
    right = right && by_engine.to_vector()[0] == -by_engine.to_vector()[1];
  }
  {
    // Cross-entropy on top: J cancels against dL/dp = -1/p, and what is left never saturates.
    const DefaultDtype dtype(DType::float64);
    Tensor z = tensor({{2.0, 1.0, -1.0}}).requires_grad_();
    const Tensor target = tensor({2});
    cross_entropy(z, target).backward();
    const Tensor p_minus_y = sub(softmax(z), one_hot(target, 3));
    fmt::print("\ncross-entropy, target 2: p - y = {:.6}\n", p_minus_y.detach());
    fmt::print("              the engine:      {:.6}\n", z.grad());
    right = right && allclose(z.grad(), p_minus_y);
  }
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
