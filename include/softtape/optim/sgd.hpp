// Stochastic gradient descent.
#pragma once

#include "softtape/optim/optimizer.hpp"

namespace softtape {

struct SgdOptions {
  double lr = 1e-3;         ///< finite, not negative
  double momentum = 0;      ///< mu, in [0, 1]
  bool nesterov = false;    ///< needs momentum
  double weight_decay = 0;  ///< finite, not negative
};

/// g' = g + weight_decay p, v = mu v + g', p -= lr v; Nesterov: p -= lr (g' + mu v).
/// No dampening: the first v is g'. Without momentum v = g' and nothing is kept.
/// Throws: ValueError for options out of range; see Optimizer.
/// Source: Sutskever et al. 2013, in the form of PyTorch.
class SOFTTAPE_API SGD final : public Optimizer {
 public:
  explicit SGD(const ParameterList& parameters, const SgdOptions& options = {});
  explicit SGD(const std::vector<ParameterGroup<SgdOptions>>& groups);

 private:
  bool keeps_moments(int group) const override;
  void update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
              std::int64_t end) const override;
  std::vector<SgdOptions> options_;
};

using SgdGroup = ParameterGroup<SgdOptions>;

}  // namespace softtape
