// What rows of the table are made of: inputs, and references in plain loops.
#include "grad_cases/cases.hpp"

#include <algorithm>
#include <iterator>

#include "softtape/ops/create.hpp"

namespace grad_cases {

namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Family& Family::operator+=(Family other) {
  append(cases, std::move(other.cases));
  append(points, std::move(other.points));
  append(errors, std::move(other.errors));
  return *this;
}

const Family& all_families() {
  static const Family all = [] {
    Family rows;
    for (const auto& family : {elementwise_unary_rows, elementwise_binary_rows, reduce_rows,
                               matmul_rows, shape_rows, index_rows, softmax_rows, normalize_rows,
                               loss_rows, sort_rows, rope_rows, attention_rows, graph_rows}) {
      rows += family();
    }
    return rows;
  }();
  return all;
}

Inputs normals(std::vector<Shape> shapes) {
  return [shapes](Rng& rng) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) inputs.push_back(softtape::randn(rng, shape, kDouble));
    return inputs;
  };
}

Inputs uniforms(double low, double high, std::vector<Shape> shapes) {
  return [=](Rng& rng) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(softtape::uniform(rng, low, high, shape, kDouble));
    }
    return inputs;
  };
}

Inputs uniforms2(double low_a, double high_a, const Shape& a, double low_b, double high_b,
                 const Shape& b) {
  return [=](Rng& rng) {
    Tensor first = softtape::uniform(rng, low_a, high_a, a, kDouble);
    return std::vector<Tensor>{first, softtape::uniform(rng, low_b, high_b, b, kDouble)};
  };
}

Inputs with(Inputs first, Tensor constant) {
  return [=](Rng& rng) {
    std::vector<Tensor> inputs = first(rng);
    inputs.push_back(constant);
    return inputs;
  };
}

Array array_of(const Tensor& t) {
  Array array(t.shape());
  array.numbers = t.to_vector<long double>();
  return array;
}

Index unravel(std::int64_t i, const Shape& shape) {
  Index index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = i % shape[axis];
    i /= shape[axis];
  }
  return index;
}

std::int64_t ravel(const Index& index, const Shape& shape) {
  std::int64_t i = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    i = i * shape[axis] + index[static_cast<std::size_t>(axis)];
  }
  return i;
}

std::int64_t broadcast_position(std::int64_t i, const Shape& to, const Shape& from) {
  Index index = unravel(i, to);
  index.erase(index.begin(), index.begin() + (to.rank() - from.rank()));
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] == 1) index[static_cast<std::size_t>(axis)] = 0;
  }
  return ravel(index, from);
}

Reference each(std::function<long double(long double)> f) {
  return [f](const Arrays& x) {
    Array y(x[0].shape);
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = f(x[0][i]);
    return y;
  };
}

Reference each_pair(std::function<long double(long double, long double)> f) {
  return [f](const Arrays& x) {
    Array y(softtape::broadcast("reference", x[0].shape, x[1].shape));
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      y[i] = f(x[0][broadcast_position(i, y.shape, x[0].shape)],
               x[1][broadcast_position(i, y.shape, x[1].shape)]);
    }
    return y;
  };
}

Reference taking(const Shape& shape, std::function<Source(const Index&)> from,
                 long double otherwise) {
  return [=](const Arrays& x) {
    Array y(shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const Source source = from(unravel(i, shape));
      y[i] = source ? x[0][ravel(*source, x[0].shape)] : otherwise;
    }
    return y;
  };
}

Reference over(std::vector<int> axes, bool keepdim,
               std::function<long double(const std::vector<long double>&)> f) {
  return [=](const Arrays& x) {
    const Shape& from = x[0].shape;
    Shape kept = from;
    for (int axis = 0; axis < from.rank(); ++axis) {
      const bool reduced = axes.empty() || std::count(axes.begin(), axes.end(), axis) ||
                           std::count(axes.begin(), axes.end(), axis - from.rank());
      if (reduced) kept = kept.with(axis, 1);
    }
    std::vector<std::vector<long double>> groups(static_cast<std::size_t>(kept.numel()));
    for (std::int64_t i = 0; i < from.numel(); ++i) {
      groups[static_cast<std::size_t>(broadcast_position(i, from, kept))].push_back(x[0][i]);
    }
    Shape dropped = kept;
    for (int axis = from.rank() - 1; axis >= 0 && !keepdim; --axis) {
      const bool reduced = axes.empty() || std::count(axes.begin(), axes.end(), axis) ||
                           std::count(axes.begin(), axes.end(), axis - from.rank());
      if (reduced) dropped = dropped.without(axis);
    }
    Array y(dropped);
    for (std::int64_t i = 0; i < kept.numel(); ++i) y[i] = f(groups[static_cast<std::size_t>(i)]);
    return y;
  };
}

Tensor vec(std::vector<double> numbers) { return softtape::tensor(numbers, kDouble); }
Tensor ids(std::vector<std::int64_t> numbers) { return softtape::tensor(numbers); }
Tensor flags(std::vector<bool> numbers) { return softtape::tensor(numbers); }

}  // namespace grad_cases
