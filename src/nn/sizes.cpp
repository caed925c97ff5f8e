// Checks that constructors and calls of layers share.
#include "nn/sizes.hpp"

#include <fmt/format.h>

#include "graph/node.hpp"

namespace softtape::detail {

std::int64_t check_size(const char* layer, const char* name, std::int64_t size) {
  if (size < 1) {
    throw ValueError(fmt::format("[{}] {} must be at least 1: got {}", layer, name, size));
  }
  return size;
}

double check_probability(const char* layer, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw ValueError(fmt::format("[{}] a probability must lie in [0, 1]: got {}", layer, p));
  }
  return p;
}

void check_width(const char* layer, const Tensor& x, std::int64_t width) {
  check_float(layer, "x", x);
  if (x.rank() == 0 || x.dim(-1) != width) {
    throw ShapeError(fmt::format("[{}] the last axis of x must have {} entries: x is {}", layer,
                                 width, to_string(x.shape())));
  }
}

}  // namespace softtape::detail
