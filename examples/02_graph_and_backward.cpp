// 02: the graph and the walk back through it. A forward pass leaves one node per op; backward()
// visits them in reverse, each rule turning the gradient of its output into those of its inputs.
// Read next: 03, the rule of softmax.
//
// Prints:
//
//     Forward, one node per op:
//     #  op        name  shape  inputs  values   |grad|  line
//     0  leaf      w     ()             0.5
//     1  leaf      x     ()             2
//     2  leaf      b     ()             -0.25
//     3  constant  t     ()             1
//     4  mul       wx    ()     0, 1    1
//     5  add       z     ()     4, 2    0.75
//     6  tanh      y     ()     5       0.6351
//     7  sub       e     ()     6, 3    -0.3649
//     8  square    L     ()     7       0.1331
//
//     Backward, from the loss to the leaves:
//       dL/dL     =   1.0000   1: a quantity and itself
//       dL/de     =  -0.7297   square: 2 e
//       dL/dy     =  -0.7297   sub hands on what comes in
//       dL/dz     =  -0.4353   tanh: (1 - y^2)
//       dL/dwx    =  -0.4353   add hands on what comes in
//       dL/db     =  -0.4353   add, to its other input
//       dL/dw     =  -0.8707   mul: times x
//       dL/dx     =  -0.2177   mul: times w
//
//     The same by hand:
//       dL/dw     =  -0.8707   2 (y - t) (1 - y^2) x
//       d2L/dw2   =   5.0593   by differentiating dL/dw
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "softtape/softtape.hpp"

using namespace softtape;

namespace {

// Called when the walk has the whole gradient of a tensor: every use of it has been visited.
Tensor& told(Tensor& x, const char* rule) {
  const std::string name = x.name();
  x.register_hook([name, rule](const Tensor& g) {
    fmt::print("  dL/d{:<5} = {:>8.4f}   {}\n", name, g.item(), rule);
    return Tensor();
  });
  return x;
}

}  // namespace

int main() {
  const DefaultDtype dtype(DType::float64);
  // A neuron: y = tanh(w x + b), and its squared distance from a target.
  Tensor w = scalar(0.5).requires_grad_().named("w");
  Tensor x = scalar(2.0).requires_grad_().named("x");
  Tensor b = scalar(-0.25).requires_grad_().named("b");
  const Tensor target = scalar(1.0).named("t");

  Tensor product = mul(w, x).named("wx");
  Tensor sum = add(product, b).named("z");
  Tensor y = tanh(sum).named("y");
  Tensor error = sub(y, target).named("e");
  Tensor loss = square(error).named("L");
  fmt::print("Forward, one node per op:\n{}\n", trace(loss));

  fmt::print("\nBackward, from the loss to the leaves:\n");
  told(loss, "1: a quantity and itself");
  told(error, "square: 2 e");
  told(y, "sub hands on what comes in");
  told(sum, "tanh: (1 - y^2)");
  told(product, "add hands on what comes in");
  told(b, "add, to its other input");
  told(x, "mul: times w");
  told(w, "mul: times x");
  loss.backward();

  fmt::print("\nThe same by hand:\n");
  const double z = 0.5 * 2.0 - 0.25;
  const double slope = 2 * (std::tanh(z) - 1) * (1 - std::tanh(z) * std::tanh(z));
  fmt::print("  dL/dw     = {:>8.4f}   2 (y - t) (1 - y^2) x\n", slope * 2.0);

  // Gradients are tensors too: with create_graph they can be differentiated again.
  const Tensor v = scalar(0.5).requires_grad_();
  const Tensor again = square(sub(tanh(add(mul(v, 2.0), -0.25)), 1.0));
  const Tensor first = grad(again, v, {.create_graph = true})[0];
  fmt::print("  d2L/dw2   = {:>8.4f}   by differentiating dL/dw\n", grad(first, v)[0].item());
  return std::abs(w.grad().item() - slope * 2.0) < 1e-12 ? EXIT_SUCCESS : EXIT_FAILURE;
}
