// Probes of parameter gradients.
#include "softtape/study/gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/node.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/study/derivatives.hpp"

namespace softtape {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The Euclidean norm, in double whatever x is.
double norm_of(const Tensor& x) {
  const NoGrad values_only;
  return norm(to(x.detach(), DType::float64)).item();
}

double ratio_of(double a, double b) { return b == 0 ? 0 : a / b; }

NoiseScale noise_scale(double trace_cov, double signal) {
  return {trace_cov, signal, signal > 0 ? trace_cov / signal : kInf};
}

void check_eigen(const EigenOptions& options) {
  if (options.max_iterations < 1) {
    throw ValueError(
        fmt::format("[top_hessian_eigenvalue] max_iterations must be 1 or more: got {}",
                    options.max_iterations));
  }
  if (!(options.tolerance >= 0)) {
    throw ValueError(
        fmt::format("[top_hessian_eigenvalue] tolerance must not be negative or NaN: got {}",
                    options.tolerance));
  }
}

}  // namespace

std::vector<GradientNorm> gradient_norms(const ParameterList& parameters) {
  std::vector<GradientNorm> norms;
  for (const auto& [name, parameter] : *parameters) {
    detail::check_float("gradient_norms", name.c_str(), parameter);
    const Tensor gradient = parameter.grad();
    norms.push_back({name, gradient.defined() ? norm_of(gradient) : 0, norm_of(parameter)});
  }
  return norms;
}

State parameter_snapshot(const ParameterList& parameters) {
  const NoGrad values_only;
  State copies;
  for (const auto& [name, parameter] : *parameters) {
    detail::check_float("parameter_snapshot", name.c_str(), parameter);
    copies.emplace_back(name, parameter.clone());
  }
  return copies;
}

std::vector<UpdateRatio> update_ratios(const State& before, const ParameterList& after) {
  const auto refuse = [](const std::string& name, const char* side) {
    throw ValueError(fmt::format(
        "[update_ratios] parameters must be the same before and after: {} is only {}", name, side));
  };
  const auto find = [](const State& state, const std::string& name) {
    return std::find_if(state.begin(), state.end(),
                        [&](const auto& entry) { return entry.first == name; });
  };
  for (const auto& entry : *after) {
    if (find(before, entry.first) == before.end()) refuse(entry.first, "after");
  }
  std::vector<UpdateRatio> ratios;
  for (const auto& [name, old] : before) {
    const auto now = find(*after, name);
    if (now == after->end()) refuse(name, "before");
    detail::check_same_float("update_ratios", (name + " before").c_str(), old,
                             (name + " after").c_str(), now->second);
    if (old.shape() != now->second.shape()) {
      throw ShapeError(fmt::format("[update_ratios] {} must keep its shape: {} before, {} after",
                                   name, to_string(old.shape()), to_string(now->second.shape())));
    }
    const NoGrad values_only;
    UpdateRatio& r = ratios.emplace_back();
    r.name = name;
    r.update = norm_of(sub(to(now->second, DType::float64), to(old, DType::float64)));
    r.parameter = norm_of(old);
    r.ratio = r.update == 0 ? 0 : r.update / r.parameter;
  }
  return ratios;
}

WqAttribution attribute_wq(const WqAttributionInputs& inputs) {
  detail::check_float("attribute_wq", "gwq", inputs.gwq);
  detail::check_same_float("attribute_wq", "gweights", inputs.gweights, "gscores", inputs.gscores);
  detail::check_same_float("attribute_wq", "gscores", inputs.gscores, "k", inputs.k);
  if (inputs.gweights.shape() != inputs.gscores.shape() || inputs.gscores.rank() < 2) {
    throw ShapeError(fmt::format(
        "[attribute_wq] gweights and gscores must have one shape (..., n, m): {} and {}",
        to_string(inputs.gweights.shape()), to_string(inputs.gscores.shape())));
  }
  const NoGrad values_only;
  // Without their graphs, and in double.
  const Tensor gscores = to(inputs.gscores.detach(), DType::float64);
  const Tensor gweights = to(inputs.gweights.detach(), DType::float64);
  const double keys = norm_of(matmul(gscores, to(inputs.k.detach(), DType::float64)));
  const double scores = norm_of(gscores);
  WqAttribution result;
  result.upstream = norm_of(
      inputs.mask.empty() ? gweights : where(inputs.mask.visible(gweights.shape()), gweights, 0));
  result.jacobian = ratio_of(scores, result.upstream);
  result.keys = ratio_of(keys, scores);
  result.scale = std::abs(inputs.scale);
  result.inputs = ratio_of(norm_of(inputs.gwq), result.scale * keys);
  return result;
}

