// Factories.
#include "softtape/ops/create.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/loops.hpp"
#include "ops/fill.hpp"
#include "ops/strided.hpp"

namespace softtape {

namespace {

void check_gradient_dtype(const char* op, DType dtype, const TensorOptions& options) {
  if (options.requires_grad && !is_floating(dtype)) {
    throw DtypeError(fmt::format("[{}] only float tensors can require a gradient: got {}", op,
                                 to_string(dtype)));
  }
}

// An uninitialised tensor as the options want it, checked, but without asking for a gradient yet.
Tensor make(const char* op, const Shape& shape, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(default_dtype());
  check_gradient_dtype(op, dtype, options);
  return detail::make_tensor(shape, dtype);
}

Tensor finished(Tensor y, const TensorOptions& options) {
  if (options.requires_grad) y.requires_grad_();
  return y;
}

TensorOptions like(const char* op, const Tensor& x, TensorOptions options) {
  detail::check_defined(op, "x", x);
  if (!options.dtype) options.dtype = x.dtype();
  return options;
}

Tensor filled(const char* op, const Shape& shape, double value, const TensorOptions& options) {
  detail::check_number(op, options.dtype.value_or(default_dtype()), value);
  Tensor y = make(op, shape, options);
  detail::fill_number(y, value);
  return finished(std::move(y), options);
}

// y[i] = f(i), computed in the type of f and rounded to the dtype of y.
template <class F>
void fill_from(Tensor& y, F f) {
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* into = detail::fresh_numbers<T>(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) into[i] = static_cast<T>(f(i));
  });
}

// A float tensor filled by f(span) of its element type.
template <class F>
Tensor drawn(const char* op, const Shape& shape, const TensorOptions& options, F f) {
  visit_float(options.dtype.value_or(default_dtype()), op, [](auto) {});
  Tensor y = make(op, shape, options);
  visit_float(y.dtype(), op, [&](auto zero) {
    using T = decltype(zero);
    f(std::span<T>(detail::fresh_numbers<T>(y), static_cast<std::size_t>(y.numel())));
  });
  return finished(std::move(y), options);
}

}  // namespace

Tensor zeros(const Shape& shape, TensorOptions options) {
  Tensor y = make("zeros", shape, options);
  detail::fill_zeros(y);
  return finished(std::move(y), options);
}
Tensor ones(const Shape& shape, TensorOptions options) { return filled("ones", shape, 1, options); }
Tensor full(const Shape& shape, double value, TensorOptions options) {
  return filled("full", shape, value, options);
}
Tensor empty(const Shape& shape, TensorOptions options) {
  return finished(make("empty", shape, options), options);
}

Tensor zeros_like(const Tensor& x, TensorOptions options) {
  const TensorOptions same = like("zeros_like", x, options);
  return filled("zeros_like", x.shape(), 0, same);
}
Tensor ones_like(const Tensor& x, TensorOptions options) {
  const TensorOptions same = like("ones_like", x, options);
  return filled("ones_like", x.shape(), 1, same);
}
Tensor full_like(const Tensor& x, double value, TensorOptions options) {
  const TensorOptions same = like("full_like", x, options);
  return filled("full_like", x.shape(), value, same);
}
Tensor empty_like(const Tensor& x, TensorOptions options) {
  const TensorOptions same = like("empty_like", x, options);
  return finished(make("empty_like", x.shape(), same), same);
}

Tensor eye(std::int64_t n, TensorOptions options) { return eye(n, n, options); }
Tensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options) {
  Tensor y = make("eye", {rows, columns}, options);
  fill_from(y, [&](std::int64_t i) { return i / columns == i % columns ? 1 : 0; });
  return finished(std::move(y), options);
}

namespace detail {

Tensor arange(std::int64_t start, std::int64_t stop, std::int64_t step, TensorOptions options) {
  if (step == 0) throw ValueError("[arange] step must not be 0");
  if (!options.dtype) options.dtype = DType::int64;
  // Unsigned arithmetic: the distance of two int64 may not fit one.
  const bool any = step > 0 ? start < stop : start > stop;
  const auto from = static_cast<std::uint64_t>(start);
  const auto to = static_cast<std::uint64_t>(stop);
  const std::uint64_t distance = step > 0 ? to - from : from - to;
  const std::uint64_t stride =
      step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const std::uint64_t count = any ? (distance - 1) / stride + 1 : 0;
  if (count >> 62) throw ValueError("[arange] too many numbers for a tensor: use a larger step");
  Tensor y = make("arange", {static_cast<std::int64_t>(count)}, options);
  fill_from(y, [&](std::int64_t i) {
    return static_cast<std::int64_t>(from + static_cast<std::uint64_t>(i) *
                                                static_cast<std::uint64_t>(step));
  });
  return finished(std::move(y), options);
}

Tensor arange(double start, double stop, double step, TensorOptions options) {
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step) || step == 0) {
    throw ValueError(fmt::format("[arange] bounds must be finite and step not 0: got {}, {}, {}",
                                 start, stop, step));
  }
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  if (!(count < 0x1p62)) {
    throw ValueError("[arange] too many numbers for a tensor: use a larger step");
  }
  const DType dtype = options.dtype.value_or(default_dtype());
  if (!is_floating(dtype)) {
    throw DtypeError(fmt::format(
        "[arange] fractions need a float dtype: got {}; give whole numbers", to_string(dtype)));
  }
  Tensor y = make("arange", {static_cast<std::int64_t>(count)}, options);
  // NumPy's step: what the first two elements differ by.
  const double stride = (start + step) - start;
  fill_from(y, [&](std::int64_t i) { return start + static_cast<double>(i) * stride; });
  return finished(std::move(y), options);
}

