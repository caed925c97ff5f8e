// Rotary positions: a rotation, so its vjp is the rotation back.
#include "softtape/ops/rope.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/loops.hpp"
#include "graph/node.hpp"

namespace softtape {

namespace {

const OpInfo kRope{"rope", [](Vjp& r) {
                     RopeOptions back = r.attributes<RopeOptions>();
                     back.inverse = !back.inverse;
                     r.set(0, rope(r.gy(), back));
                   }};

void check_rope(const Tensor& x, const RopeOptions& o) {
  detail::check_float("rope", "x", x);
  if (o.heads < 1) throw ValueError(fmt::format("[rope] heads must be positive: got {}", o.heads));
  if (!std::isfinite(o.base) || o.base <= 0) {
    throw ValueError(fmt::format("[rope] base must be positive and finite: got {}", o.base));
  }
  if (x.rank() < 2 || x.dim(-1) % o.heads != 0 || x.dim(-1) / o.heads % 2 != 0) {
    throw ShapeError(
        fmt::format("[rope] the last of two or more axes must split into heads of even width: x is "
                    "{}, heads {}",
                    to_string(x.shape()), o.heads));
  }
}

// cos and sin of every angle, position by position: (n, dk / 2) pairs.
template <class T>
std::vector<T> angle_table(std::int64_t n, std::int64_t dk, const RopeOptions& o) {
  std::vector<T> table(static_cast<std::size_t>(n * dk));
  auto into = table.begin();
  std::vector<double> speeds;
  for (std::int64_t i = 0; i < dk; i += 2) {
    speeds.push_back(std::pow(o.base, -static_cast<double>(i) / static_cast<double>(dk)));
  }
  for (std::int64_t t = 0; t < n; ++t) {
    for (const double speed : speeds) {
      const double angle = static_cast<double>(t + o.offset) * speed;
      *into++ = static_cast<T>(std::cos(angle));
      *into++ = static_cast<T>(o.inverse ? -std::sin(angle) : std::sin(angle));
    }
  }
  return table;
}

}  // namespace

Tensor rope(TensorArg x, RopeOptions options) {
  check_rope(x, options);
  Tensor y = detail::make_tensor(x->shape(), x->dtype());
  const std::int64_t n = x->dim(-2);
  const std::int64_t dk = x->dim(-1) / options.heads;
  const std::int64_t width = dk * options.heads;
  visit_float(x->dtype(), "rope", [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> table = angle_table<T>(n, dk, options);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    const std::int64_t rows = width ? x->numel() / width : 0;
    detail::for_ranges(rows, detail::row_grain(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* turn = table.data() + row % n * dk;
        for (std::int64_t j = row * width; j < (row + 1) * width; j += dk) {
          for (std::int64_t i = 0; i < dk; i += 2) {
            const T c = turn[i], s = turn[i + 1];
            const T a = from[j + i], b = from[j + i + 1];
            into[j + i] = c * a - s * b;
            into[j + i + 1] = s * a + c * b;
          }
        }
      }
    });
  });
  return record(kRope, std::move(y), {*x}, options);
}

}  // namespace softtape
