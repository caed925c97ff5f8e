// Indexed reads and writes. An index is checked whole before anything is read through it.
#include "softtape/ops/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/loops.hpp"
#include "ops/fill.hpp"
#include "ops/map.hpp"
#include "ops/strided.hpp"

namespace softtape {

namespace {

const std::int64_t* checked_index(const char* op, const char* argument, const Tensor& index,
                                  std::int64_t size) {
  detail::check_defined(op, argument, index);
  if (index.dtype() != DType::int64) {
    throw DtypeError(fmt::format("[{}] {} must be int64: got {}; convert with to()", op, argument,
                                 to_string(index.dtype())));
  }
  const auto* numbers = detail::numbers<std::int64_t>(index);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    if (numbers[i] >= 0 && numbers[i] < size) continue;
    std::array<std::int64_t, Shape::kMaxRank> at{};
    const int rank = index.rank();
    std::int64_t rest = i;
    for (int axis = rank - 1; axis >= 0; --axis) {
      at[static_cast<std::size_t>(axis)] = rest % index.shape()[axis];
      rest /= index.shape()[axis];
    }
    throw ValueError(fmt::format("[{}] {} must lie in [0, {}): got {} at ({})", op, argument, size,
                                 numbers[i], fmt::join(at.begin(), at.begin() + rank, ", ")));
  }
  return numbers;
}

// Where index and x have equally many axes: one line along `axis` for each place of the others.
struct Lines {
  detail::StridedCopy others;  // from x, into the index
  std::int64_t count;          // of entries of a line of the index
  std::int64_t x_step;
  std::int64_t index_step;

  Lines(const char* op, const Shape& x, int axis, const Shape& index) {
    bool fits = x.rank() == index.rank();
    for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index[i] <= x[i];
    if (!fits) {
      throw ShapeError(
          fmt::format("[{}] index must have the rank of x and be no larger, but for axis "
                      "{}: x is {}, index is {}",
                      op, axis, to_string(x), to_string(index)));
    }
    const detail::Steps x_steps(x);
    const detail::Steps index_steps(index);
    for (int i = 0; i < x.rank(); ++i) {
      if (i != axis) others.axis(index[i], x_steps[i], index_steps[i]);
    }
    count = index[axis];
    x_step = x_steps[axis];
    index_step = index_steps[axis];
  }

  // Calls f(place in x but for the axis, place in the index): line by line, each in its order.
  template <class F>
  void each(F f) const {
    const std::int64_t lines = others.places(others.rank);
    detail::for_ranges(lines, detail::row_grain(count), [&](std::int64_t begin, std::int64_t end) {
      detail::Places line(others, others.rank, begin);
      for (std::int64_t n = begin; n < end; ++n, line.next()) {
        for (std::int64_t i = 0; i < count; ++i) f(line.from, line.into + i * index_step);
      }
    });
  }
};

// Outer, axis and inner: the three axes that index_select sees.
struct Blocks {
  std::int64_t outer = 1;
  std::int64_t size;
  std::int64_t inner = 1;

