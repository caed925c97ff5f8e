// Checks that constructors and calls of layers share.
#pragma once

#include <cstdint>

#include "softtape/graph/tensor.hpp"

namespace softtape::detail {

/// Throws: ValueError naming the layer unless a size is at least 1.
std::int64_t check_size(const char* layer, const char* name, std::int64_t size);
/// Throws: ValueError naming the layer unless 0 <= p <= 1.
double check_probability(const char* layer, double p);
/// Throws: ShapeError naming the layer unless the last axis of x has `width` entries; GraphError,
/// DtypeError for an x that is undefined or not float.
void check_width(const char* layer, const Tensor& x, std::int64_t width);

}  // namespace softtape::detail
