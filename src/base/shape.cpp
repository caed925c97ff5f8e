// Size rules: construction, axes, broadcasting. Also the default dtype.
#include "softtape/base/shape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "softtape/base/dtype.hpp"
#include "softtape/base/error.hpp"

namespace softtape {

namespace {
constinit thread_local DType t_default_dtype = DType::float32;
}

void Shape::check(std::span<const std::int64_t> sizes) {
  *this = Shape();
  if (sizes.size() > kMaxRank) {
    throw ShapeError(fmt::format("[shape] at most {} axes: got {}", kMaxRank, sizes.size()));
  }
  bool overflow = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw ShapeError(fmt::format("[shape] sizes must not be negative: got ({})",
                                   fmt::join(sizes.begin(), sizes.end(), ", ")));
    }
    sizes_[rank_++] = size;
    overflow |= __builtin_mul_overflow(numel_, size, &numel_);
  }
  // An empty tensor may have sizes whose product alone would not fit.
  if (overflow && std::find(begin(), end(), 0) != end()) {
    numel_ = 0;
  } else if (overflow) {
    throw ShapeError(
        fmt::format("[shape] the number of elements must fit 63 bits: got {}", to_string(*this)));
  }
}

std::int64_t Shape::dim(int axis) const { return sizes_[normalize_axis("dim", axis, rank_)]; }

Shape Shape::with(int axis, std::int64_t size) const {
  axis = normalize_axis("shape", axis, rank_);
  std::int64_t sizes[kMaxRank];
  for (int i = 0; i < rank_; ++i) sizes[i] = i == axis ? size : sizes_[i];
  return Shape(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(rank_)));
}

Shape Shape::without(int axis) const {
  axis = normalize_axis("shape", axis, rank_);
  std::int64_t sizes[kMaxRank];
  int n = 0;
  for (int i = 0; i < rank_; ++i) {
    if (i != axis) sizes[n++] = sizes_[i];
  }
  return Shape(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(n)));
}

Shape Shape::inserted(int axis, std::int64_t size) const {
  axis = normalize_axis("shape", axis, rank_ + 1);
  std::int64_t sizes[kMaxRank + 1];
  for (int i = 0, j = 0; i <= rank_; ++i) sizes[i] = i == axis ? size : sizes_[j++];
  return Shape(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(rank_) + 1));
}

std::string to_string(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape.begin(), shape.end(), ", "),
                     shape.rank() == 1 ? "," : "");
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const int lead = longer.rank() - shorter.rank();
  std::int64_t sizes[Shape::kMaxRank];
  for (int i = 0; i < longer.rank(); ++i) {
    const std::int64_t m = longer[i];
    const std::int64_t n = i < lead ? 1 : shorter[i - lead];
    if (m != n && m != 1 && n != 1) {
      throw ShapeError(fmt::format(
          "[{}] shapes must broadcast: a is {}, b is {}; axes align at the end, {} meets {}", op,
          to_string(a), to_string(b), a.rank() >= b.rank() ? m : n, a.rank() >= b.rank() ? n : m));
    }
    sizes[i] = m == 1 ? n : m;
  }
  return Shape(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(longer.rank())));
}

int normalize_axis(const char* op, int axis, int rank) {
  if (axis < -rank || axis >= rank) {
    throw ShapeError(fmt::format("[{}] axis must lie in [{}, {}): got {} for a tensor of rank {}",
                                 op, -rank, rank, axis, rank));
  }
  return axis < 0 ? axis + rank : axis;
}

void detail::throw_not_float(const char* op, DType dtype) {
  throw DtypeError(
      fmt::format("[{}] needs a float tensor, got {}; convert with to(x, DType::float32)", op,
                  to_string(dtype)));
}

DType default_dtype() { return t_default_dtype; }

DefaultDtype::DefaultDtype(DType dtype) : previous_(t_default_dtype) {
  if (!is_floating(dtype)) {
    throw DtypeError(fmt::format("[DefaultDtype] needs a float type: got {}", to_string(dtype)));
  }
  t_default_dtype = dtype;
}

DefaultDtype::~DefaultDtype() { t_default_dtype = previous_; }

}  // namespace softtape
