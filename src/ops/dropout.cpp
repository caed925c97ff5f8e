// Dropout. The map x -> keep x / (1 - p) is its own vjp, so one function serves both ways.
#include "softtape/ops/dropout.hpp"

#include <fmt/format.h>

#include "base/loops.hpp"
#include "graph/node.hpp"

namespace softtape {

namespace {

struct Kept {
  Tensor keep;  // boolean
  double scale;
};

Tensor scale_kept(const Tensor& x, const Kept& kept);

const OpInfo kDropout{"dropout",
                      [](Vjp& r) { r.set(0, scale_kept(r.gy(), r.attributes<Kept>())); }};

Tensor scale_kept(const Tensor& x, const Kept& kept) {
  Tensor y = detail::make_tensor(x.shape(), x.dtype());
  visit_float(x.dtype(), "dropout", [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    const bool* keep = detail::numbers<bool>(kept.keep);
    T* into = detail::fresh_numbers<T>(y);
    const T scale = static_cast<T>(kept.scale);
    detail::for_ranges(x.numel(), detail::kGrain, [&](std::int64_t begin, std::int64_t end) {
      // Selected, not multiplied: 0 times an infinity would be NaN.
      for (std::int64_t i = begin; i < end; ++i) into[i] = keep[i] ? from[i] * scale : T{0};
    });
  });
  return record(kDropout, std::move(y), {x}, kept);
}

Tensor draw_kept(const Shape& shape, double p, Rng& rng) {
  Tensor keep = detail::make_tensor(shape, DType::boolean);
  bool* into = detail::fresh_numbers<bool>(keep);
  constexpr std::int64_t kBlock = 512;
  double draws[kBlock];
  for (std::int64_t first = 0; first < shape.numel(); first += kBlock) {
    const std::int64_t n = std::min(kBlock, shape.numel() - first);
    rng.random(std::span<double>(draws, static_cast<std::size_t>(n)));
    for (std::int64_t i = 0; i < n; ++i) into[first + i] = draws[i] >= p;
  }
  return keep;
}

}  // namespace

Tensor dropout(TensorArg x, double p, Rng& rng, DropoutOptions options) {
  detail::check_float("dropout", "x", x);
  if (!(p >= 0 && p <= 1)) {
    throw ValueError(fmt::format("[dropout] p must lie in [0, 1]: got {}", p));
  }
  if (p == 0 || !options.training) return x;
  return scale_kept(x, {draw_kept(x->shape(), p, rng), p < 1 ? 1 / (1 - p) : 0});
}

}  // namespace softtape
