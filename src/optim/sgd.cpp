// SGD: one pass over each parameter.
#include "softtape/optim/sgd.hpp"

#include <cmath>

#include "graph/node.hpp"

namespace softtape {

SGD::SGD(const ParameterList& parameters, const SgdOptions& options)
    : SGD(std::vector<SgdGroup>{{parameters, options}}) {}

SGD::SGD(const std::vector<SgdGroup>& groups) : Optimizer("SGD", {"momentum"}) {
  for (const auto& [parameters, o] : groups) {
    require(o.momentum >= 0 && o.momentum <= 1, "momentum must lie in [0, 1]", "momentum",
            o.momentum);
    require(!o.nesterov || o.momentum > 0, "Nesterov's form needs momentum", "momentum",
            o.momentum);
    require(std::isfinite(o.weight_decay) && o.weight_decay >= 0,
            "weight decay must be finite and not negative", "weight_decay", o.weight_decay);
    add_group(parameters, o.lr);
    options_.push_back(o);
  }
}

bool SGD::keeps_moments(int group) const {
  return options_[static_cast<std::size_t>(group)].momentum > 0;
}

void SGD::update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
                 std::int64_t end) const {
  const SgdOptions& o = options_[static_cast<std::size_t>(entry.group)];
  visit_float(gradient.dtype(), "SGD", [&](auto zero) {
    using T = decltype(zero);
    T* p = detail::fresh_numbers<T>(entry.parameter);
    T* v = entry.moments.empty() ? nullptr : detail::fresh_numbers<T>(entry.moments[0]);
    const T* g = detail::numbers<T>(gradient);
    const T rate = static_cast<T>(lr(entry.group));
    const T mu = static_cast<T>(o.momentum);
    const T decay = static_cast<T>(o.weight_decay);
    if (!v) {
      for (std::int64_t i = begin; i < end; ++i) p[i] -= rate * (g[i] + decay * p[i]);
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const T slope = g[i] + decay * p[i];
      v[i] = mu * v[i] + slope;
      p[i] -= rate * (o.nesterov ? slope + mu * v[i] : v[i]);
    }
  });
}

}  // namespace softtape
