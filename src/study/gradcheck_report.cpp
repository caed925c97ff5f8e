// How a gradient check reads when it is printed.
#include <fmt/format.h>

#include "softtape/study/gradcheck.hpp"
#include "study/index.hpp"

namespace softtape {

namespace detail {

std::string index_text(const Shape& shape, std::int64_t flat) {
  if (shape.rank() == 0) return "";
  std::int64_t index[Shape::kMaxRank];
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(index, index + shape.rank(), ", "));
}

void throw_arity(const char* op, std::size_t got) {
  throw ValueError(fmt::format(
      "[{}] the function cannot be called with {} tensor{}; pass as many inputs as it takes", op,
      got, got == 1 ? "" : "s"));
}

namespace {

std::string where(const GradcheckFailure& f) {
  if (f.input < 0) return "";
  if (f.element < 0) return fmt::format(" at {} {}", f.input_name, to_string(f.shape));
  return fmt::format(" at {}{}", f.input_name, index_text(f.shape, f.element));
}

std::string numbers(const GradcheckFailure& f) {
  return fmt::format(
      "analytic {:.10g}, numeric {:.10g}, error {:.3g} (relative {:.3g}), allowed {:.3g}, step "
      "{:.3g}{}",
      f.analytic, f.numeric, f.abs_error, f.rel_error, f.tolerance, f.step,
      f.element < 0 ? ", along a random direction" : "");
}

std::string what(const GradcheckFailure& f) {
  switch (f.kind) {
    case GradcheckFailure::Kind::mismatch:
      return "wrong: " + numbers(f);
    case GradcheckFailure::Kind::not_connected:
      return fmt::format("no gradient arrives, but the {} depends on it: {}; is the op recorded?",
                         f.order == 1 ? "function" : "gradient", numbers(f));
    case GradcheckFailure::Kind::non_differentiable:
      return fmt::format("non-differentiable point: the slope jumps by {:.3g}; {}", f.slope_jump,
                         numbers(f));
    case GradcheckFailure::Kind::not_finite:
      return fmt::format("not finite on both sides: {}", numbers(f));
    case GradcheckFailure::Kind::not_deterministic:
      return "two calls with the same inputs differ: make a new Rng in the function";
    case GradcheckFailure::Kind::needless_graph:
      return "the gradient has a graph without create_graph: the rule holds a tensor that has one";
    default:
      return "the rule threw: " + f.message;
  }
}

}  // namespace
}  // namespace detail

std::string to_string(const GradcheckFailure& failure) {
  return fmt::format("{}: order {}{}: {} (seed {})", failure.op, failure.order,
                     detail::where(failure), detail::what(failure), failure.seed);
}

std::string to_string(const GradcheckReport& report) {
  constexpr std::size_t kShown = 10;
  std::string text =
      fmt::format("gradcheck {}: {}, order {}, {} derivatives, largest error {:.2g} (seed {})",
                  report.passed ? "passed" : "FAILED", report.op, report.order, report.comparisons,
                  report.max_rel_error, report.seed);
  for (std::size_t i = 0; i < report.failures.size() && i < kShown; ++i) {
    text += "\n  " + to_string(report.failures[i]);
  }
  if (report.failures.size() > kShown) {
    text += fmt::format("\n  and {} more", report.failures.size() - kShown);
  }
  return text;
}

}  // namespace softtape
