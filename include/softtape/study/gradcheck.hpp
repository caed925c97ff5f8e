// gradcheck: compares the gradients of a function with differences of its values, to second order.
//
//     fmt::print("{}\n", gradcheck(cube, {x}, {.order = 2}));
//
// It is how every op of the library is tested, and how an op of one's own should be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/study/formatter.hpp"
#include "softtape/study/function.hpp"

namespace softtape {

struct GradcheckOptions {
  /// 1 checks gradients, 2 also the gradients of gradients.
  int order = 1;
  /// Largest step, relative to max(1, |x|); it is halved until the differences settle.
  /// Unset: 2^-10, in float32 2^-5.
  std::optional<double> step = {};
  /// Analytic and numeric values may differ by atol + rtol max(|analytic|, |numeric|), and by what
  /// rounding makes of the difference. Unset: 1e-6 and 1e-9, in float32 1e-2 and 1e-3.
  std::optional<double> rtol = {};
  std::optional<double> atol = {};
  /// Of the weights that make one number of the outputs, and of the directions.
  std::uint64_t seed = 0;
  /// Tensors of up to this many numbers are checked number by number ...
  std::int64_t max_entries = 64;
  /// ... and all of them along this many random directions.
  int directions = 2;
  /// float32 is refused otherwise: its rounding hides errors below a percent.
  bool allow_float32 = false;
  /// What the report calls the function. Unset: the ops it recorded.
  std::string name = {};
};

/// One number that is not as it should be.
struct SOFTTAPE_API GradcheckFailure {
  enum class Kind {
    mismatch,            ///< analytic and numeric derivative differ
    not_connected,       ///< the function depends on the input, its graph does not
    non_differentiable,  ///< slopes from the left and from the right differ: a kink or a jump
    not_finite,          ///< the function is NaN or infinite around the input
    not_deterministic,   ///< two calls with the same inputs differ
    needless_graph,      ///< a gradient has a graph although none was asked for
    error,               ///< a rule threw
  };
  Kind kind = Kind::mismatch;
  int order = 1;              ///< 1: derivative of the function, 2: of its gradients
  std::string op;             ///< the ops of the function, or GradcheckOptions::name
  int input = -1;             ///< which tensor; one past the last is the upstream gradient gy
  std::string input_name;     ///< its name, or "input 0"
  Shape shape;                ///< its shape
  std::int64_t element = -1;  ///< flat index; -1 for a random direction
  double analytic = 0;        ///< from the rules
  double numeric = 0;         ///< from differences
  double abs_error = 0;       ///< |analytic - numeric|
  double rel_error = 0;       ///< abs_error / max(|analytic|, |numeric|)
  double slope_jump = 0;      ///< right slope minus left slope
  double step = 0;            ///< last step of the differences
  double tolerance = 0;       ///< what abs_error was allowed to be
  std::uint64_t seed = 0;
  std::string message;  ///< of the exception, for Kind::error
};

/// What gradcheck found. Converts to bool and prints itself.
struct SOFTTAPE_API GradcheckReport {
  bool passed = true;
  std::string op;
  int order = 1;
  std::uint64_t seed = 0;
  std::int64_t comparisons = 0;  ///< derivatives that were compared
  double max_rel_error = 0;      ///< largest error in units of max(1, |derivative|)
  std::vector<GradcheckFailure> failures = {};
  explicit operator bool() const { return passed; }
};

SOFTTAPE_API std::string to_string(const GradcheckFailure& failure);
/// One line when all is well, else one more per failure (the first ten).
SOFTTAPE_API std::string to_string(const GradcheckReport& report);

namespace detail {
SOFTTAPE_API GradcheckReport gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                                       const GradcheckOptions& options);
}

/// Compares d f / d inputs by rule with central differences, extrapolated to step 0 (Ridders).
/// `f` takes as many tensors as there are inputs, or a span of them, and returns a float tensor; it
/// must give the same numbers for the same inputs. Checked are the inputs that require a gradient,
/// or all float ones when none does. The outputs are reduced to one number with random weights, so
/// that no error cancels. Order 2 checks (inputs, gy) -> gradients in the same way.
/// A mismatch is reported, not thrown; so are kinks, gradients that are not connected to their
/// inputs, and rules that throw. Works on copies: values, versions, `.grad()` and graphs of the
/// inputs stay as they are. Cost: a few forward passes per number, or per direction.
/// Throws: ValueError for no inputs, nothing to check or an option out of range; DtypeError for
/// float32 unless allowed, or an output that is not float; GraphError for an undefined tensor;
/// whatever `f` throws at the inputs given.
/// Source: Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Adv. Eng. Software 4 (1982).
template <class F>
GradcheckReport gradcheck(F&& f, const TensorList& inputs, const GradcheckOptions& options = {}) {
  return detail::gradcheck(detail::tensor_function("gradcheck", f), *inputs, options);
}

}  // namespace softtape

template <>
struct fmt::formatter<softtape::GradcheckReport> : softtape::detail::ReportFormatter {};
template <>
struct fmt::formatter<softtape::GradcheckFailure> : softtape::detail::ReportFormatter {};
