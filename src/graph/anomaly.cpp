// Finds the first op that makes a NaN or an infinity out of finite numbers, and says where.
#include "graph/anomaly.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "softtape/graph/grad.hpp"

namespace softtape {
namespace detail {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool finite = true;
  const char* worst = "";
};

Range range_of(const Tensor& t) {
  Range range;
  if (!is_floating(t.dtype())) return range;
  visit_float(t.dtype(), "anomaly", [&](auto zero) {
    for (const auto x : t.data<decltype(zero)>()) {
      if (!std::isfinite(x)) {
        range.finite = false;
        range.worst = std::isnan(x) ? "NaN" : "Inf";
        if (std::isnan(x)) break;
        continue;
      }
      range.low = std::min(range.low, static_cast<double>(x));
      range.high = std::max(range.high, static_cast<double>(x));
    }
  });
  return range;
}

std::string at(const CallSite& site) {
  return site.file ? fmt::format(" at {}:{}", site.file, site.line) : std::string();
}

std::string describe(const Tensor& t, std::size_t i) {
  const Range range = range_of(t);
  return fmt::format("{} {} in [{:.6g}, {:.6g}]", label(t, fmt::format("input {}", i)),
                     to_string(t.shape()), range.low, range.high);
}

}  // namespace

void check_result(const OpInfo& op, const Tensor& y, const TensorRef* inputs, std::size_t arity) {
  if (op.makes_infinity || !is_floating(y.dtype())) return;
  const Range result = range_of(y);
  if (result.finite) return;
  std::string text;
  for (std::size_t i = 0; i < arity; ++i) {
    if (!range_of(*inputs[i]).finite) return;  // passed on, not made here
    text += (i ? ", " : "") + describe(*inputs[i], i);
  }
  throw ValueError(fmt::format("[{}] made {} from finite inputs{}: {}", op.name, result.worst,
                               at(t_call_site), text));
}

void check_gradient(const Node& node, int input, const Tensor& gx, const Tensor& gy) {
  const Range result = range_of(gx);
  if (result.finite || !range_of(gy).finite) return;
  const Node& x = *node.edges[input].node;
  const std::string name =
      x.extras && !x.extras->name.empty() ? fmt::format(" '{}'", x.extras->name) : std::string();
  const Range upstream = range_of(gy);
  throw ValueError(fmt::format(
      "[{}] its rule made {} in the gradient of input {}{} {}; forward call{}; upstream in "
      "[{:.6g}, {:.6g}]",
      node.op->name, result.worst, input, name, to_string(x.shape),
      node.extras ? at(node.extras->site) : " not under the guard", upstream.low, upstream.high));
}

}  // namespace detail

AnomalyGuard::AnomalyGuard() : previous_(std::exchange(detail::t_anomaly, true)) {}
AnomalyGuard::~AnomalyGuard() { detail::t_anomaly = previous_; }

}  // namespace softtape
