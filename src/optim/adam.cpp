// Adam and AdamW: one pass over each parameter and its two moments.
#include "softtape/optim/adam.hpp"

#include <cmath>

#include "graph/node.hpp"

namespace softtape {

namespace {

// The numbers of one update that do not depend on the element.
template <class T>
struct Coefficients {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  T step;        // lr / (1 - beta1^t)
  T root_scale;  // 1 / sqrt(1 - beta2^t)
  T l2;          // added to the gradient, times p
  T keep;        // 1 - lr weight_decay of the decoupled form

  template <class Options>
  Coefficients(const Options& o, double lr, std::int64_t t, double l2_decay, double decoupled)
      : beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1 - o.beta2)),
        eps(static_cast<T>(o.eps)),
        step(static_cast<T>(lr / (1 - std::pow(o.beta1, static_cast<double>(t))))),
        root_scale(static_cast<T>(1 / std::sqrt(1 - std::pow(o.beta2, static_cast<double>(t))))),
        l2(static_cast<T>(l2_decay)),
        keep(static_cast<T>(1 - lr * decoupled)) {}
};

template <class T>
void adam_range(const Coefficients<T>& c, T* __restrict p, T* __restrict m, T* __restrict v,
                const T* __restrict g, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T slope = g[i] + c.l2 * p[i];
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * slope;
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (slope * slope);
    p[i] = c.keep * p[i] - c.step * m[i] / (std::sqrt(v[i]) * c.root_scale + c.eps);
  }
}

template <class Options>
void adam_update(const Tensor& parameter, const std::vector<Tensor>& moments,
                 const Tensor& gradient, std::int64_t begin, std::int64_t end,
                 const Options& options, double lr, std::int64_t t, double l2, double decoupled) {
  visit_float(gradient.dtype(), "Adam", [&](auto zero) {
    using T = decltype(zero);
    adam_range(
        Coefficients<T>(options, lr, t, l2, decoupled), detail::fresh_numbers<T>(parameter) + begin,
        detail::fresh_numbers<T>(moments[0]) + begin, detail::fresh_numbers<T>(moments[1]) + begin,
        detail::numbers<T>(gradient) + begin, end - begin);
  });
}

// The rules both share; `require` is the optimiser's own.
template <class Options, class Require>
void check_options(const Options& o, Require require) {
  require(o.beta1 >= 0 && o.beta1 < 1, "beta1 must lie in [0, 1)", "beta1", o.beta1);
  require(o.beta2 >= 0 && o.beta2 < 1, "beta2 must lie in [0, 1)", "beta2", o.beta2);
  require(std::isfinite(o.eps) && o.eps >= 0, "eps must be finite and not negative", "eps", o.eps);
  require(std::isfinite(o.weight_decay) && o.weight_decay >= 0,
          "weight decay must be finite and not negative", "weight_decay", o.weight_decay);
}

}  // namespace

Adam::Adam(const ParameterList& parameters, const AdamOptions& options)
    : Adam(std::vector<AdamGroup>{{parameters, options}}) {}

Adam::Adam(const std::vector<AdamGroup>& groups) : Optimizer("Adam", {"exp_avg", "exp_avg_sq"}) {
  for (const auto& [parameters, options] : groups) {
    check_options(options, [this](auto... rule) { require(rule...); });
    add_group(parameters, options.lr);
    options_.push_back(options);
  }
}

void Adam::update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
                  std::int64_t end) const {
  const AdamOptions& o = options_[static_cast<std::size_t>(entry.group)];
  adam_update(entry.parameter, entry.moments, gradient, begin, end, o, lr(entry.group), entry.steps,
              o.weight_decay, 0);
}

AdamW::AdamW(const ParameterList& parameters, const AdamWOptions& options)
    : AdamW(std::vector<AdamWGroup>{{parameters, options}}) {}

AdamW::AdamW(const std::vector<AdamWGroup>& groups)
    : Optimizer("AdamW", {"exp_avg", "exp_avg_sq"}) {
  for (const auto& [parameters, options] : groups) {
    check_options(options, [this](auto... rule) { require(rule...); });
    add_group(parameters, options.lr);
    options_.push_back(options);
  }
}

void AdamW::update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
                   std::int64_t end) const {
  const AdamWOptions& o = options_[static_cast<std::size_t>(entry.group)];
  adam_update(entry.parameter, entry.moments, gradient, begin, end, o, lr(entry.group), entry.steps,
              0, o.weight_decay);
}

}  // namespace softtape
