// New tensors: constants, ranges, from C++ numbers, random.
//
// Where no dtype is named, floats get default_dtype(). Values are computed in double and rounded.
//
// Throws (all): ShapeError for sizes that cannot be, DtypeError for a gradient that a dtype cannot
// have or a fraction where whole numbers go.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <type_traits>
#include <vector>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape {

struct TensorOptions {
  std::optional<DType> dtype = {};
  bool requires_grad = false;
};

SOFTTAPE_API Tensor zeros(const Shape& shape, TensorOptions options = {});
SOFTTAPE_API Tensor ones(const Shape& shape, TensorOptions options = {});
/// Every element `value`; float unless a dtype is named, whatever the type of `value`.
SOFTTAPE_API Tensor full(const Shape& shape, double value, TensorOptions options = {});
/// Uninitialised numbers: write all of them through mutable_data before they are read.
SOFTTAPE_API Tensor empty(const Shape& shape, TensorOptions options = {});
/// The same with shape and dtype of x. Throws: GraphError when x is undefined.
SOFTTAPE_API Tensor zeros_like(const Tensor& x, TensorOptions options = {});
SOFTTAPE_API Tensor ones_like(const Tensor& x, TensorOptions options = {});
SOFTTAPE_API Tensor full_like(const Tensor& x, double value, TensorOptions options = {});
SOFTTAPE_API Tensor empty_like(const Tensor& x, TensorOptions options = {});
/// Ones on the diagonal, zeros elsewhere.
SOFTTAPE_API Tensor eye(std::int64_t n, TensorOptions options = {});
SOFTTAPE_API Tensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options = {});

template <class T>
concept Number = std::is_arithmetic_v<T>;

namespace detail {
SOFTTAPE_API Tensor arange(std::int64_t start, std::int64_t stop, std::int64_t step,
                           TensorOptions options);
SOFTTAPE_API Tensor arange(double start, double stop, double step, TensorOptions options);
}  // namespace detail

/// start, start + step, ... below stop (above it for a negative step); int64 when all arguments are
/// whole and no dtype is named. Edges: a fractional step can round the last element up to stop, as
/// in NumPy: prefer linspace. Throws: ValueError for a step of 0 or arguments that are not finite.
template <Number A, Number B, Number C>
Tensor arange(A start, B stop, C step, TensorOptions options = {}) {
  using T =
      std::conditional_t<(std::is_integral_v<A> && std::is_integral_v<B> && std::is_integral_v<C>),
                         std::int64_t, double>;
  return detail::arange(static_cast<T>(start), static_cast<T>(stop), static_cast<T>(step), options);
}
template <Number A, Number B>
Tensor arange(A start, B stop, TensorOptions options = {}) {
  return arange(start, stop, 1, options);
}
template <Number B>
Tensor arange(B stop, TensorOptions options = {}) {
  return arange(0, stop, 1, options);
}
/// `count` numbers from start to stop, both included, evenly spaced; float.
/// Throws: ValueError when count is negative or a bound is not finite.
SOFTTAPE_API Tensor linspace(double start, double stop, std::int64_t count,
                             TensorOptions options = {});

/// A number, or numbers in nested braces; all braces of one depth must hold equally many.
class SOFTTAPE_API NestedNumbers {
 public:
  // NOLINTBEGIN(google-explicit-constructor): braces are to convert.
  template <Number T>
  NestedNumbers(T number)
      : kind_(std::is_same_v<T, bool>       ? DType::boolean
              : std::is_floating_point_v<T> ? DType::float64
                                            : DType::int64),
        elements_{{static_cast<double>(number), whole(number)}} {}
  NestedNumbers(std::initializer_list<NestedNumbers> parts);
  // NOLINTEND(google-explicit-constructor)

 private:
  friend SOFTTAPE_API Tensor tensor(const NestedNumbers& numbers, TensorOptions options);
  // Not every double has a whole part that int64 can hold; none is read of a fraction's braces.
  template <Number T>
  static constexpr std::int64_t whole(T number) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<std::int64_t>(number);
    } else {
      return 0;
    }
  }
  struct Element {
    double real;
    std::int64_t whole;
  };
  DType kind_ = DType::float64;  // boolean, int64, or float64 for all that is not whole
  std::vector<std::int64_t> sizes_;
  std::vector<Element> elements_;
};

/// A tensor from nested braces, `tensor({{1.0, 2.0}, {3.0, 4.0}})`, or from one number. Booleans
/// make a boolean tensor, whole numbers int64, anything else floats.
/// Throws: ShapeError for ragged braces.
SOFTTAPE_API Tensor tensor(const NestedNumbers& numbers, TensorOptions options = {});

/// A rank 0 tensor; dtypes as for braces.
template <Number T>
Tensor scalar(T number, TensorOptions options = {}) {
  return tensor(NestedNumbers(number), options);
}

namespace detail {
SOFTTAPE_API void check_range(const Shape& shape, std::size_t count, bool floats,
                              const TensorOptions& options);
}

/// A tensor from a span, a vector or another sized range, row-major; dtypes as for braces.
/// Throws: ShapeError unless the range holds as many numbers as the shape, DtypeError for floats
/// that are to be int64 or boolean.
template <std::ranges::sized_range R>
requires Number<std::ranges::range_value_t<R>> Tensor tensor(const R& numbers, const Shape& shape,
                                                             TensorOptions options = {}) {
  using V = std::ranges::range_value_t<R>;
  if (!options.dtype && std::is_same_v<V, bool>) options.dtype = DType::boolean;
  if (!options.dtype && std::is_integral_v<V>) options.dtype = DType::int64;
  detail::check_range(shape, std::ranges::size(numbers), std::is_floating_point_v<V>, options);
  Tensor y = empty(shape, {.dtype = options.dtype});
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto into = y.mutable_data<T>().begin();
    for (const V number : numbers) *into++ = static_cast<T>(number);
  });
  if (options.requires_grad) y.requires_grad_();
  return y;
}
template <std::ranges::sized_range R>
requires Number<std::ranges::range_value_t<R>> Tensor tensor(const R& numbers,
                                                             TensorOptions options = {}) {
  return tensor(numbers, {static_cast<std::int64_t>(std::ranges::size(numbers))}, options);
}

/// Uniform on [0, 1). As all random tensors: NumPy's float64 stream, rounded to the dtype; rand and
/// randn draw NumPy's own float32 stream when float32 is named in the options.
SOFTTAPE_API Tensor rand(Rng& rng, const Shape& shape, TensorOptions options = {});
/// Normal with mean 0 and standard deviation 1.
SOFTTAPE_API Tensor randn(Rng& rng, const Shape& shape, TensorOptions options = {});
/// Normal. Throws: ValueError when std is negative or not finite.
SOFTTAPE_API Tensor normal(Rng& rng, double mean, double std, const Shape& shape,
                           TensorOptions options = {});
/// Uniform on [low, high). Throws: ValueError when high - low is negative or not finite.
SOFTTAPE_API Tensor uniform(Rng& rng, double low, double high, const Shape& shape,
                            TensorOptions options = {});
/// int64 on [low, high), all equally likely. Throws: ValueError when there is none.
SOFTTAPE_API Tensor randint(Rng& rng, std::int64_t low, std::int64_t high, const Shape& shape);
/// The int64 numbers 0 to n - 1 in random order. Throws: ValueError when n is negative.
SOFTTAPE_API Tensor permutation(Rng& rng, std::int64_t n);

}  // namespace softtape
