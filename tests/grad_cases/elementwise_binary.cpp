// Rows of elementwise ops of two inputs, of where, and of comparisons' refusals.
#include <algorithm>
#include <cmath>

#include "grad_cases/cases.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

Tensor chain_mul_of(Operand a, Operand b) { return chain_mul(a.tensor(), b.tensor()); }

struct Binary {
  const char* op;
  Tensor (*f)(Operand, Operand);
  long double (*reference)(long double, long double);
  double low_a, high_a, low_b, high_b;  // of the inputs
};

const Binary kBinary[] = {
    {"add", add, [](long double a, long double b) { return a + b; }, -2, 2, -2, 2},
    {"sub", sub, [](long double a, long double b) { return a - b; }, -2, 2, -2, 2},
    {"mul", mul, [](long double a, long double b) { return a * b; }, -2, 2, -2, 2},
    {"div", div, [](long double a, long double b) { return a / b; }, -2, 2, 0.5, 2},
    {"pow", pow, [](long double a, long double b) { return std::pow(a, b); }, 0.5, 2, -2, 3},
    {"maximum", maximum, [](long double a, long double b) { return std::max(a, b); }, -2, 2, -2, 2},
    {"minimum", minimum, [](long double a, long double b) { return std::min(a, b); }, -2, 2, -2, 2},
    {"chain_mul", chain_mul_of, [](long double a, long double b) { return a * b; }, -2, 2, -2, 2},
};

struct ShapePair {
  Shape a, b;
};
const ShapePair kShapes[] = {
    {{}, {}},
    {{1}, {1}},
    {{2, 3}, {2, 3}},
    {{2, 3}, {3}},
    {{3}, {2, 3}},
    {{2, 1}, {1, 3}},
    {{2, 2}, {}},
    {{}, {2, 2}},
    {{2, 2}, {1, 1}},
    {{2, 1, 3}, {4, 1}},
    {{2, 3, 1, 2}, {3, 2, 1}},
};

long double power(long double a, long double b) { return std::pow(a, b); }

GradCase with_number(const char* op, const char* name, double low, double high,
                     std::function<Tensor(const Tensor&)> f,
                     std::function<long double(long double)> reference) {
  return {.op = op,
          .name = name,
          .inputs = uniforms(low, high, {{2, 3}}),
          .f = fn(std::move(f)),
          .reference = each(std::move(reference))};
}

GradCase where_row(const char* name, const Shape& condition, const Shape& a, const Shape& b) {
  return {.op = "where",
          .name = name,
          .inputs =
              [=](Rng& rng) {
                const Tensor c = rand(rng, condition, {.dtype = DType::float64}) < 0.5;
                std::vector<Tensor> inputs = normals({a, b})(rng);
                inputs.insert(inputs.begin(), c);
                return inputs;
              },
          .f = fn([](const Tensor& c, const Tensor& x, const Tensor& y) { return where(c, x, y); }),
          .reference =
              [](const Arrays& x) {
                Array y(broadcast("reference", x[0].shape,
                                  broadcast("reference", x[1].shape, x[2].shape)));
                for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
                  const Array& from =
                      x[0][broadcast_position(i, y.shape, x[0].shape)] != 0 ? x[1] : x[2];
                  y[i] = from[broadcast_position(i, y.shape, from.shape)];
                }
                return y;
              }};
}

}  // namespace

