// Scale: its checks and its factor.
#include "softtape/attention/scale.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/node.hpp"

namespace softtape {

Scale Scale::value(double x) {
  if (!std::isfinite(x)) {
    throw ValueError(fmt::format("[scale] the factor must be finite: got {}", x));
  }
  return Scale(Kind::value, x);
}

Scale Scale::learned(const Tensor& factor) {
  detail::check_float("scale", "the learned factor", factor);
  if (factor.numel() != 1) {
    throw ShapeError(
        fmt::format("[scale] a learned factor is one number: got {}", to_string(factor.shape())));
  }
  Scale scale(Kind::learned);
  scale.tensor_ = factor;
  return scale;
}

double Scale::factor(std::int64_t dk) const {
  switch (kind_) {
    case Kind::inv_sqrt_dk:
      return 1 / std::sqrt(static_cast<double>(dk));
    case Kind::inv_dk:
      return 1 / static_cast<double>(dk);
    case Kind::learned:
      return tensor_.item();
    default:
      return value_;
  }
}

std::string Scale::name() const {
  constexpr const char* kNames[] = {"inv_sqrt_dk", "none", "inv_dk", "value", "learned"};
  return kNames[static_cast<int>(kind_)];
}

}  // namespace softtape
