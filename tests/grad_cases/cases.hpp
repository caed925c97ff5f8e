// The table of gradient cases: what one row is, and what rows are made of.
//
// To add an op, add a GradCase (and an ErrorCase) to the file of its family. runner.cpp puts every
// row through all checks, and fails for any op that no row recorded.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"
#include "softtape/study/function.hpp"
#include "support/constants.hpp"

namespace grad_cases {

using softtape::Rng;
using softtape::Shape;
using softtape::Tensor;
using test_support::kDouble;
using test_support::kInf;

/// Numbers as the references see them: plain, in extended precision, without any op of the library.
struct Array {
  Shape shape;
  std::vector<long double> numbers;

  Array() = default;
  explicit Array(const Shape& sizes)
      : shape(sizes), numbers(static_cast<std::size_t>(sizes.numel()), 0.0L) {}
  /// Of any shape, by flat row-major position.
  long double& operator[](std::int64_t i) { return numbers[static_cast<std::size_t>(i)]; }
  long double operator[](std::int64_t i) const { return numbers[static_cast<std::size_t>(i)]; }
};
using Arrays = std::vector<Array>;

using Inputs = std::function<std::vector<Tensor>(Rng&)>;
using Reference = std::function<Array(const Arrays&)>;

/// One function, the numbers to try it at, and what it must return.
struct GradCase {
  std::string op;    ///< as in OpInfo; the row must record it
  std::string name;  ///< what is special about this row
  Inputs inputs;     ///< float64, away from kinks
  softtape::TensorFunction f;
  Reference reference;         ///< independent of the library
  double value_rtol = 1e-13;   ///< against the reference
  double float32_rtol = 2e-5;  ///< of values and gradients, against float64
  bool large = false;          ///< more numbers than one chunk: first order, directions only
  bool float32 = true;         ///< whether f takes float32 inputs as they are
  bool coarse = false;         ///< rounds to float32 inside
};

/// A point where differences do not help (a kink, a tie, an infinite slope): gradients by decision.
struct PointCase {
  std::string op;
  std::string name;
  std::vector<Tensor> inputs;
  softtape::TensorFunction f;
  Tensor gy;                      ///< upstream gradient
  std::vector<Tensor> gradients;  ///< expected, to the bit
};

enum class ErrorType { shape, value, dtype, graph };

/// A call that must be refused.
struct ErrorCase {
  std::string op;  ///< the tag in brackets, and the op
  std::string name;
  ErrorType type;
  std::string message;  ///< part of it
  std::function<void()> call;
};

struct Family {
  std::vector<GradCase> cases;
  std::vector<PointCase> points;
  std::vector<ErrorCase> errors;

  Family& operator+=(Family other);
};

Family elementwise_unary_rows();
Family elementwise_binary_rows();
Family reduce_rows();
Family matmul_rows();
Family shape_rows();
Family index_rows();
Family softmax_rows();
Family normalize_rows();
Family loss_rows();
Family sort_rows();
Family rope_rows();
Family attention_rows();
Family graph_rows();

/// Every row there is.
const Family& all_families();

// What rows are made of.

/// A callable of tensors as a row's function.
template <class F>
softtape::TensorFunction fn(F f) {
  return
      [f](std::span<const Tensor> x) mutable { return softtape::detail::call_with("row", f, x); };
}

/// float64 inputs of these shapes: normal numbers, or uniform ones on [low, high).
Inputs normals(std::vector<Shape> shapes);
Inputs uniforms(double low, double high, std::vector<Shape> shapes);
/// Two inputs from different ranges.
Inputs uniforms2(double low_a, double high_a, const Shape& a, double low_b, double high_b,
                 const Shape& b);
/// The inputs of `first` and one constant more.
Inputs with(Inputs first, Tensor constant);

Array array_of(const Tensor& t);
/// Position in `from` of element i of `to`, which `from` broadcasts to.
std::int64_t broadcast_position(std::int64_t i, const Shape& to, const Shape& from);
using Index = std::vector<std::int64_t>;
/// Row-major multi-index of a flat position, and back.
Index unravel(std::int64_t i, const Shape& shape);
std::int64_t ravel(const Index& index, const Shape& shape);

Reference each(std::function<long double(long double)> f);
Reference each_pair(std::function<long double(long double, long double)> f);
/// y[index] = x[from(index)], or `otherwise` where `from` names no place.
using Source = std::optional<Index>;
Reference taking(const Shape& shape, std::function<Source(const Index&)> from,
                 long double otherwise = 0);
/// f of all numbers along some axes (none named: all of them).
Reference over(std::vector<int> axes, bool keepdim,
               std::function<long double(const std::vector<long double>&)> f);

/// float64 and int64 tensors written as {1, 2, 3}.
Tensor vec(std::vector<double> numbers);
Tensor ids(std::vector<std::int64_t> numbers);
Tensor flags(std::vector<bool> numbers);

}  // namespace grad_cases
