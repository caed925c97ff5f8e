// Rows of layer norm and RMS norm.
#include "softtape/ops/normalize.hpp"

#include <cmath>

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// Inputs x, then weight and bias where there are any.
Reference normalized(bool centred, double eps) {
  return [=](const Arrays& x) {
    Array y(x[0].shape);
    const std::int64_t d = y.shape.dim(-1);
    for (std::int64_t start = 0; start < y.shape.numel(); start += d) {
      long double mean = 0;
      for (std::int64_t j = 0; centred && j < d; ++j) mean += x[0][start + j] / d;
      long double squares = 0;
      for (std::int64_t j = 0; j < d; ++j) squares += std::pow(x[0][start + j] - mean, 2.0L) / d;
      for (std::int64_t j = 0; j < d; ++j) {
        y[start + j] = (x[0][start + j] - mean) / std::sqrt(squares + eps);
        if (x.size() > 1) y[start + j] *= x[1][j];
        if (x.size() > 2) y[start + j] += x[2][j];
      }
    }
    return y;
  };
}

}  // namespace

Family normalize_rows() {
  Family rows;
  for (const double eps : {1e-5, 0.1}) {
    for (const Shape& x : {Shape{5}, Shape{2, 3}, Shape{2, 2, 4}, Shape{190, 180}}) {
      const Shape d{x.dim(-1)};
      const auto add = [&](const char* op, std::vector<Shape> inputs, softtape::TensorFunction f) {
        rows.cases.push_back(
            {.op = op,
             .name = to_string(x) + ", " + std::to_string(inputs.size()) + " inputs",
             .inputs = normals(std::move(inputs)),
             .f = std::move(f),
             .reference = normalized(op == std::string("layer_norm"), eps),
             .float32_rtol = 1e-4,
             .large = x.numel() > 1000});
      };
      add("layer_norm", {x},
          fn([=](const Tensor& t) { return layer_norm(t, {}, {}, {.eps = eps}); }));
      add("layer_norm", {x, d}, fn([=](const Tensor& t, const Tensor& weight) {
            return layer_norm(t, weight, {}, {.eps = eps});
          }));
      add("layer_norm", {x, d, d},
          fn([=](const Tensor& t, const Tensor& weight, const Tensor& bias) {
            return layer_norm(t, weight, bias, {.eps = eps});
          }));
      add("rms_norm", {x}, fn([=](const Tensor& t) { return rms_norm(t, {}, {.eps = eps}); }));
      add("rms_norm", {x, d}, fn([=](const Tensor& t, const Tensor& weight) {
            return rms_norm(t, weight, {.eps = eps});
          }));
    }
  }
  // Weight and bias without x's gradient, and the bias alone.
  rows.cases.push_back(
      {.op = "layer_norm",
       .name = "bias without weight",
       .inputs = normals({{2, 3}, {3}}),
       .f = fn([](const Tensor& x, const Tensor& bias) { return layer_norm(x, {}, bias); }),
       .reference =
           [](const Arrays& x) {
             Array ones(Shape{3});
             ones.numbers = {1, 1, 1};
             return normalized(true, 1e-5)({x[0], ones, x[1]});
           },
       .float32_rtol = 1e-4});

  rows.points = {{"layer_norm",
                  "one entry per row",
                  {reshape(vec({3, -7}), {2, 1})},
                  fn([](const Tensor& x) { return layer_norm(x); }),
                  reshape(vec({1, 2}), {2, 1}),
                  {reshape(vec({0, 0}), {2, 1})}}};

  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  const Tensor x = reshape(vec({1, 2, 3, 4, 5, 6}), {2, 3});
  refuse("layer_norm", "undefined", ErrorType::graph, "x is an undefined",
         [] { layer_norm(Tensor()); });
  refuse("layer_norm", "int64", ErrorType::dtype, "x must be float32 or float64", [] {
    layer_norm(ids({1, 2}));
  });
  refuse("layer_norm", "weight size", ErrorType::shape,
         "weight must have the size of the last axis", [=] {
           layer_norm(x, vec({1, 2}));
         });
  refuse("layer_norm", "bias size", ErrorType::shape, "bias must have the size of the last axis",
         [=] { layer_norm(x, {}, x); });
  refuse("layer_norm", "bias dtype", ErrorType::dtype, "float32", [=] {
    layer_norm(x, {}, to(vec({1, 2, 3}), DType::float32));
  });
  refuse("layer_norm", "rank 0", ErrorType::shape, "needs a last axis",
         [] { layer_norm(reshape(vec({1}), Shape{})); });
  refuse("layer_norm", "eps 0", ErrorType::value, "eps must be positive and finite: got 0",
         [=] { layer_norm(x, {}, {}, {.eps = 0}); });
  refuse("rms_norm", "undefined", ErrorType::graph, "x is an undefined",
         [] { rms_norm(Tensor()); });
  refuse("rms_norm", "weight size", ErrorType::shape, "weight must have the size of the last axis",
         [=] { rms_norm(x, vec({1})); });
  refuse("rms_norm", "empty axis", ErrorType::shape, "needs a last axis",
         [] { rms_norm(vec({})); });
  refuse("rms_norm", "eps NaN", ErrorType::value, "eps must be positive and finite",
         [=] { rms_norm(x, {}, {.eps = std::nan("")}); });
  return rows;
}

}  // namespace grad_cases