std::string to_string(const WqAttribution& a) {
  return fmt::format(
      "|dL/dWq| = {:.4g} = scale {:.4g} x keys {:.4g} x Jacobian {:.4g} x upstream {:.4g} x inputs "
      "{:.4g}",
      a.product(), a.scale, a.keys, a.jacobian, a.upstream, a.inputs);
}

NoiseScale gradient_noise_scale(const TensorList& per_sample) {
  if ((*per_sample).empty()) {
    throw ValueError("[gradient_noise_scale] needs one tensor of per-sample gradients or more");
  }
  std::int64_t n = -1;
  for (const Tensor& gradients : *per_sample) {
    detail::check_float("gradient_noise_scale", "per_sample", gradients);
    const Shape& shape = gradients.shape();
    if (shape.rank() == 0 || (n >= 0 && shape[0] != n)) {
      throw ShapeError(
          fmt::format("[gradient_noise_scale] tensors must have one row per sample: {}{}",
                      to_string(shape), n >= 0 ? fmt::format(" after {} samples", n) : ""));
    }
    n = shape[0];
  }
  if (n < 2) {
    throw ValueError(fmt::format("[gradient_noise_scale] needs two samples or more: got {}", n));
  }
  const NoGrad values_only;
  const auto count = static_cast<double>(n);
  double trace_cov = 0;
  double squared_mean = 0;
  for (const Tensor& gradients : *per_sample) {
    const Tensor g = to(gradients.detach(), DType::float64);
    const Tensor centre = mean(g, 0, {.keepdim = true});
    trace_cov += sum(square(sub(g, centre))).item() / (count - 1);
    squared_mean += sum(square(centre)).item();
  }
  return noise_scale(trace_cov, squared_mean - trace_cov / count);
}

NoiseScale gradient_noise_scale(const BatchGradientNorm& small, const BatchGradientNorm& large) {
  if (!(small.batch >= 1 && small.batch < large.batch && std::isfinite(large.batch))) {
    throw ValueError(
        fmt::format("[gradient_noise_scale] batches must be 1 <= small < large: got {} and {}",
                    small.batch, large.batch));
  }
  for (const double squared : {small.squared_norm, large.squared_norm}) {
    if (squared >= 0 && std::isfinite(squared)) continue;
    throw ValueError(fmt::format(
        "[gradient_noise_scale] squared norms must be finite and not negative: got {}", squared));
  }
  const double signal = (large.batch * large.squared_norm - small.batch * small.squared_norm) /
                        (large.batch - small.batch);
  const double trace_cov =
      (small.squared_norm - large.squared_norm) / (1 / small.batch - 1 / large.batch);
  return noise_scale(trace_cov, signal);
}

namespace detail {

TopEigenvalue top_hessian_eigenvalue(const TensorFunction& f, const Tensor& x,
                                     const EigenOptions& options) {
  check_eigen(options);
  check_float("top_hessian_eigenvalue", "x", x);
  if (x.numel() == 0) {
    throw ValueError(
        fmt::format("[top_hessian_eigenvalue] needs numbers: x is {}", to_string(x.shape())));
  }
  Rng rng(options.seed);
  TopEigenvalue top;
  Tensor v;
  {
    const NoGrad values_only;
    const Tensor start = to(randn(rng, x.shape(), {.dtype = DType::float64}), x.dtype());
    v = mul(start, 1 / norm_of(start)).detach();
  }
  while (top.iterations < options.max_iterations && !top.converged) {
    const Tensor product = hvp(f, x, v);
    const NoGrad values_only;
    ++top.iterations;
    top.vector = v;
    top.value = sum(mul(v, product)).item();
    top.residual = norm_of(sub(product, mul(v, top.value)));
    const double length = norm_of(product);
    if (!std::isfinite(length)) {
      throw ValueError(
          fmt::format("[top_hessian_eigenvalue] the Hessian must be finite at x: iteration {} gave "
                      "a product of length {}",
                      top.iterations, length));
    }
    top.converged = top.residual <= options.tolerance * std::abs(top.value);
    if (length > 0) v = mul(product, 1 / length).detach();
  }
  return top;
}

}  // namespace detail

}  // namespace softtape
