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
  bool nan = false;
  bool infinite = false;

  bool finite() const { return !nan && !infinite; }
  const char* worst() const { return nan ? "NaN" : "Inf"; }
};

Range range_of(const Tensor& t) {
  Range range;
  if (!is_floating(t.dtype())) return range;
  visit_float(t.dtype(), "anomaly", [&](auto zero) {
    for (const auto x : t.data<decltype(zero)>()) {
      range.nan |= std::isnan(x);
      range.infinite |= std::isinf(x);
      range.low = std::min(range.low, static_cast<double>(x));
      range.high = std::max(range.high, static_cast<double>(x));
    }
  });
  return range;
}

// Whether what went in accounts for what came out: a NaN for anything, an infinity for infinities.
// A NaN out of infinities (0 Inf, Inf - Inf) is made by the op.
bool passed_on(const Range& in, const Range& out) { return in.nan || (in.infinite && !out.nan); }

std::string at(const CallSite& site) {
  return site.file ? fmt::format(" at {}:{}", site.file, site.line) : std::string();
}

std::string describe(const Tensor& t, std::size_t i) {
  const Range range = range_of(t);
  if (t.numel() == 0 || !is_floating(t.dtype())) {
    return fmt::format("{} {}", label(t, fmt::format("input {}", i)), to_string(t.shape()));
  }
  return fmt::format("{} {} in [{:.6g}, {:.6g}]", label(t, fmt::format("input {}", i)),
                     to_string(t.shape()), range.low, range.high);
}

}  // namespace

void check_result(const OpInfo& op, const Tensor& y, const TensorRef* inputs, std::size_t arity) {
  if (op.makes_infinity || !is_floating(y.dtype())) return;
  const Range result = range_of(y);
  if (result.finite()) return;
  std::string text;
  bool finite = true;
  for (std::size_t i = 0; i < arity; ++i) {
    const Range input = range_of(*inputs[i]);
    if (passed_on(input, result)) return;
    finite = finite && input.finite();
    text += (i ? ", " : "") + describe(*inputs[i], i);
  }
  throw ValueError(fmt::format("[{}] made {} from {} inputs{}: {}", op.name, result.worst(),
                               finite ? "finite" : "infinite", at(t_call_site), text));
}

void check_gradient(const Node& node, int input, const Tensor& gx, const Tensor& gy) {
  const Range result = range_of(gx);
  const Range upstream = range_of(gy);
  if (result.finite() || passed_on(upstream, result)) return;
  const Node& x = *node.edges[input].node;
  const std::string name =
      x.extras && !x.extras->name.empty() ? fmt::format(" '{}'", x.extras->name) : std::string();
  throw ValueError(fmt::format(
      "[{}] its rule made {} in the gradient of input {}{} {}; forward call{}; upstream in "
      "[{:.6g}, {:.6g}]",
      node.op->name, result.worst(), input, name, to_string(x.shape),
      node.extras ? at(node.extras->site) : " not under the guard", upstream.low, upstream.high));
}

void check_sum(const Node& node, const Tensor& a, const Tensor& b) {
  const bool finite = visit_float(node.dtype, "accumulate", [&](auto zero) {
    using T = decltype(zero);
    const T* x = numbers<T>(a);
    const T* y = numbers<T>(b);
    for (std::int64_t i = 0; i < node.shape.numel(); ++i) {
      if (std::isfinite(x[i]) && std::isfinite(y[i]) && !std::isfinite(x[i] + y[i])) return false;
    }
    return true;
  });
  if (finite) return;
  const bool named = node.extras && !node.extras->name.empty();
  throw ValueError(fmt::format("[accumulate] finite gradients of {} {}{} add up to Inf",
                               named     ? fmt::format("'{}'", node.extras->name)
                               : node.op ? fmt::format("the result of '{}'", node.op->name)
                                         : std::string("a leaf"),
                               to_string(node.shape),
                               node.extras ? at(node.extras->site) : std::string()));
}

}  // namespace detail

AnomalyGuard::AnomalyGuard() : previous_(std::exchange(detail::t_anomaly, true)) {}
AnomalyGuard::~AnomalyGuard() { detail::t_anomaly = previous_; }

}  // namespace softtape