void check_range(const Shape& shape, std::size_t count, bool floats, const TensorOptions& options) {
  if (static_cast<std::size_t>(shape.numel()) != count) {
    throw ShapeError(fmt::format("[tensor] the shape must hold all numbers: {} of them for {}",
                                 count, to_string(shape)));
  }
  const DType dtype = options.dtype.value_or(default_dtype());
  check_gradient_dtype("tensor", dtype, options);
  if (floats && !is_floating(dtype)) {
    throw DtypeError(fmt::format("[tensor] floats need a float dtype: got {}; convert with to()",
                                 to_string(dtype)));
  }
}

}  // namespace detail

Tensor linspace(double start, double stop, std::int64_t count, TensorOptions options) {
  if (count < 0 || !std::isfinite(start) || !std::isfinite(stop)) {
    throw ValueError(
        fmt::format("[linspace] bounds must be finite and count not negative: got {}, {}, {}",
                    start, stop, count));
  }
  visit_float(options.dtype.value_or(default_dtype()), "linspace", [](auto) {});
  Tensor y = make("linspace", {count}, options);
  const double step = (stop - start) / static_cast<double>(std::max<std::int64_t>(1, count - 1));
  fill_from(y, [&](std::int64_t i) {
    return i > 0 && i == count - 1 ? stop : static_cast<double>(i) * step + start;
  });
  return finished(std::move(y), options);
}

NestedNumbers::NestedNumbers(std::initializer_list<NestedNumbers> parts)
    : sizes_{static_cast<std::int64_t>(parts.size())} {
  if (parts.size() == 0) return;
  const NestedNumbers& first = *parts.begin();
  sizes_.insert(sizes_.end(), first.sizes_.begin(), first.sizes_.end());
  kind_ = first.kind_;
  for (const NestedNumbers& part : parts) {
    if (part.sizes_ != first.sizes_) {
      throw ShapeError(
          fmt::format("[tensor] braces of one depth must hold equally many: {} beside {}",
                      to_string(Shape(std::span<const std::int64_t>(first.sizes_))),
                      to_string(Shape(std::span<const std::int64_t>(part.sizes_)))));
    }
    if (part.kind_ != kind_) {
      kind_ = is_floating(part.kind_) || is_floating(kind_) ? DType::float64 : DType::int64;
    }
    elements_.insert(elements_.end(), part.elements_.begin(), part.elements_.end());
  }
}

Tensor tensor(const NestedNumbers& numbers, TensorOptions options) {
  const Shape shape{std::span<const std::int64_t>(numbers.sizes_)};
  if (!options.dtype && !is_floating(numbers.kind_)) options.dtype = numbers.kind_;
  const DType dtype = options.dtype.value_or(default_dtype());
  const bool whole = dtype == DType::int64 && numbers.kind_ != DType::float64;
  if (!whole) {
    for (const auto& element : numbers.elements_) {
      detail::check_number("tensor", dtype, element.real);
    }
  }
  Tensor y = make("tensor", shape, options);
  const auto element = [&](std::int64_t i) {
    return numbers.elements_[static_cast<std::size_t>(i)];
  };
  if (whole) {
    fill_from(y, [&](std::int64_t i) { return element(i).whole; });
  } else {
    fill_from(y, [&](std::int64_t i) { return element(i).real; });
  }
  return finished(std::move(y), options);
}

Tensor rand(Rng& rng, const Shape& shape, TensorOptions options) {
  return drawn("rand", shape, options, [&]<class T>(std::span<T> out) {
    // Fills of `uniform` round the float64 stream, and stay below 1 when they do.
    if (options.dtype) rng.random(out);
    if (!options.dtype) rng.uniform(out, 0, 1);
  });
}

Tensor randn(Rng& rng, const Shape& shape, TensorOptions options) {
  return drawn("randn", shape, options, [&]<class T>(std::span<T> out) {
    if (options.dtype) rng.standard_normal(out);
    if (!options.dtype) rng.normal(out, 0, 1);
  });
}

Tensor normal(Rng& rng, double mean, double std, const Shape& shape, TensorOptions options) {
  if (!(std >= 0 && std::isfinite(std))) {
    throw ValueError(fmt::format("[normal] std must be finite and not negative: got {}", std));
  }
  return drawn("normal", shape, options,
               [&]<class T>(std::span<T> out) { rng.normal(out, mean, std); });
}

Tensor uniform(Rng& rng, double low, double high, const Shape& shape, TensorOptions options) {
  if (!(high - low >= 0 && std::isfinite(high - low))) {
    throw ValueError(fmt::format(
        "[uniform] high - low must be finite and not negative: low is {}, high is {}", low, high));
  }
  return drawn("uniform", shape, options,
               [&]<class T>(std::span<T> out) { rng.uniform(out, low, high); });
}

Tensor randint(Rng& rng, std::int64_t low, std::int64_t high, const Shape& shape) {
  if (low >= high) {
    throw ValueError(fmt::format("[randint] low must be less than high: got {} and {}", low, high));
  }
  Tensor y = detail::make_tensor(shape, DType::int64);
  rng.integers({detail::fresh_numbers<std::int64_t>(y), static_cast<std::size_t>(y.numel())}, low,
               high);
  return y;
}

Tensor permutation(Rng& rng, std::int64_t n) {
  if (n < 0) throw ValueError(fmt::format("[permutation] n must not be negative: got {}", n));
  return tensor(rng.permutation(n));
}

}  // namespace softtape
