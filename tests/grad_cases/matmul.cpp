// Rows of matrix products: every rank rule, both flags, broadcast batches.
#include "softtape/ops/matmul.hpp"

#include <array>

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// Rank 2 or more, with the last two axes swapped where asked.
struct Matrices {
  const Array& numbers;
  bool transposed;
  std::int64_t rows() const { return numbers.shape.dim(transposed ? -1 : -2); }
  std::int64_t columns() const { return numbers.shape.dim(transposed ? -2 : -1); }
  Shape batch() const {
    return numbers.shape.without(numbers.shape.rank() - 1).without(numbers.shape.rank() - 2);
  }
  long double at(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    const std::int64_t size = rows() * columns();
    const std::int64_t place = transposed ? column * rows() + row : row * columns() + column;
    return numbers[matrix * size + place];
  }
};

Reference product(MatmulOptions options) {
  return [options](const Arrays& x) {
    Array left = x[0];
    Array right = x[1];
    if (left.shape.rank() == 1) left.shape = left.shape.inserted(0, 1);
    if (right.shape.rank() == 1) right.shape = right.shape.inserted(1, 1);
    const Matrices a{left, options.transpose_a};
    const Matrices b{right, options.transpose_b};
    const Shape batch = broadcast("reference", a.batch(), b.batch());
    Array y(batch.inserted(batch.rank(), a.rows()).inserted(batch.rank() + 1, b.columns()));
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      const std::int64_t column = i % b.columns();
      const std::int64_t row = i / b.columns() % a.rows();
      const std::int64_t matrix = i / b.columns() / a.rows();
      const std::int64_t in_a = broadcast_position(matrix, batch, a.batch());
      const std::int64_t in_b = broadcast_position(matrix, batch, b.batch());
      for (std::int64_t k = 0; k < a.columns(); ++k)
        y[i] += a.at(in_a, row, k) * b.at(in_b, k, column);
    }
    if (x[1].shape.rank() == 1) y.shape = y.shape.without(y.shape.rank() - 1);
    if (x[0].shape.rank() == 1) {
      y.shape = y.shape.without(y.shape.rank() - (x[1].shape.rank() == 1 ? 1 : 2));
    }
    return y;
  };
}

GradCase row(const Shape& a, const Shape& b, MatmulOptions options = {}) {
  return {
      .op = "matmul",
      .name = to_string(a) + (options.transpose_a ? "^T " : " ") + to_string(b) +
              (options.transpose_b ? "^T" : ""),
      .inputs = normals({a, b}),
      .f = fn([=](const Tensor& x, const Tensor& y) { return softtape::matmul(x, y, options); }),
      .reference = product(options),
      .float32_rtol = 1e-4,
      .large = a.numel() > 1000};
}

}  // namespace

Family matmul_rows() {
  Family rows;
  rows.cases = {
      row({2, 3}, {3, 4}),
      row({3, 2}, {3, 4}, {.transpose_a = true}),
      row({2, 3}, {4, 3}, {.transpose_b = true}),
      row({3, 2}, {4, 3}, {.transpose_a = true, .transpose_b = true}),
      row({3, 3}, {3, 3}),
      row({1, 1}, {1, 1}),
      row({3}, {3}),
      row({3}, {3, 2}),
      row({2, 3}, {3}),
      row({3}, {2, 3, 2}),
      row({2, 2, 3}, {3}),
      row({3, 2}, {3}, {.transpose_a = true}),
      row({3}, {2, 3}, {.transpose_b = true}),
      row({2, 2, 3}, {2, 3, 2}),
      row({2, 3, 2}, {2, 2, 3}, {.transpose_a = true, .transpose_b = true}),
      row({2, 2, 3}, {3, 2}),
      row({2, 3}, {2, 3, 2}),
      row({2, 3}, {2, 2, 3}, {.transpose_b = true}),
      row({3, 2}, {2, 3, 2}, {.transpose_a = true}),
      row({2, 1, 2, 3}, {3, 3, 2}),
      row({1, 2, 3}, {2, 3, 1}),
      row({70, 130}, {130, 60}),
      row({60, 90}, {70, 90}, {.transpose_b = true}),
      row({8, 20, 16}, {8, 20, 16}, {.transpose_b = true}),
  };

  const auto refuse = [&](const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({"matmul", name, type, message, std::move(call)});
  };
  const auto ones_of = [](const Shape& shape) {
    Rng rng(1);
    return normals({shape})(rng)[0];
  };
  refuse("inner sizes", ErrorType::shape,
         "inner sizes must match: a is (4, 8), b is (6, 3), 8 != 6", [=] {
           matmul(ones_of({4, 8}), ones_of({6, 3}));
         });
  refuse("inner sizes, one transpose away", ErrorType::shape, "transpose_b", [=] {
    matmul(ones_of({4, 8}), ones_of({3, 8}));
  });
  refuse("batches", ErrorType::shape, "must broadcast", [=] {
    matmul(ones_of({2, 3, 4}), ones_of({3, 4, 2}));
  });
  refuse("rank 0", ErrorType::shape, "needs rank 1 or more",
         [=] { matmul(ones_of({}), ones_of({2})); });
  refuse("transposed vector", ErrorType::shape, "transpose_a needs rank 2 or more",
         [=] { matmul(ones_of({2}), ones_of({2}), {.transpose_a = true}); });
  refuse("transposed right vector", ErrorType::shape, "transpose_b needs rank 2 or more", [=] {
    matmul(ones_of({2, 2}), ones_of({2}), {.transpose_b = true});
  });
  refuse("int64", ErrorType::dtype, "float", [] { matmul(ids({1}), ids({1})); });
  refuse("float32 with float64", ErrorType::dtype, "float32",
         [] { matmul(to(vec({1}), DType::float32), vec({1})); });
  refuse("undefined a", ErrorType::graph, "a is an undefined tensor",
         [] { matmul(Tensor(), vec({1})); });
  refuse("undefined b", ErrorType::graph, "b is an undefined tensor",
         [] { matmul(vec({1}), Tensor()); });
  return rows;
}

}  // namespace grad_cases
