// Positions in a tensor, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "softtape/base/shape.hpp"

namespace softtape::detail {

/// "[1, 2]" for the element at row-major position `flat`; "" in a tensor of rank 0.
std::string index_text(const Shape& shape, std::int64_t flat);

}  // namespace softtape::detail
