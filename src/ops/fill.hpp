// C++ numbers that become elements of a tensor.
#pragma once

#include "graph/node.hpp"

namespace softtape::detail {

/// Every element of a fresh tensor set to a checked number.
void fill_number(Tensor& y, double value);

}  // namespace softtape::detail
