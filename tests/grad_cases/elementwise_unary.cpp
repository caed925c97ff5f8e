// Rows of elementwise ops of one input.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "grad_cases/cases.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

struct Unary {
  const char* op;
  Tensor (*f)(TensorArg);
  long double (*reference)(long double);
  double low, high;  // of the inputs
};

long double sigmoid_of(long double x) { return 1 / (1 + std::exp(-x)); }
long double phi_of(long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
long double gelu_tanh_of(long double x) {
  return x / 2 *
         (1 +
          std::tanh(std::sqrt(2 / std::numbers::pi_v<long double>) * (x + 0.044715L * x * x * x)));
}

Tensor gelu_erf(TensorArg x) { return gelu(x); }
Tensor gelu_tanh(TensorArg x) { return gelu(x, Gelu::tanh); }

const Unary kUnary[] = {
    {"neg", neg, [](long double x) { return -x; }, -2, 2},
    {"exp", exp, [](long double x) { return std::exp(x); }, -4, 4},
    {"expm1", expm1, [](long double x) { return std::expm1(x); }, -2, 2},
    {"log", log, [](long double x) { return std::log(x); }, 0.1, 4},
    {"log1p", log1p, [](long double x) { return std::log1p(x); }, -0.8, 3},
    {"sqrt", sqrt, [](long double x) { return std::sqrt(x); }, 0.1, 4},
    {"rsqrt", rsqrt, [](long double x) { return 1 / std::sqrt(x); }, 0.1, 4},
    {"square", square, [](long double x) { return x * x; }, -3, 3},
    {"abs", abs, [](long double x) { return std::abs(x); }, -3, 3},
    {"sign", sign, [](long double x) { return x > 0 ? 1.0L : -1.0L; }, -3, 3},
    {"sin", sin, [](long double x) { return std::sin(x); }, -4, 4},
    {"cos", cos, [](long double x) { return std::cos(x); }, -4, 4},
    {"tanh", tanh, [](long double x) { return std::tanh(x); }, -4, 4},
    {"erf", erf, [](long double x) { return std::erf(x); }, -3, 3},
    {"sigmoid", sigmoid, sigmoid_of, -6, 6},
    {"softplus", softplus, [](long double x) { return std::log1p(std::exp(x)); }, -6, 6},
    {"relu", relu, [](long double x) { return x > 0 ? x : 0; }, -3, 3},
    {"silu", silu, [](long double x) { return x * sigmoid_of(x); }, -6, 6},
    {"gelu", gelu_erf, [](long double x) { return x * phi_of(x); }, -4, 4},
    {"gelu_tanh", gelu_tanh, gelu_tanh_of, -4, 4},
};

// More numbers than one chunk of a parallel loop.
const Shape kLarge{190, 180};

PointCase point(const char* op, const char* name, Tensor (*f)(TensorArg), std::vector<double> x,
                std::vector<double> gy, std::vector<double> gx) {
  return {op, name, {vec(x)}, fn(f), vec(gy), {vec(gx)}};
}

}  // namespace

