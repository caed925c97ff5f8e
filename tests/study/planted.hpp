// What the tests of the checker share: an op of one's own with a right and with a wrong rule.
#pragma once

#include <fmt/format.h>

#include <string>

#include "softtape/graph/op.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/study/gradcheck.hpp"
#include "support/compare.hpp"

namespace planted {

using namespace softtape;

using test_support::contains;
using test_support::kDouble;
using test_support::random;

// An op of one's own: x^3, with whatever rule it is given.
inline Tensor cubed(const OpInfo& op, const Tensor& x) {
  Tensor y = empty_like(x);
  visit_float(x.dtype(), op.name, [&](auto zero) {
    using T = decltype(zero);
    const auto in = x.data<T>();
    const auto out = y.mutable_data<T>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i] * in[i];
  });
  return record(op, std::move(y), {x});
}

inline const OpInfo kCube{"cube", [](Vjp& r) { r.set(0, r.gy() * 3 * square(r.x(0))); },
                          saves_inputs};
inline const OpInfo kSign{"cube_sign", [](Vjp& r) { r.set(0, r.gy() * -3 * square(r.x(0))); },
                          saves_inputs};

inline std::string text(const GradcheckReport& report) { return fmt::format("{}", report); }

}  // namespace planted
