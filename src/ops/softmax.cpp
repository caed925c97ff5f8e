// Softmax, its vjp as an op of its own, and log softmax. The row kernels are in
// softmax_kernels.hpp.
#include "softtape/ops/softmax.hpp"

#include <fmt/format.h>

#include "ops/softmax_kernels.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace {

const OpInfo kSoftmax{"softmax", [](Vjp& r) { r.set(0, softmax_vjp(r.y(), r.gy())); },
                      saves_output};

// gx_i = p_i (g'_i - s), s = sum p g', g' = g - g_w. With upstream u and t = sum p u:
//   for g: p (u - t), the same map, since the Jacobian is symmetric;
//   for p: u (g' - s) - g' t.
const OpInfo kSoftmaxVjp{"softmax_vjp",
                         [](Vjp& r) {
                           const Tensor p = r.x(0);
                           if (r.needs(1)) r.set(1, softmax_vjp(p, r.gy()));
                           if (!r.needs(0)) return;
                           if (p.numel() == 0) return r.set(0, r.gy());
                           const ReduceOptions keep{.keepdim = true};
                           const Tensor g = r.x(1);
                           const Tensor u = r.gy();
                           const Tensor winner = gather(g, -1, argmax(p, -1, keep));
                           const Tensor centred = sub(g, winner);
                           const Tensor s = sum(chain_mul(p, centred), -1, keep);
                           const Tensor t = sum(chain_mul(p, u), -1, keep);
                           r.set(0, sub(chain_mul(u, sub(centred, s)), chain_mul(t, centred)));
                         },
                         saves_inputs};

const OpInfo kLogSoftmax{"log_softmax",
                         [](Vjp& r) {
                           const Mask& mask = r.attributes<Mask>();
                           Tensor gy = r.gy();
                           Tensor visible;
                           if (!mask.empty()) {
                             visible = mask.visible(gy.shape());
                             gy = where(visible, gy, 0);
                           }
                           const Tensor total = sum(gy, -1, {.keepdim = true});
                           r.set(0, sub(gy, chain_mul(exp(r.y()), total)));
                         },
                         saves_output, true};

// Runs kernel(row index) over rows of m numbers, in chunks of fixed size.
template <class F>
void for_rows(const Tensor& x, std::int64_t m, F kernel) {
  const std::int64_t rows = m ? x.numel() / m : 0;
  detail::for_ranges(rows, detail::row_grain(4 * m), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) kernel(row);
  });
}

// Runs kernel(begin, end) over blocks of rows of m <= kLanes numbers.
template <class F>
void for_narrow_rows(const Tensor& x, std::int64_t m, F kernel) {
  const std::int64_t rows = m ? detail::shape_of(x).numel() / m : 0;
  detail::for_ranges(rows, detail::row_grain(4 * detail::kLanes), kernel);
}

// Checks, then applies `op_last` along the last axis, moving `axis` there and back.
template <class F>
Tensor along_axis(const char* op, const Tensor& x, const SoftmaxOptions& options, F op_last) {
  detail::check_float(op, "x", x);
  if (x.rank() == 0) throw ShapeError(fmt::format("[{}] needs rank 1 or more: x is ()", op));
  const int axis = normalize_axis(op, options.axis, x.rank());
  if (axis == x.rank() - 1) return op_last(x, options.mask);
  if (!options.mask.empty()) {
    throw ShapeError(fmt::format("[{}] a mask goes with the last axis: got axis {} of {}", op, axis,
                                 to_string(x.shape())));
  }
  return transpose(op_last(transpose(x, axis, -1), Mask()), axis, -1);
}

}  // namespace

Tensor softmax(TensorArg x, const SoftmaxOptions& options) {
  return along_axis("softmax", x, options, [](const Tensor& t, const Mask& mask) {
    const detail::Node& from = *detail::TensorAccess::node(t);
    const detail::MaskRows rows("softmax", mask, from.shape);
    Tensor y = detail::make_tensor(from.shape, from.dtype);
    const std::int64_t m = from.shape[from.shape.rank() - 1];
    visit_float(from.dtype, "softmax", [&](auto zero) {
      using T = decltype(zero);
      const T* in = detail::numbers<T>(t);
      T* out = detail::fresh_numbers<T>(y);
      if (m <= detail::kLanes) {
        for_narrow_rows(t, m, [&](std::int64_t begin, std::int64_t end) {
          detail::softmax_narrow(in, out, m, begin, end - begin, rows);
        });
        return;
      }
      for_rows(t, m, [&](std::int64_t row) {
        detail::softmax_row(in + row * m, out + row * m, m, rows.row(row));
      });
    });
    return record(kSoftmax, std::move(y), {t});
  });
}

Tensor softmax(TensorArg x, int axis) { return softmax(x, SoftmaxOptions{.axis = axis}); }

Tensor softmax_vjp(TensorArg p, TensorArg g) {
  detail::check_same_float("softmax_vjp", "p", p, "g", g);
  const Shape& shape = detail::shape_of(p);
  if (shape != detail::shape_of(g) || shape.rank() == 0) {
    throw ShapeError(
        fmt::format("[softmax_vjp] shapes must be equal, rank 1 or more: p is {}, g is {}",
                    to_string(p->shape()), to_string(g->shape())));
  }
  const DType dtype = detail::TensorAccess::node(p)->dtype;
  Tensor y = detail::make_tensor(shape, dtype);
  const std::int64_t m = shape[shape.rank() - 1];
  visit_float(dtype, "softmax_vjp", [&](auto zero) {
    using T = decltype(zero);
    const T* weights = detail::numbers<T>(p);
    const T* upstream = detail::numbers<T>(g);
    T* out = detail::fresh_numbers<T>(y);
    if (m <= detail::kLanes) {
      for_narrow_rows(p, m, [&](std::int64_t begin, std::int64_t end) {
        detail::softmax_vjp_narrow(weights + begin * m, upstream + begin * m, out + begin * m, m,
                                   end - begin);
      });
      return;
    }
    for_rows(p, m, [&](std::int64_t row) {
      detail::softmax_vjp_row(weights + row * m, upstream + row * m, out + row * m, m);
    });
  });
  return record(kSoftmaxVjp, std::move(y), {*p, *g});
}

Tensor log_softmax(TensorArg x, const SoftmaxOptions& options) {
  return along_axis("log_softmax", x, options, [](const Tensor& t, const Mask& mask) {
    const detail::MaskRows rows("log_softmax", mask, t.shape());
    Tensor y = detail::make_tensor(t.shape(), t.dtype());
    const std::int64_t m = t.dim(-1);
    visit_float(t.dtype(), "log_softmax", [&](auto zero) {
      using T = decltype(zero);
      const T* in = detail::numbers<T>(t);
      T* out = detail::fresh_numbers<T>(y);
      for_rows(t, m, [&](std::int64_t row) {
        const T* from = in + row * m;
        T* into = out + row * m;
        const detail::MaskRow visible = rows.row(row);
        // The shift and the sum apart: x - (shift + ln sum) would lose ln sum beside a huge shift.
        const auto [shift, sum] = detail::softmax_sum(from, visible);
        const T log_sum = std::log(sum);
        for (std::int64_t j = 0; j < m; ++j) {
          into[j] =
              visible.sees(j) && sum != 0 ? (from[j] - shift) - log_sum : detail::kMinusInf<T>;
        }
      });
    });
    return record(kLogSoftmax, std::move(y), {t}, mask);
  });
}

Tensor log_softmax(TensorArg x, int axis) { return log_softmax(x, SoftmaxOptions{.axis = axis}); }

}  // namespace softtape
