// gradcheck states two problems for the checker (checker.hpp). First order: the function itself.
// Second order: the function (inputs, gy) -> gradients, whose values come from the rules as
// backward() runs them and whose derivatives from the same rules recorded.
#include "softtape/study/gradcheck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/node.hpp"
#include "softtape/study/trace.hpp"
#include "study/checker.hpp"

namespace softtape::detail {
namespace {

void check_options(const GradcheckOptions& options) {
  const auto positive = [](const char* option, double value) {
    if (!(value > 0 && std::isfinite(value))) {
      throw ValueError(
          fmt::format("[gradcheck] {} must be positive and finite: got {}", option, value));
    }
  };
  if (options.order != 1 && options.order != 2) {
    throw ValueError(fmt::format("[gradcheck] order must be 1 or 2: got {}", options.order));
  }
  if (options.step) positive("step", *options.step);
  if (options.rtol) positive("rtol", *options.rtol);
  if (options.atol && !(*options.atol >= 0 && std::isfinite(*options.atol))) {
    throw ValueError(
        fmt::format("[gradcheck] atol must be finite and at least 0: got {}", *options.atol));
  }
  if (options.directions < 0 || options.max_entries < 0) {
    throw ValueError(
        fmt::format("[gradcheck] directions and max_entries must be at least 0: got {} and {}",
                    options.directions, options.max_entries));
  }
  if (options.directions == 0 && options.max_entries == 0) {
    throw ValueError("[gradcheck] directions and max_entries are both 0: nothing would be checked");
  }
}

// Which inputs are checked. Throws when there is none, and for float32 unless it is allowed.
std::vector<bool> choose(const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  if (inputs.empty()) throw ValueError("[gradcheck] needs at least one input");
  std::vector<bool> wanted;
  std::vector<bool> floating;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = node_of("gradcheck", fmt::format("input {}", i).c_str(), inputs[i]);
    wanted.push_back(node.requires_grad);
    floating.push_back(is_floating(node.dtype));
    if (node.dtype == DType::float32 && !options.allow_float32) {
      throw DtypeError(fmt::format(
          "[gradcheck] {} is float32, too coarse for differences: convert it with "
          "to(x, DType::float64), or pass {{.allow_float32 = true}} for a check to a percent",
          label(inputs[i], fmt::format("input {}", i))));
    }
  }
  if (std::count(wanted.begin(), wanted.end(), true) > 0) return wanted;
  if (std::count(floating.begin(), floating.end(), true) > 0) return floating;
  throw ValueError("[gradcheck] no input is float: there is no gradient to check");
}

std::string op_names(const Tensor& y) {
  std::string names;
  std::vector<std::string> seen;
  for (const TraceRow& row : trace(y, {.max_nodes = 200, .values = false}).rows) {
    if (row.op.empty() || std::count(seen.begin(), seen.end(), row.op)) continue;
    seen.push_back(row.op);
    names += (names.empty() ? "" : ", ") + row.op;
  }
  return names.empty() ? "a function that records nothing" : names;
}

}  // namespace

GradcheckReport gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  check_options(options);
  const std::vector<bool> checked = choose(inputs, options);
  const EnableGrad mode;
  const auto copies = [&](std::span<const Tensor> from, bool recording) {
    std::vector<Tensor> x;
    for (std::size_t i = 0; i < checked.size(); ++i) {
      // A leaf that is being recorded is passed on as it is: its gradient will be asked for.
      x.push_back(recording ? from[i] : moved(from[i], 0, {}));
      if (!recording) x.back().requires_grad_(checked[i]);
    }
    return x;
  };

  Problem first{{}, {}, checked, 1};
  for (const Tensor& x : inputs) first.inputs.push_back(moved(x, 0, {}));
  first.f = [&](std::span<const Tensor> from, bool recording) {
    const Tensor y = f(copies(from, recording));
    check_float("gradcheck", "the result", y);
    return std::vector<Tensor>{y};
  };
  const Tensor y = first.f(first.inputs, false)[0];
  const bool single = y.dtype() == DType::float32 ||
                      std::any_of(inputs.begin(), inputs.end(),
                                  [](const Tensor& x) { return x.dtype() == DType::float32; });
  if (single && !options.allow_float32) {
    throw DtypeError(
        "[gradcheck] the result is float32, too coarse for differences: compute in float64, or "
        "pass {.allow_float32 = true} for a check to a percent");
  }

  GradcheckReport report{.op = options.name.empty() ? op_names(y) : options.name,
                         .order = options.order,
                         .seed = options.seed};
  const bool compared = check_problem(first, options, single, report);
  if (options.order == 1 || !compared || !report.passed) return report;

  // One gradient per input, undefined for those that are not checked; gy is one input more.
  Problem second{{}, first.inputs, checked, 2};
  const std::vector<double> upstream =
      random_weights(options.seed + 1, static_cast<std::size_t>(y.numel()));
  second.inputs.push_back(tensor_from(upstream.data(), y.shape(), y.dtype()).named("gy"));
  second.checked.push_back(true);
  second.f = [&](std::span<const Tensor> from, bool recording) {
    const std::vector<Tensor> x = copies(from, recording);
    const Tensor value = f(x);
    std::vector<Tensor> wanted;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (checked[i]) wanted.push_back(x[i]);
    }
    std::vector<Tensor> gradients(wanted.size());
    if (value.requires_grad()) {
      gradients =
          grad(value, wanted,
               {.grad_outputs = {from.back()}, .create_graph = recording, .allow_unused = true});
    }
    std::vector<Tensor> placed(x.size());
    for (std::size_t i = 0, next = 0; i < x.size(); ++i) {
      if (checked[i]) placed[i] = gradients[next++];
    }
    return placed;
  };
  try {
    check_problem(second, options, single, report);
  } catch (const std::exception& thrown) {
    add_failure(report, GradcheckFailure::Kind::error, 2).message = thrown.what();
  }
  return report;
}

}  // namespace softtape::detail