  Blocks(const Shape& shape, int axis) : size(shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

// `shape` with the shape of an index in place of an axis.
Shape selected_shape(const char* op, const Shape& shape, int axis, const Shape& index) {
  std::array<std::int64_t, 2 * Shape::kMaxRank> sizes{};
  std::size_t n = 0;
  for (int i = 0; i < axis; ++i) sizes[n++] = shape[i];
  for (const std::int64_t size : index) sizes[n++] = size;
  for (int i = axis + 1; i < shape.rank(); ++i) sizes[n++] = shape[i];
  if (n > Shape::kMaxRank) {
    throw ShapeError(fmt::format("[{}] at most {} axes: an index of {} into axis {} of {} gives {}",
                                 op, Shape::kMaxRank, to_string(index), axis, to_string(shape), n));
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), n));
}

void selection_vjp(Vjp& r) {
  const int axis = r.attributes<int>();
  r.set(0, index_select_vjp(r.gy(), r.x_shape(0), axis, r.x(1)));
}

const OpInfo kIndexSelect{"index_select", selection_vjp, saves_input(1)};
const OpInfo kTakeRows{"take_rows", selection_vjp, saves_input(1)};

const OpInfo kIndexSelectVjp{
    "index_select_vjp", [](Vjp& r) { r.set(0, index_select(r.gy(), r.attributes<int>(), r.x(1))); },
    saves_input(1)};

const OpInfo kGather{"gather",
                     [](Vjp& r) {
                       const Tensor none = zeros(r.x_shape(0), {.dtype = r.x_dtype(0)});
                       r.set(0, scatter_add(none, r.attributes<int>(), r.x(1), r.gy()));
                     },
                     saves_input(1)};

const OpInfo kScatterAdd{"scatter_add",
                         [](Vjp& r) {
                           if (r.needs(0)) r.set(0, r.gy());
                           if (r.needs(2)) {
                             r.set(2, gather(r.gy(), r.attributes<int>(), r.x(1)));
                           }
                         },
                         saves_input(1)};

// May write infinities on purpose: masked scores.
const OpInfo kMaskedFill{"masked_fill", [](Vjp& r) { r.set(0, masked_fill(r.gy(), r.x(1), 0)); },
                         saves_input(1), true};

Tensor select_entries(const OpInfo& op, const char* x_name, const Tensor& x, int axis,
                      const char* index_name, const Tensor& index) {
  detail::check_defined(op.name, x_name, x);
  const int at = normalize_axis(op.name, axis, x.rank());
  const Blocks blocks(x.shape(), at);
  const std::int64_t* ids = checked_index(op.name, index_name, index, blocks.size);
  Tensor y = detail::make_tensor(selected_shape(op.name, x.shape(), at, index.shape()), x.dtype());
  const std::int64_t count = index.numel();
  visit_any(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    detail::for_ranges(blocks.outer * count, detail::row_grain(blocks.inner),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t row = begin; row < end; ++row) {
                           const std::int64_t source = row / count * blocks.size + ids[row % count];
                           std::copy_n(from + source * blocks.inner, blocks.inner,
                                       into + row * blocks.inner);
                         }
                       });
  });
  return record(op, std::move(y), {x, index}, at);
}

}  // namespace

Tensor index_select(TensorArg x, int axis, TensorArg index) {
  return select_entries(kIndexSelect, "x", x, axis, "index", index);
}

Tensor take_rows(TensorArg table, TensorArg ids) {
  return select_entries(kTakeRows, "table", table, 0, "ids", ids);
}

Tensor index_select_vjp(TensorArg gy, const Shape& shape, int axis, TensorArg index) {
  constexpr const char* kName = "index_select_vjp";
  detail::check_float(kName, "gy", gy);
  const int at = normalize_axis(kName, axis, shape.rank());
  const Blocks blocks(shape, at);
  const std::int64_t* ids = checked_index(kName, "index", index, blocks.size);
  const Shape selected = selected_shape(kName, shape, at, index->shape());
  if (gy->shape() != selected) {
    throw ShapeError(fmt::format("[{}] gy must have the shape of the selection: gy is {}, not {}",
                                 kName, to_string(gy->shape()), to_string(selected)));
  }
  Tensor gx = detail::make_tensor(shape, gy->dtype());
  detail::fill_zeros(gx);
  const std::int64_t count = index->numel();
  // Bands of columns: each adds all its rows in the order of the index, beside the others.
  const std::int64_t width = std::max<std::int64_t>(16, detail::row_grain(count));
  const std::int64_t bands = (blocks.inner + width - 1) / width;
  visit_float(gy->dtype(), kName, [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(gy);
    T* into = detail::fresh_numbers<T>(gx);
    detail::for_ranges(
        blocks.outer * bands, detail::row_grain(count * std::min(width, blocks.inner)),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t outer = task / bands;
            const std::int64_t first = task % bands * width;
            const std::int64_t n = std::min(width, blocks.inner - first);
            for (std::int64_t i = 0; i < count; ++i) {
              const T* source = from + (outer * count + i) * blocks.inner + first;
              T* target = into + (outer * blocks.size + ids[i]) * blocks.inner + first;
              for (std::int64_t j = 0; j < n; ++j) target[j] += source[j];
            }
          }
        });
  });
  return record(kIndexSelectVjp, std::move(gx), {*gy, *index}, at);
}

