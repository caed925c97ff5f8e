// Rotary positions.
#pragma once

#include "softtape/graph/arguments.hpp"

namespace softtape {

struct RopeOptions {
  std::int64_t heads = 1;   ///< heads side by side in the last axis, each rotated alike
  double base = 10000;      ///< of the geometric series of frequencies
  std::int64_t offset = 0;  ///< position of the first row
  bool inverse = false;     ///< turn the other way
};

/// Turns each pair (x_2i, x_2i+1) of a head at position t by the angle t base^(-2i / dk), so that
/// the product of a query at s and a key at t depends on s - t alone.
/// Shapes: x (..., n, heads dk). Vjp: rope of gy, turned the other way; angles are in double.
/// Throws: ShapeError for rank below 2 or a last axis that does not split into heads of even width;
/// ValueError for heads < 1, or a base that is not positive and finite.
/// Source: Su et al., "RoFormer" (2021), section 3.2.2.
SOFTTAPE_API Tensor rope(TensorArg x, RopeOptions options = {});

}  // namespace softtape
