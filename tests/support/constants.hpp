// Numbers and options that tests name.
#pragma once

#include <limits>

#include "softtape/ops/create.hpp"

namespace test_support {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline constexpr softtape::DType kFloats[] = {softtape::DType::float32, softtape::DType::float64};
inline constexpr softtape::TensorOptions kDouble{.dtype = softtape::DType::float64};

}  // namespace test_support
