// Numbers as files store them: more element types than tensors have, in either byte order.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "softtape/graph/tensor.hpp"

namespace softtape::detail {

/// An element type of a file. Those that tensors lack are widened, exactly.
enum class Stored : std::uint8_t { f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, boolean };

/// Bytes of one element in the file.
std::size_t width(Stored type);
/// The element type that a tensor of these gets.
DType widened(Stored type);
/// The element type that a tensor's numbers are written as.
Stored stored(DType dtype);

/// A shape from what a file claims. `what` begins the message of the IoError that refuses one with
/// too many axes, or whose elements are not exactly `bytes` long.
Shape stored_shape(std::span<const std::uint64_t> sizes, Stored type, std::uint64_t bytes,
                   const std::string& what);

/// The tensor that `bytes`, as long as its shape says, are in a file of that byte order.
/// Throws: IoError beginning with `what` for a boolean that is neither 0 nor 1.
Tensor decode(Stored type, const Shape& shape, std::string_view bytes, std::endian order,
              const std::string& what);

/// Appends the numbers of a tensor, little-endian.
void encode(const Tensor& tensor, std::string& into);

}  // namespace softtape::detail
