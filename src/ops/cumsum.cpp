// Running sums along an axis, from either end.
#include "ops/reduce_plan.hpp"

namespace softtape {

namespace {

struct CumsumOf {
  int axis;
  bool from_end;
};

Tensor cumsum_from(const Tensor& x, CumsumOf of);

const OpInfo kCumsum{"cumsum", [](Vjp& r) {
                       const auto [axis, from_end] = r.attributes<CumsumOf>();
                       r.set(0, cumsum_from(r.gy(), {axis, !from_end}));
                     }};

// x as (outer, n, inner): columns run side by side, their sums in double.
template <class T>
void cumsum_numbers(const T* x, T* y, std::int64_t n, std::int64_t inner, bool from_end) {
  using Total = typename detail::SumFold<T>::Total;
  if (inner == 1) {
    Total sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = from_end ? n - 1 - i : i;
      sum += static_cast<Total>(x[at]);
      y[at] = static_cast<T>(sum);
    }
    return;
  }
  Total total[detail::kFoldTile];
  for (std::int64_t first = 0; first < inner; first += detail::kFoldTile) {
    const std::int64_t width = std::min(detail::kFoldTile, inner - first);
    std::fill_n(total, width, Total{0});
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = (from_end ? n - 1 - i : i) * inner + first;
      for (std::int64_t j = 0; j < width; ++j) {
        total[j] += static_cast<Total>(x[at + j]);
        y[at + j] = static_cast<T>(total[j]);
      }
    }
  }
}

Tensor cumsum_from(const Tensor& x, CumsumOf of) {
  const Shape& shape = x.shape();
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int axis = 0; axis < of.axis; ++axis) outer *= shape[axis];
  for (int axis = of.axis + 1; axis < shape.rank(); ++axis) inner *= shape[axis];
  const std::int64_t n = shape[of.axis];
  Tensor y = detail::make_tensor(shape, x.dtype());
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    detail::for_ranges(
        outer, detail::row_grain(n * inner), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            cumsum_numbers(from + i * n * inner, into + i * n * inner, n, inner, of.from_end);
          }
        });
  };
  if (x.dtype() == DType::int64) {
    run(std::int64_t{});
  } else {
    visit_float(x.dtype(), "cumsum", run);
  }
  return record(kCumsum, std::move(y), {x}, of);
}

}  // namespace

Tensor cumsum(TensorArg x, int axis) {
  if (detail::node_of("cumsum", "x", x).dtype == DType::boolean) {
    throw DtypeError("[cumsum] needs numbers: x is boolean; convert with to(x, DType::int64)");
  }
  return cumsum_from(x, {normalize_axis("cumsum", axis, x->rank()), false});
}

}  // namespace softtape