Family elementwise_binary_rows() {
  Family rows;
  for (const Binary& b : kBinary) {
    const auto row = [&](const Shape& left, const Shape& right) {
      return GradCase{.op = b.op,
                      .name = to_string(left) + " and " + to_string(right),
                      .inputs = uniforms2(b.low_a, b.high_a, left, b.low_b, b.high_b, right),
                      .f = fn([f = b.f](const Tensor& x, const Tensor& y) { return f(x, y); }),
                      .reference = each_pair(b.reference)};
    };
    for (const ShapePair& shapes : kShapes) rows.cases.push_back(row(shapes.a, shapes.b));
    for (const ShapePair& shapes : {ShapePair{{190, 180}, {190, 180}}, {{190, 1}, {180}}}) {
      rows.cases.push_back(row(shapes.a, shapes.b));
      rows.cases.back().large = true;
    }
    rows.errors.push_back({b.op, "undefined left", ErrorType::graph, "a is an undefined tensor",
                           [f = b.f] { f(Tensor(), vec({1})); }});
    rows.errors.push_back({b.op, "undefined right", ErrorType::graph, "b is an undefined tensor",
                           [f = b.f] { f(vec({1}), Tensor()); }});
    rows.errors.push_back({b.op, "shapes", ErrorType::shape, "a is (2,), b is (3,)", [f = b.f] {
                             f(vec({1, 2}), vec({1, 2, 3}));
                           }});
    rows.errors.push_back({b.op, "float32 with float64", ErrorType::dtype, "float32",
                           [f = b.f] { f(to(vec({1}), DType::float32), vec({1})); }});
    rows.errors.push_back({b.op, "booleans", ErrorType::dtype, "boolean",
                           [f = b.f] { f(flags({true}), flags({true})); }});
  }

  rows.cases.push_back(with_number(
      "add", "x + number", -2, 2, [](const Tensor& x) { return x + 2.5; },
      [](long double x) { return x + 2.5L; }));
  rows.cases.push_back(with_number(
      "sub", "number - x", -2, 2, [](const Tensor& x) { return 2.5 - x; },
      [](long double x) { return 2.5L - x; }));
  rows.cases.push_back(with_number(
      "mul", "x * whole number", -2, 2, [](const Tensor& x) { return x * 3; },
      [](long double x) { return x * 3; }));
  rows.cases.push_back(with_number(
      "div", "number / x", 0.5, 2, [](const Tensor& x) { return 2 / x; },
      [](long double x) { return 2 / x; }));
  rows.cases.push_back(with_number(
      "maximum", "x and number", -2, 2, [](const Tensor& x) { return maximum(x, 0.25); },
      [](long double x) { return std::max(x, 0.25L); }));
  for (const double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 2.5}) {
    rows.cases.push_back(with_number(
        "pow", "number as exponent", 0.5, 2, [=](const Tensor& x) { return pow(x, exponent); },
        [=](long double x) { return power(x, exponent); }));
  }
  for (const double exponent : {2.0, 3.0, -2.0}) {
    rows.cases.push_back(with_number(
        "pow", "negative base", -2, -0.5, [=](const Tensor& x) { return pow(x, exponent); },
        [=](long double x) { return power(x, exponent); }));
  }
  rows.cases.push_back(with_number(
      "pow", "number as base", -2, 2, [](const Tensor& x) { return pow(1.5, x); },
      [](long double x) { return power(1.5L, x); }));

  rows.cases.push_back(where_row("equal shapes", {2, 3}, {2, 3}, {2, 3}));
  rows.cases.push_back(where_row("a row as condition", {3}, {2, 3}, {2, 3}));
  rows.cases.push_back(where_row("everything broadcast", {2, 1, 1}, {3, 1}, {4}));
  rows.cases.push_back(where_row("rank 0", {}, {}, {2}));

  const auto pair = [](Tensor (*f)(Operand, Operand)) {
    return fn([f](const Tensor& a, const Tensor& b) { return f(a, b); });
  };
  // Ties share, zero upstream wins over any slope, the branch not taken gets nothing.
  rows.points = {
      {"maximum",
       "tie",
       {vec({1, 2}), vec({1, 1})},
       pair(maximum),
       vec({3, 3}),
       {vec({1.5, 3}), vec({1.5, 0})}},
      {"minimum",
       "tie",
       {vec({1, 2}), vec({1, 1})},
       pair(minimum),
       vec({3, 3}),
       {vec({1.5, 0}), vec({1.5, 3})}},
      {"div",
       "by 0 with upstream 0",
       {vec({1, 1}), vec({0, 2})},
       pair(div),
       vec({0, 1}),
       {vec({0, 0.5}), vec({0, -0.25})}},
      {"pow",
       "base 0",
       {vec({0, 0, 0}), vec({2, 1, 0})},
       pair(pow),
       vec({1, 1, 1}),
       {vec({0, 1, 0}), vec({0, 0, -kInf})}},
      {"pow",
       "base 0 with upstream 0",
       {vec({0, 0}), vec({0.5, -1})},
       pair(pow),
       vec({0, 0}),
       {vec({0, 0}), vec({0, 0})}},
      {"chain_mul",
       "0 times Inf",
       {vec({0, 2}), vec({kInf, kInf})},
       pair(chain_mul_of),
       vec({1, 0}),
       {vec({kInf, 0}), vec({0, 0})}},
      {"where",
       "Inf in the branch not taken",
       {flags({true, false}), vec({1, kInf}), vec({kInf, 2})},
       fn([](const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }),
       vec({5, 7}),
       {vec({5, 0}), vec({0, 7})}},
  };

  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  refuse("where", "float condition", ErrorType::dtype, "condition must be boolean",
         [] { where(vec({1}), 1.0, vec({1})); });
  refuse("where", "undefined condition", ErrorType::graph, "condition is an undefined tensor",
         [] { where(Tensor(), vec({1}), vec({1})); });
  refuse("where", "shapes", ErrorType::shape, "a is (2,), b is (3,)", [] {
    where(flags({true, false}), vec({1, 2, 3}), 0);
  });
  refuse("where", "dtypes", ErrorType::dtype, "float32",
         [] { where(flags({true}), vec({1}), to(vec({1}), DType::float32)); });
  refuse("lt", "booleans", ErrorType::dtype, "booleans have no order",
         [] { lt(flags({true}), flags({false})); });
  refuse("eq", "dtypes", ErrorType::dtype, "int64", [] { eq(vec({1}), ids({1})); });
  refuse("ge", "shapes", ErrorType::shape, "a is (2,), b is (3,)", [] {
    ge(vec({1, 2}), vec({1, 2, 3}));
  });
  refuse("add", "fraction with int64", ErrorType::dtype, "int64", [] { add(ids({1}), 0.5); });
  refuse("logical_and", "float", ErrorType::dtype, "a must be boolean",
         [] { logical_and(vec({1}), flags({true})); });
  refuse("logical_or", "undefined", ErrorType::graph, "b is an undefined tensor",
         [] { logical_or(flags({true}), Tensor()); });
  refuse("logical_xor", "shapes", ErrorType::shape, "a is (2,), b is (3,)", [] {
    logical_xor(flags({true, false}), flags({true, false, true}));
  });
  return rows;
}

}  // namespace grad_cases
