// Initialisers from normals and uniforms; orthogonal_ has a file of its own.
#include "softtape/nn/init.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"

namespace softtape::init {

namespace {

void check_gain(const char* op, double gain) {
  if (!std::isfinite(gain) || gain < 0) {
    throw ValueError(fmt::format("[{}] gain must be finite and not negative: got {}", op, gain));
  }
}

// A leaf, before any number is drawn.
void check_leaf(const char* op, const Tensor& x) {
  detail::check_float(op, "x", x);
  if (!x.is_leaf()) throw GraphError(fmt::format("[{}] x must be a leaf: it was computed", op));
}

double mean_fan(const Tensor& x) {
  const Fans f = fans(x.shape());
  return static_cast<double>(f.in + f.out) / 2;
}

double chosen_fan(const Tensor& x, Fan fan) {
  const Fans f = fans(x.shape());
  return static_cast<double>(fan == Fan::in ? f.in : f.out);
}

// Draws for tensors without elements have no fan; there is nothing to draw either.
double over(double numerator, double fan) { return fan > 0 ? numerator / fan : 0; }

Tensor& fill_normal(Tensor& x, Rng& rng, double mean, double std) {
  NoGrad guard;
  return x.copy_(normal(rng, mean, std, x.shape(), {.dtype = x.dtype()}));
}

Tensor& fill_uniform(Tensor& x, Rng& rng, double low, double high) {
  NoGrad guard;
  return x.copy_(uniform(rng, low, high, x.shape(), {.dtype = x.dtype()}));
}

}  // namespace

Fans fans(const Shape& shape) {
  if (shape.rank() < 2) {
    throw ShapeError(
        fmt::format("[fans] a weight needs rank 2 or more: got {}; use normal_ or "
                    "uniform_ with a width of your own",
                    to_string(shape)));
  }
  std::int64_t field = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) field *= shape[axis];
  return {.in = shape[1] * field, .out = shape[0] * field};
}

Tensor& normal_(Tensor& x, Rng& rng, NormalOptions o) {
  check_leaf("normal_", x);
  return fill_normal(x, rng, o.mean, o.std);
}

Tensor& uniform_(Tensor& x, Rng& rng, UniformOptions o) {
  check_leaf("uniform_", x);
  return fill_uniform(x, rng, o.low, o.high);
}

Tensor& xavier_uniform_(Tensor& x, Rng& rng, XavierOptions o) {
  check_leaf("xavier_uniform_", x);
  check_gain("xavier_uniform_", o.gain);
  const double bound = o.gain * std::sqrt(over(3, mean_fan(x)));
  return fill_uniform(x, rng, -bound, bound);
}

Tensor& xavier_normal_(Tensor& x, Rng& rng, XavierOptions o) {
  check_leaf("xavier_normal_", x);
  check_gain("xavier_normal_", o.gain);
  return fill_normal(x, rng, 0, o.gain * std::sqrt(over(1, mean_fan(x))));
}

Tensor& kaiming_uniform_(Tensor& x, Rng& rng, KaimingOptions o) {
  check_leaf("kaiming_uniform_", x);
  check_gain("kaiming_uniform_", o.gain);
  const double bound = o.gain * std::sqrt(over(3, chosen_fan(x, o.fan)));
  return fill_uniform(x, rng, -bound, bound);
}

Tensor& kaiming_normal_(Tensor& x, Rng& rng, KaimingOptions o) {
  check_leaf("kaiming_normal_", x);
  check_gain("kaiming_normal_", o.gain);
  return fill_normal(x, rng, 0, o.gain * std::sqrt(over(1, chosen_fan(x, o.fan))));
}

Tensor& linear_(Tensor& x, Rng& rng, std::int64_t fan_in) {
  check_leaf("linear_", x);
  if (fan_in < 1)
    throw ValueError(fmt::format("[linear_] fan_in must be positive: got {}", fan_in));
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return fill_uniform(x, rng, -bound, bound);
}

}  // namespace softtape::init
