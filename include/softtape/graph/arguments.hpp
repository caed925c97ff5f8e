// How ops take their tensors: with the line that passed them, and with numbers where numbers fit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "softtape/graph/tensor.hpp"

// Inside the library a call records no line, so that what the user called stays the call site.
#ifdef SOFTTAPE_BUILDING
#define SOFTTAPE_CALL_FILE nullptr
#else
#define SOFTTAPE_CALL_FILE __builtin_FILE()
#endif

namespace softtape {

/// A line of a user's program; file is null when none is known.
struct CallSite {
  const char* file = nullptr;
  int line = 0;
};

namespace detail {
// The last line outside the library that called an op on this thread.
extern SOFTTAPE_API constinit thread_local CallSite t_call_site
    __attribute__((tls_model("initial-exec")));
}  // namespace detail

/// A tensor argument of an op. Converts from a Tensor where the op is called and notes that line,
/// which the anomaly guard and traces report.
class TensorArg {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): the conversion is the point.
  TensorArg(const Tensor& tensor, const char* file = SOFTTAPE_CALL_FILE,
            int line = __builtin_LINE())
      : tensor_(tensor) {
    if (file) detail::t_call_site = {file, line};
  }
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const Tensor&() const { return tensor_; }

 private:
  const Tensor& tensor_;
};

/// A tensor or a C++ number; the number takes the dtype of the tensor it meets.
class Operand {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Operand(const Tensor& tensor, const char* file = SOFTTAPE_CALL_FILE, int line = __builtin_LINE())
      : tensor_(reinterpret_cast<std::uintptr_t>(&tensor)) {
    if (file) detail::t_call_site = {file, line};
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  Operand(TensorArg tensor) : tensor_(reinterpret_cast<std::uintptr_t>(&*tensor)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T number)
      : tensor_(std::is_integral_v<T> ? kWhole : kFraction), number_(static_cast<double>(number)) {}

  bool is_tensor() const { return tensor_ > kWhole; }
  const Tensor& tensor() const { return *reinterpret_cast<const Tensor*>(tensor_); }
  double number() const { return number_; }
  bool is_whole() const { return tensor_ == kWhole; }

 private:
  // The tensor's address, or what kind of number it is: sixteen bytes travel in registers.
  static constexpr std::uintptr_t kFraction = 0;
  static constexpr std::uintptr_t kWhole = 1;
  std::uintptr_t tensor_;
  double number_ = 0;
};

}  // namespace softtape