Tensor gather(TensorArg x, int axis, TensorArg index) {
  detail::check_defined("gather", "x", x);
  const int at = normalize_axis("gather", axis, x->rank());
  const std::int64_t* ids = checked_index("gather", "index", index, x->shape()[at]);
  const Lines lines("gather", x->shape(), at, index->shape());
  Tensor y = detail::make_tensor(index->shape(), x->dtype());
  visit_any(x->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    lines.each(
        [&](std::int64_t base, std::int64_t i) { into[i] = from[base + ids[i] * lines.x_step]; });
  });
  return record(kGather, std::move(y), {*x, *index}, at);
}

Tensor scatter_add(TensorArg x, int axis, TensorArg index, TensorArg src) {
  detail::check_defined("scatter_add", "x", x);
  detail::check_defined("scatter_add", "src", src);
  if (x->dtype() == DType::boolean || src->dtype() != x->dtype()) {
    throw DtypeError(fmt::format(
        "[scatter_add] x and src must be floats or int64 of one dtype: got {} and {}; convert with "
        "to()",
        to_string(x->dtype()), to_string(src->dtype())));
  }
  const int at = normalize_axis("scatter_add", axis, x->rank());
  const std::int64_t* ids = checked_index("scatter_add", "index", index, x->shape()[at]);
  const Lines lines("scatter_add", x->shape(), at, index->shape());
  if (src->shape() != index->shape()) {
    throw ShapeError(fmt::format("[scatter_add] src must have the shape of index: {} and {}",
                                 to_string(src->shape()), to_string(index->shape())));
  }
  Tensor y = detail::make_tensor(x->shape(), x->dtype());
  std::copy_n(detail::numbers<char>(x), static_cast<std::size_t>(x->numel()) * size_of(x->dtype()),
              detail::fresh_numbers<char>(y));
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(src);
    T* into = detail::fresh_numbers<T>(y);
    lines.each(
        [&](std::int64_t base, std::int64_t i) { into[base + ids[i] * lines.x_step] += from[i]; });
  };
  if (x->dtype() == DType::int64) {
    add(std::int64_t{});
  } else {
    visit_float(x->dtype(), "scatter_add", add);
  }
  return record(kScatterAdd, std::move(y), {*x, *index, *src}, at);
}

Tensor one_hot(TensorArg ids, std::int64_t classes, TensorOptions options) {
  if (classes < 0) {
    throw ShapeError(fmt::format("[one_hot] classes must not be negative: got {}", classes));
  }
  const std::int64_t* numbers = checked_index("one_hot", "ids", ids, classes);
  if (ids->rank() == Shape::kMaxRank) {
    throw ShapeError(fmt::format("[one_hot] at most {} axes: ids are {} already", Shape::kMaxRank,
                                 to_string(ids->shape())));
  }
  Tensor y = zeros(ids->shape().inserted(ids->rank(), classes), {.dtype = options.dtype});
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* into = detail::fresh_numbers<T>(y);
    for (std::int64_t i = 0; i < ids->numel(); ++i) into[i * classes + numbers[i]] = T{1};
  });
  if (options.requires_grad) y.requires_grad_();
  return y;
}

Tensor masked_fill(TensorArg x, TensorArg mask, double value) {
  detail::check_defined("masked_fill", "x", x);
  detail::check_boolean("masked_fill", "mask", mask);
  detail::check_number("masked_fill", x->dtype(), value);
  const Shape& shape = x->shape();
  if (broadcast("masked_fill", shape, mask->shape()) != shape) {
    throw ShapeError(fmt::format("[masked_fill] mask must broadcast to x: x is {}, mask is {}",
                                 to_string(shape), to_string(mask->shape())));
  }
  Tensor y = detail::make_tensor(shape, x->dtype());
  const detail::BroadcastPlan plan(shape, shape, mask->shape());
  const std::int64_t inner = plan.sizes[plan.rank - 1];
  const std::int64_t step = plan.b_strides[plan.rank - 1];
  const bool* hidden = detail::numbers<bool>(mask);
  visit_any(x->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(x);
    T* into = detail::fresh_numbers<T>(y);
    const T fill = static_cast<T>(value);
    const std::int64_t rows = inner ? shape.numel() / inner : 0;
    detail::for_ranges(rows, detail::row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::int64_t at, mask_at;
        plan.offsets(row, at, mask_at);
        at = row * inner;
        for (std::int64_t j = 0; j < inner; ++j) {
          into[at + j] = hidden[mask_at + j * step] ? fill : from[at + j];
        }
      }
    });
  });
  return record(kMaskedFill, std::move(y), {*x, *mask});
}

}  // namespace softtape
