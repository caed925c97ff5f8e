#include "ops/cotangent.hpp"

#include "base/loops.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape::detail {
namespace {

// f(i, factor) for all numbers; a factor may be one number for all.
template <class T, class F>
[[gnu::noinline]] void each_factor(const Tensor& factor, std::int64_t n, F f) {
  const T* factors = numbers<T>(factor);
  const bool one = shape_of(factor).numel() == 1;
  for_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (one) {
      for (std::int64_t i = begin; i < end; ++i) f(i, *factors);
    } else {
      for (std::int64_t i = begin; i < end; ++i) f(i, factors[i]);
    }
  });
}

// x *= factor. As below, single numbers go without the loop's set-up.
template <class T>
void scale(const Tensor& x, const Tensor& factor, std::int64_t n) {
  T* into = fresh_numbers<T>(x);
  if (n == 1) {
    *into *= *numbers<T>(factor);
  } else {
    each_factor<T>(factor, n, [into](std::int64_t i, T by) { into[i] *= by; });
  }
}

// sum += x * factor.
template <class T>
void add_product(const Tensor& sum, const Tensor& x, const Tensor& factor, std::int64_t n) {
  T* into = fresh_numbers<T>(sum);
  const T* from = numbers<T>(x);
  if (n == 1) {
    *into += *from * *numbers<T>(factor);
  } else {
    each_factor<T>(factor, n, [into, from](std::int64_t i, T by) { into[i] += from[i] * by; });
  }
}

}  // namespace

void set_product(Vjp& r, int i, const Tensor& factor, Upstream gy) {
  VjpState& pass = VjpState::of(r);
  Node& input = *pass.edge(i).node;
  const Node& upstream = *TensorAccess::node(pass.gy);
  const Node& by = *TensorAccess::node(factor);
  const bool plain = !t_grad_enabled && !pass.anomaly && upstream.shape == input.shape &&
                     (by.shape == input.shape || by.shape.rank() == 0);
  if (plain) {
    const std::int64_t n = input.shape.numel();
    const Tensor& sum = pass.enter(input).gradient;
    if (sum.defined() && sole_owner(sum)) {
      input.dtype == DType::float32 ? add_product<float>(sum, pass.gy, factor, n)
                                    : add_product<double>(sum, pass.gy, factor, n);
      return;
    }
    if (gy == Upstream::done && sole_owner(pass.gy)) {
      input.dtype == DType::float32 ? scale<float>(pass.gy, factor, n)
                                    : scale<double>(pass.gy, factor, n);
      pass.deliver(input, std::move(pass.gy));
      return;
    }
  }
  set_summed(r, i, mul(pass.gy, factor));
}

}  // namespace softtape::detail
