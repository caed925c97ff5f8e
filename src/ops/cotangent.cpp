#include "ops/cotangent.hpp"

#include "base/loops.hpp"
#include "softtape/ops/elementwise.hpp"

namespace softtape::detail {
namespace {

// f(i, factor) for all numbers; a factor may be one number for all.
template <class T, class F>
[[gnu::noinline]] void each_factor(const Node& factor, std::int64_t n, F f) {
  const T* factors = numbers<T>(factor);
  const bool one = factor.shape.numel() == 1;
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
void scale(const Tensor& x, const Node& factor, std::int64_t n) {
  T* into = fresh_numbers<T>(x);
  if (n == 1) {
    *into *= *numbers<T>(factor);
  } else {
    each_factor<T>(factor, n, [into](std::int64_t i, T by) { into[i] *= by; });
  }
}

// sum += x * factor.
template <class T>
void add_product(const Tensor& sum, const Tensor& x, const Node& factor, std::int64_t n) {
  T* into = fresh_numbers<T>(sum);
  const T* from = numbers<T>(x);
  if (n == 1) {
    *into += *from * *numbers<T>(factor);
  } else {
    each_factor<T>(factor, n, [into, from](std::int64_t i, T by) { into[i] += from[i] * by; });
  }
}

// One number or one for each element, for an input of the shape of gy, in a pass that only
// computes.
bool plain(const VjpState& pass, const Node& input, const Node& factor) {
  return !t_grad_enabled && !pass.anomaly && shape_of(pass.gy) == input.shape &&
         (factor.shape.rank() == 0 || factor.shape == input.shape);
}

}  // namespace

bool add_product_to_sum(Vjp& r, int i, int factor) {
  VjpState& pass = VjpState::of(r);
  const Node& input = *pass.edge(i).node;
  const Node& by = pass.saved(factor);
  const Entry* arrived = pass.find(input);
  if (!arrived || !arrived->gradient.defined() || !sole_owner(arrived->gradient) ||
      !plain(pass, input, by)) {
    return false;
  }
  const std::int64_t n = input.shape.numel();
  input.dtype == DType::float32 ? add_product<float>(arrived->gradient, pass.gy, by, n)
                                : add_product<double>(arrived->gradient, pass.gy, by, n);
  return true;
}

void set_product(Vjp& r, int i, int factor, Upstream gy) {
  if (add_product_to_sum(r, i, factor)) return;
  VjpState& pass = VjpState::of(r);
  Node& input = *pass.edge(i).node;
  const Node& by = pass.saved(factor);
  if (gy == Upstream::done && sole_owner(pass.gy) && plain(pass, input, by)) {
    const std::int64_t n = input.shape.numel();
    input.dtype == DType::float32 ? scale<float>(pass.gy, by, n) : scale<double>(pass.gy, by, n);
    pass.deliver(input, std::move(pass.gy));
    return;
  }
  set_summed(r, i, mul(pass.gy, r.x(factor)));
}

}  // namespace softtape::detail
