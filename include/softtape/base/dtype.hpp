// Element types of tensors, and the dispatch from a run-time type to a C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "softtape/base/error.hpp"
#include "softtape/base/export.hpp"

namespace softtape {

/// float32 is the default (see DefaultDtype); int64 is for indices, boolean for masks.
enum class DType : std::uint8_t { float32, float64, int64, boolean };

/// "float32", "float64", "int64" or "boolean".
constexpr const char* to_string(DType dtype) {
  constexpr const char* kNames[] = {"float32", "float64", "int64", "boolean"};
  return kNames[static_cast<int>(dtype)];
}

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::float32 ? 4 : dtype == DType::boolean ? 1 : 8;
}

constexpr bool is_floating(DType dtype) { return dtype <= DType::float64; }

/// The DType of a C++ element type: float, double, std::int64_t or bool.
template <class T>
struct dtype_of_t;
template <>
struct dtype_of_t<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct dtype_of_t<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct dtype_of_t<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct dtype_of_t<bool> {
  static constexpr DType value = DType::boolean;
};
template <class T>
constexpr DType dtype_of = dtype_of_t<T>::value;

/// The dtype that factories use when none is named. Per thread; float32 at the start.
SOFTTAPE_API DType default_dtype();

/// Changes the default dtype of this thread for a scope: `DefaultDtype guard(DType::float64);`
/// Throws: DtypeError when the type is not a float type.
class SOFTTAPE_API DefaultDtype {
 public:
  explicit DefaultDtype(DType dtype);
  ~DefaultDtype();
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  DType previous_;
};

namespace detail {
[[noreturn]] SOFTTAPE_API void throw_not_float(const char* op, DType dtype);
}  // namespace detail

/// Calls `f(T{})` with T = float or double. Throws: DtypeError naming `op` for any other type.
template <class F>
decltype(auto) visit_float(DType dtype, const char* op, F&& f) {
  if (dtype == DType::float32) return std::forward<F>(f)(float{});
  if (dtype == DType::float64) return std::forward<F>(f)(double{});
  detail::throw_not_float(op, dtype);
}

/// Calls `f(T{})` with T = float, double, std::int64_t or bool.
template <class F>
decltype(auto) visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return std::forward<F>(f)(float{});
    case DType::float64:
      return std::forward<F>(f)(double{});
    case DType::int64:
      return std::forward<F>(f)(std::int64_t{});
    default:
      return std::forward<F>(f)(bool{});
  }
}

}  // namespace softtape
