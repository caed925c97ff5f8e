// Whether numbers are finite, as fast as they can be read.
#pragma once

#include "softtape/graph/tensor.hpp"

namespace softtape::detail {

/// True when a float tensor holds neither a NaN nor an infinity.
bool all_finite(const Tensor& x);

}  // namespace softtape::detail
