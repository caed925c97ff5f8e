// Whether numbers are finite, as fast as they can be read.
#pragma once

#include "softtape/graph/tensor.hpp"

namespace softtape::detail {

/// True when a float tensor, or elements [begin, end) of it, holds neither a NaN nor an infinity.
bool all_finite(const Tensor& x);
bool all_finite(const Tensor& x, std::int64_t begin, std::int64_t end);

}  // namespace softtape::detail
