// How the rules of elementwise ops and products hand gradients (cotangents) on to their inputs.
#pragma once

#include "graph/pass.hpp"
#include "softtape/ops/reduce.hpp"

namespace softtape::detail {

/// For rules: gives input i, which needs it, a gradient of the broadcast shape, summed to its own.
[[gnu::always_inline]] inline void set_summed(Vjp& r, int i, Tensor gx) {
  VjpState& pass = VjpState::of(r);
  Node& input = *pass.edge(i).node;
  if (shape_of(gx) != input.shape) {
    r.set(i, sum_to(gx, input.shape));
  } else if (pass.anomaly) {
    r.set(i, std::move(gx));
  } else {
    pass.deliver(input, std::move(gx));
  }
}

/// For rules: adds gy times input `factor`, which the op saved, straight to what has arrived at
/// input i, which needs it. False where nothing has, where shapes differ, or where somebody could
/// see the difference.
bool add_product_to_sum(Vjp& r, int i, int factor);

/// Whether a rule still reads gy after this.
enum class Upstream { kept, done };

/// For rules: gives input i, which needs it, gy times input `factor`, which the op saved, summed to
/// its own shape; in the memory of gy where nobody can see the difference.
void set_product(Vjp& r, int i, int factor, Upstream gy);

}  // namespace softtape::detail
