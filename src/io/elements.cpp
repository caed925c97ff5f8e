// Element types of files: sizes, conversions, byte order.
#include "io/elements.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"

namespace softtape::detail {

namespace {

static_assert(sizeof(bool) == 1 && std::numeric_limits<double>::is_iec559);

template <class T>
T load(const char* at, std::endian order) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), at, sizeof(T));
  if (order != std::endian::native) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

// Reads elements of type From, one after the other, into elements of type To.
template <class From, class To, class F>
void convert(Tensor& tensor, std::string_view bytes, std::endian order, F to) {
  const char* at = bytes.data();
  for (To& element : tensor.mutable_data<To>()) {
    element = to(load<From>(at, order));
    at += sizeof(From);
  }
}

template <class T>
void copy(Tensor& tensor, std::string_view bytes, std::endian order) {
  convert<T, T>(tensor, bytes, order, [](T x) { return x; });
}

template <class T>
void widen(Tensor& tensor, std::string_view bytes, std::endian order) {
  convert<T, std::int64_t>(tensor, bytes, order, [](T x) { return std::int64_t{x}; });
}

// IEEE 754 binary16 to binary32, on the bits: a NaN keeps its payload.
float from_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zeros and subnormals: fraction 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -size : size;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float from_bfloat(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

}  // namespace

std::size_t width(Stored type) {
  switch (type) {
    case Stored::f64:
    case Stored::i64:
      return 8;
    case Stored::f32:
    case Stored::i32:
    case Stored::u32:
      return 4;
    case Stored::f16:
    case Stored::bf16:
    case Stored::i16:
    case Stored::u16:
      return 2;
    default:
      return 1;
  }
}

DType widened(Stored type) {
  switch (type) {
    case Stored::f16:
    case Stored::bf16:
    case Stored::f32:
      return DType::float32;
    case Stored::f64:
      return DType::float64;
    case Stored::boolean:
      return DType::boolean;
    default:
      return DType::int64;
  }
}

Stored stored(DType dtype) {
  constexpr Stored kStored[] = {Stored::f32, Stored::f64, Stored::i64, Stored::boolean};
  return kStored[static_cast<int>(dtype)];
}

Shape stored_shape(std::span<const std::uint64_t> sizes, Stored type, std::uint64_t bytes,
                   const std::string& what) {
  if (sizes.size() > Shape::kMaxRank) {
    throw IoError(fmt::format("{}: a tensor has at most {} axes: got {}", what, Shape::kMaxRank,
                              sizes.size()));
  }
  std::array<std::int64_t, Shape::kMaxRank> axes{};
  bool fits = true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    fits = fits && sizes[i] <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    axes[i] = static_cast<std::int64_t>(sizes[i]);
  }
  Shape shape;
  try {
    if (fits) shape = Shape(std::span(axes.data(), sizes.size()));
  } catch (const ShapeError&) {
    fits = false;  // more elements than can be counted
  }
  fits = fits && bytes % width(type) == 0 &&
         static_cast<std::uint64_t>(shape.numel()) == bytes / width(type);
  if (!fits) {
    throw IoError(
        fmt::format("{}: sizes must fit the data: ({}) elements of {} bytes, but {} bytes", what,
                    fmt::join(sizes, ", "), width(type), bytes));
  }
  return shape;
}

Tensor decode(Stored type, const Shape& shape, std::string_view bytes, std::endian order,
              const std::string& what) {
  if (type == Stored::boolean) {
    const auto wrong =
        std::find_if(bytes.begin(), bytes.end(), [](char c) { return c != 0 && c != 1; });
    if (wrong != bytes.end()) {
      throw IoError(fmt::format("{}: a boolean must be 0 or 1: number {} is {}", what,
                                wrong - bytes.begin(), static_cast<unsigned char>(*wrong)));
    }
  }
  Tensor tensor = empty(shape, {.dtype = widened(type)});
  switch (type) {
    case Stored::f16:
      convert<std::uint16_t, float>(tensor, bytes, order, from_half);
      break;
    case Stored::bf16:
      convert<std::uint16_t, float>(tensor, bytes, order, from_bfloat);
      break;
    case Stored::f32:
      copy<float>(tensor, bytes, order);
      break;
    case Stored::f64:
      copy<double>(tensor, bytes, order);
      break;
    case Stored::i64:
      copy<std::int64_t>(tensor, bytes, order);
      break;
    case Stored::i8:
      widen<std::int8_t>(tensor, bytes, order);
      break;
    case Stored::i16:
      widen<std::int16_t>(tensor, bytes, order);
      break;
    case Stored::i32:
      widen<std::int32_t>(tensor, bytes, order);
      break;
    case Stored::u8:
      widen<std::uint8_t>(tensor, bytes, order);
      break;
    case Stored::u16:
      widen<std::uint16_t>(tensor, bytes, order);
      break;
    case Stored::u32:
      widen<std::uint32_t>(tensor, bytes, order);
      break;
    case Stored::boolean:
      convert<char, bool>(tensor, bytes, order, [](char c) { return c != 0; });
      break;
  }
  return tensor;
}

void encode(const Tensor& tensor, std::string& into) {
  visit_any(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto bytes = std::as_bytes(tensor.data<T>());
    const std::size_t before = into.size();
    into.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if constexpr (std::endian::native == std::endian::big) {
      for (std::size_t i = before; i < into.size(); i += sizeof(T)) {
        std::reverse(into.data() + i, into.data() + i + sizeof(T));
      }
    }
  });
}

}  // namespace softtape::detail
