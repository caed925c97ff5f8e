// Rows of rotary positions.
#include "softtape/ops/rope.hpp"

#include <cmath>

#include "grad_cases/cases.hpp"
#include "softtape/ops/create.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

Reference turned(RopeOptions o) {
  return [=](const Arrays& x) {
    Array y(x[0].shape);
    const std::int64_t n = y.shape.dim(-2), width = y.shape.dim(-1), dk = width / o.heads;
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      const std::int64_t t = i / width % n + o.offset, j = i % dk;
      const long double speed =
          std::pow(static_cast<long double>(o.base), -static_cast<long double>(j - j % 2) / dk);
      const long double angle = static_cast<long double>(t) * speed * (o.inverse ? -1 : 1);
      y[i] = j % 2 == 0 ? std::cos(angle) * x[0][i] - std::sin(angle) * x[0][i + 1]
                        : std::cos(angle) * x[0][i] + std::sin(angle) * x[0][i - 1];
    }
    return y;
  };
}

}  // namespace

Family rope_rows() {
  Family rows;
  const auto add = [&](const char* name, const Shape& shape, RopeOptions o) {
    rows.cases.push_back({.op = "rope",
                          .name = name,
                          .inputs = normals({shape}),
                          .f = fn([o](const Tensor& x) { return rope(x, o); }),
                          .reference = turned(o),
                          .value_rtol = 1e-12,
                          .large = shape.numel() > 1000});
  };
  add("one head", {3, 4}, {});
  add("two heads, batch, offset", {2, 3, 8}, {.heads = 2, .base = 100, .offset = 5});
  add("inverse", {4, 6}, {.inverse = true});
  add("large", {3, 120, 96}, {.heads = 3});

  const auto refuse = [&](const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({"rope", name, type, message, std::move(call)});
  };
  const Tensor x = softtape::tensor({{1, 2, 3}, {4, 5, 6}}, {.dtype = DType::float64});
  refuse("undefined", ErrorType::graph, "x is an undefined", [] { rope(Tensor()); });
  refuse("int64", ErrorType::dtype, "x must be float32 or float64", [] { rope(ids({1, 2})); });
  refuse("odd width", ErrorType::shape, "heads of even width", [=] { rope(x); });
  refuse("rank 1", ErrorType::shape, "two or more axes", [] { rope(vec({1, 2})); });
  refuse("heads", ErrorType::value, "heads must be positive: got 0",
         [=] { rope(x, {.heads = 0}); });
  refuse("base", ErrorType::value, "base must be positive and finite: got 0",
         [=] { rope(x, {.base = 0}); });
  return rows;
}

}  // namespace grad_cases
