// C++ numbers that become elements of a tensor.
#pragma once

#include "graph/node.hpp"

namespace softtape::detail {

/// Throws: DtypeError when a fraction meets int64 or boolean, ValueError when int64 cannot hold it.
void check_number(const char* op, DType dtype, double value);
/// Every element of a fresh tensor set to a checked number.
void fill_number(Tensor& y, double value);

}  // namespace softtape::detail
