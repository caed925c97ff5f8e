// What gradcheck and the derivatives take as a function: any callable of one to eight tensors, or
// of a span of tensors, that returns a tensor. An op, a lambda, a layer.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// A function of any number of tensors.
using TensorFunction = std::function<Tensor(std::span<const Tensor>)>;

namespace detail {

constexpr std::size_t kMaxFunctionArity = 8;

template <std::size_t>
using EachTensor = const Tensor&;

template <class F, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return std::is_invocable_r_v<Tensor, F&, EachTensor<I>...>;
}
template <class F, std::size_t... N>
constexpr bool takes_some_tensors(std::index_sequence<N...>) {
  return (takes_tensors<F>(std::make_index_sequence<N + 1>{}) || ...);
}

/// Throws: ValueError saying that the function cannot be called with `got` tensors.
[[noreturn]] SOFTTAPE_API void throw_arity(const char* op, std::size_t got);

template <std::size_t N = 1, class F>
Tensor call_with(const char* op, F& f, std::span<const Tensor> x) {
  if constexpr (N > kMaxFunctionArity) {
    throw_arity(op, x.size());
  } else {
    if constexpr (takes_tensors<F>(std::make_index_sequence<N>{})) {
      if (x.size() == N) {
        return [&]<std::size_t... I>(std::index_sequence<I...>)->Tensor { return f(x[I]...); }
        (std::make_index_sequence<N>{});
      }
    }
    return call_with<N + 1>(op, f, x);
  }
}

/// `f` as a function of a span. `f` is kept by reference and must outlive the result.
template <class F>
TensorFunction tensor_function(const char* op, F& f) {
  if constexpr (takes_some_tensors<F>(std::make_index_sequence<kMaxFunctionArity>{})) {
    return [op, &f](std::span<const Tensor> x) { return call_with(op, f, x); };
  } else {
    static_assert(std::is_invocable_r_v<Tensor, F&, std::span<const Tensor>>,
                  "f must take one to eight tensors, or std::span<const Tensor>, and return a "
                  "Tensor; wrap an op that has more arguments into a lambda");
    return [&f](std::span<const Tensor> x) -> Tensor { return f(x); };
  }
}

}  // namespace detail

}  // namespace softtape
