// Adam, and AdamW with decoupled decay.
#pragma once

#include "softtape/optim/optimizer.hpp"

namespace softtape {

struct AdamOptions {
  double lr = 1e-3;         ///< finite, not negative
  double beta1 = 0.9;       ///< in [0, 1)
  double beta2 = 0.999;     ///< in [0, 1)
  double eps = 1e-8;        ///< finite, not negative
  double weight_decay = 0;  ///< finite, not negative; Adam adds it to the gradient
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< shrinks the parameter itself
};

/// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, and with the bias corrections
/// m_hat = m / (1 - beta1^t), v_hat = v / (1 - beta2^t): p -= lr m_hat / (sqrt(v_hat) + eps).
/// Weight decay is L2: g + weight_decay p takes the place of g.
/// Throws: ValueError for options out of range; see Optimizer.
/// Source: Kingma and Ba 2015, algorithm 1.
class SOFTTAPE_API Adam final : public Optimizer {
 public:
  explicit Adam(const ParameterList& parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);

 private:
  void update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
              std::int64_t end) const override;
  std::vector<AdamOptions> options_;
};

/// Adam with the decay outside the moments: p *= 1 - lr weight_decay first, then Adam's step.
/// Source: Loshchilov and Hutter 2019, algorithm 2, with the decay scaled by lr as in PyTorch.
class SOFTTAPE_API AdamW final : public Optimizer {
 public:
  explicit AdamW(const ParameterList& parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);

 private:
  void update(const Entry& entry, const Tensor& gradient, std::int64_t begin,
              std::int64_t end) const override;
  std::vector<AdamWOptions> options_;
};

using AdamGroup = ParameterGroup<AdamOptions>;
using AdamWGroup = ParameterGroup<AdamWOptions>;

}  // namespace softtape
