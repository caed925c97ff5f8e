// Clipping. Gradients are replaced, not scaled in place: a user may hold the numbers.
#include "softtape/optim/clip.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/loops.hpp"
#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_limit(const char* op, const char* key, double limit) {
  if (!(limit >= 0)) {
    throw ValueError(fmt::format("[{}] {} must not be negative or NaN: got {}", op, key, limit));
  }
}

// sum (x / unit)^2 in four lanes of double, chunk by chunk: one order at any number of threads.
double sum_of_squares(const Tensor& x, double unit) {
  const std::int64_t n = x.numel();
  std::vector<double> chunks(static_cast<std::size_t>((n + detail::kGrain - 1) / detail::kGrain));
  visit_float(x.dtype(), "clip_grad_norm_", [&](auto zero) {
    const auto* from = detail::numbers<decltype(zero)>(x);
    parallel_for(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t chunk) {
      double lanes[4] = {};
      const std::int64_t begin = chunk * detail::kGrain;
      for (std::int64_t i = begin; i < std::min(n, begin + detail::kGrain); ++i) {
        const double value = static_cast<double>(from[i]) / unit;
        lanes[i % 4] += value * value;
      }
      chunks[static_cast<std::size_t>(chunk)] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    });
  });
  double total = 0;
  for (const double chunk : chunks) total += chunk;
  return total;
}

// The largest |x|; NaN when there is one.
double largest(const Tensor& x) {
  double most = 0;
  visit_float(x.dtype(), "clip_grad_value_", [&](auto zero) {
    for (const auto value : x.data<decltype(zero)>()) {
      const double size = std::abs(static_cast<double>(value));
      if (!(size <= most)) most = size;
      if (std::isnan(size)) return;
    }
  });
  return most;
}

std::vector<std::pair<Tensor, Tensor>> with_gradients(const char* op, const ParameterList& list) {
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, parameter] : *list) {
    detail::check_float(op, name.c_str(), parameter);
    if (const Tensor gradient = parameter.grad(); gradient.defined()) {
      pairs.emplace_back(parameter, gradient);
    }
  }
  return pairs;
}

double largest(const std::vector<std::pair<Tensor, Tensor>>& pairs) {
  double most = 0;
  for (const auto& [parameter, gradient] : pairs) {
    const double size = largest(gradient);
    if (std::isnan(size)) return size;
    most = std::max(most, size);
  }
  return most;
}

double joint_norm(const std::vector<std::pair<Tensor, Tensor>>& pairs) {
  const auto norm_in = [&](double unit) {
    double total = 0;
    for (const auto& [parameter, gradient] : pairs) total += sum_of_squares(gradient, unit);
    return unit * std::sqrt(total);
  };
  const double norm = norm_in(1);
  if (norm > 1e-150 && norm < 1e150) return norm;
  const double unit = largest(pairs);  // squares may have left the range of double
  return unit > 0 && unit < kInf ? norm_in(unit) : unit;
}

}  // namespace

double clip_grad_norm_(const ParameterList& parameters, double max_norm) {
  check_limit("clip_grad_norm_", "max_norm", max_norm);
  auto pairs = with_gradients("clip_grad_norm_", parameters);
  const double norm = joint_norm(pairs);
  if (!std::isfinite(norm) || norm <= max_norm) return norm;
  NoGrad guard;
  for (auto& [parameter, gradient] : pairs) parameter.set_grad(mul(gradient, max_norm / norm));
  return norm;
}

double clip_grad_value_(const ParameterList& parameters, double limit) {
  check_limit("clip_grad_value_", "limit", limit);
  auto pairs = with_gradients("clip_grad_value_", parameters);
  const double most = largest(pairs);
  if (!std::isfinite(most) || most <= limit) return most;
  NoGrad guard;
  for (auto& [parameter, gradient] : pairs) parameter.set_grad(clamp(gradient, -limit, limit));
  return most;
}

}  // namespace softtape
