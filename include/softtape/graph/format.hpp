// Tensors as text, laid out as NumPy prints arrays: `fmt::print("{}\n", x)`, `std::cout << x`.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Options of to_string, with NumPy's defaults.
struct FormatOptions {
  int precision = 8;              ///< Most digits after the point; fewer where fewer are exact.
  std::int64_t threshold = 1000;  ///< Larger tensors show only the ends of each axis.
  int edge_items = 3;             ///< How many entries an end is.
  int line_width = 75;            ///< Columns before a row is broken.
};

/// The numbers in brackets, one width for all. Floats go to powers of ten where one is 1e8 or more,
/// a non-zero one below 1e-4, or the largest over 1000 times the smallest.
/// Edges: rank 0 shows all its digits; no elements give "[]"; an undefined tensor "undefined".
/// Throws: ValueError for a negative option.
SOFTTAPE_API std::string to_string(const Tensor& x, const FormatOptions& options = {});

SOFTTAPE_API std::ostream& operator<<(std::ostream& out, const Tensor& x);
SOFTTAPE_API std::ostream& operator<<(std::ostream& out, const Shape& shape);
SOFTTAPE_API std::ostream& operator<<(std::ostream& out, DType dtype);

}  // namespace softtape

/// "{}", or "{:.4}" for another precision.
template <>
struct fmt::formatter<softtape::Tensor> {
  softtape::FormatOptions options;

  constexpr auto parse(format_parse_context& context) {
    auto at = context.begin();
    if (at != context.end() && *at == '.') {
      options.precision = 0;
      for (++at; at != context.end() && *at >= '0' && *at <= '9' && options.precision < 100; ++at) {
        options.precision = options.precision * 10 + (*at - '0');
      }
    }
    if (at != context.end() && *at != '}') {
      throw softtape::ValueError("[format] a tensor takes {} or a precision, as in {:.4}");
    }
    return at;
  }
  template <class Context>
  auto format(const softtape::Tensor& x, Context& context) const {
    const std::string text = softtape::to_string(x, options);
    return std::copy(text.begin(), text.end(), context.out());
  }
};

template <>
struct fmt::formatter<softtape::Shape> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const softtape::Shape& shape, Context& context) const {
    const std::string text = softtape::to_string(shape);
    return std::copy(text.begin(), text.end(), context.out());
  }
};

template <>
struct fmt::formatter<softtape::DType> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(softtape::DType dtype, Context& context) const {
    const std::string text = softtape::to_string(dtype);
    return std::copy(text.begin(), text.end(), context.out());
  }
};