Family elementwise_unary_rows() {
  Family rows;
  for (const Unary& u : kUnary) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{2, 3}, Shape{2, 1, 3}, kLarge}) {
      rows.cases.push_back({.op = u.op,
                            .name = to_string(shape),
                            .inputs = uniforms(u.low, u.high, {shape}),
                            .f = fn(u.f),
                            .reference = each(u.reference),
                            .large = shape == kLarge});
    }
    rows.errors.push_back({u.op, "undefined", ErrorType::graph, "x is an undefined tensor",
                           [f = u.f] { f(Tensor()); }});
    rows.errors.push_back({u.op, "boolean", ErrorType::dtype, "must be float32 or float64",
                           [f = u.f] { f(flags({true})); }});
  }

  struct Bounds {
    const char* name;
    std::optional<double> low, high;
  };
  for (const Bounds& b : {Bounds{"both bounds", -0.5, 1.0}, Bounds{"below only", -0.5, {}},
                          Bounds{"above only", {}, 1.0}, Bounds{"one value", 0.25, 0.25}}) {
    rows.cases.push_back({.op = "clamp",
                          .name = b.name,
                          .inputs = uniforms(-2, 2, {{3, 4}}),
                          .f = fn([b](const Tensor& x) { return clamp(x, b.low, b.high); }),
                          .reference = each([b](long double x) {
                            return std::min<long double>(
                                std::max<long double>(x, b.low.value_or(-kInf)),
                                b.high.value_or(kInf));
                          })});
  }
  const auto identity = each([](long double x) { return x; });
  rows.cases.push_back({.op = "to",
                        .name = "float64 to float32",
                        .inputs = normals({{2, 3}}),
                        .f = fn([](const Tensor& x) { return to(x, DType::float32); }),
                        .reference = identity,
                        .value_rtol = 1e-6,
                        .float32 = false,
                        .coarse = true});
  rows.cases.push_back(
      {.op = "to",
       .name = "float32 to float64",
       .inputs =
           [](Rng& rng) {
             return std::vector<Tensor>{randn(rng, {2, 3}, {.dtype = DType::float32})};
           },
       .f = fn([](const Tensor& x) { return to(x, DType::float64); }),
       .reference = identity,
       .float32 = false,
       .coarse = true});

  // Exactly zero where the upstream gradient is, and as decided at kinks.
  rows.points = {
      point("relu", "kink", relu, {0, -0.0}, {1, 1}, {0, 0}),
      point("abs", "kink", abs, {0, -0.0}, {1, 1}, {0, 0}),
      point("sign", "everywhere", sign, {0, 2}, {1, 1}, {0, 0}),
      point("sqrt", "slope Inf", sqrt, {0, 0}, {1, 0}, {kInf, 0}),
      point("rsqrt", "slope -Inf", rsqrt, {0, 0}, {1, 0}, {-kInf, 0}),
      point("log", "slope Inf", log, {0, 0}, {1, 0}, {kInf, 0}),
      point("log1p", "slope Inf", log1p, {-1, -1}, {1, 0}, {kInf, 0}),
      point("exp", "at infinity", exp, {kInf, kInf, -kInf}, {1, 0, 1}, {kInf, 0, 0}),
      point("expm1", "at infinity", expm1, {kInf, kInf, -kInf}, {1, 0, 1}, {kInf, 0, 0}),
      point("tanh", "at infinity", tanh, {kInf, -kInf}, {1, 1}, {0, 0}),
      point("erf", "at infinity", erf, {kInf, -kInf}, {1, 1}, {0, 0}),
      point("sigmoid", "at infinity", sigmoid, {kInf, -kInf}, {1, 1}, {0, 0}),
      point("softplus", "at infinity", softplus, {kInf, -kInf}, {1, 1}, {1, 0}),
      point("silu", "at infinity", silu, {kInf, -kInf}, {1, 1}, {1, 0}),
      point("gelu", "at infinity", gelu_erf, {kInf, -kInf}, {1, 1}, {1, 0}),
      point("gelu_tanh", "far out", gelu_tanh, {1e30, -1e30}, {1, 1}, {1, 0}),
      {"clamp",
       "on the bounds",
       {vec({-1, 0, 1, -2, 2})},
       fn([](const Tensor& x) { return clamp(x, -1.0, 1.0); }),
       vec({3, 3, 3, 3, 3}),
       {vec({3, 3, 3, 0, 0})}},
  };

  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  refuse("clamp", "undefined", ErrorType::graph, "x is an undefined tensor",
         [] { clamp(Tensor(), 0.0, 1.0); });
  refuse("clamp", "int64", ErrorType::dtype, "must be float32 or float64",
         [] { clamp(ids({1}), 0.0, 1.0); });
  refuse("clamp", "bounds in the wrong order", ErrorType::value,
         "low must not exceed high: got 1 and 0", [] { clamp(vec({1}), 1.0, 0.0); });
  refuse("clamp", "NaN", ErrorType::value, "low must not exceed high",
         [] { clamp(vec({1}), std::nan(""), 0.0); });
  refuse("to", "undefined", ErrorType::graph, "x is an undefined tensor",
         [] { to(Tensor(), DType::float32); });
  refuse("to", "NaN to int64", ErrorType::value, "int64 cannot hold nan", [] {
    to(vec({0, std::nan("")}), DType::int64);
  });
  refuse("to", "too large for int64", ErrorType::value, "int64 cannot hold 1e+19",
         [] { to(vec({1e19}), DType::int64); });
  refuse("isfinite", "int64", ErrorType::dtype, "must be float32 or float64",
         [] { isfinite(ids({1})); });
  refuse("isnan", "undefined", ErrorType::graph, "x is an undefined tensor",
         [] { isnan(Tensor()); });
  refuse("logical_not", "float", ErrorType::dtype, "must be boolean",
         [] { logical_not(vec({1})); });
  return rows;
}

}  // namespace grad_cases
