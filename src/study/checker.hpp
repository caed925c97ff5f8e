// One order of a gradient check: derivatives of a function of tensors to tensors, by the rules and
// by differences.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "softtape/study/gradcheck.hpp"

namespace softtape::detail {

/// What is checked: a function of tensors to tensors whose graph says how it depends on them.
struct Problem {
  /// Called with leaves to differentiate when `recording`, else for values alone.
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>, bool recording)>;
  Function f;
  std::vector<Tensor> inputs;
  std::vector<bool> checked;
  int order;
};

/// Checks every input that is to be checked and reports into `report`; `single` means float32.
/// Returns false when nothing could be compared.
bool check_problem(const Problem& problem, const GradcheckOptions& options, bool single,
                   GradcheckReport& report);

/// A failed report gets one more failure.
GradcheckFailure& add_failure(GradcheckReport& report, GradcheckFailure::Kind kind, int order);

/// A copy outside any graph, moved by t * direction (if there is one); keeps the name.
Tensor moved(const Tensor& x, double t, const std::vector<double>& direction);

/// The numbers as a fresh tensor.
Tensor tensor_from(const double* numbers, const Shape& shape, DType dtype);

/// Random numbers away from zero and of both signs, so that no output goes unseen and no symmetry
/// hides an error.
std::vector<double> random_weights(std::uint64_t seed, std::size_t n);

}  // namespace softtape::detail
