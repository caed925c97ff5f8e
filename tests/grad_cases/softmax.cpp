// Rows of softmax, its vjp, log_softmax and dropout.
#include "softtape/ops/softmax.hpp"

#include <cmath>
#include <numeric>

#include "grad_cases/cases.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// Whether entry i of scores (..., n, m) is visible.
using Visible = std::function<bool(const Index&)>;
bool every_entry(const Index&) { return true; }

// exp(x_i) / sum exp(x_j), or its logarithm, over the visible entries along an axis.
Reference softmax_of(std::size_t axis, bool logarithm, Visible visible) {
  return [=](const Arrays& x) {
    const Shape& shape = x[0].shape;
    Array y(shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const Index at = unravel(i, shape);
      long double total = 0;
      Index other = at;
      for (other[axis] = 0; other[axis] < shape[static_cast<int>(axis)]; ++other[axis]) {
        if (visible(other)) total += std::exp(x[0][ravel(other, shape)]);
      }
      const bool seen = visible(at);
      y[i] = logarithm ? (seen ? x[0][i] - std::log(total) : -static_cast<long double>(kInf))
                       : (seen ? std::exp(x[0][i]) / total : 0);
    }
    return y;
  };
}

struct Row {
  const char* name;
  Shape shape;
  int axis = -1;
  Mask mask = {};
  Visible visible = every_entry;
  bool large = false;
};

std::vector<Row> variants() {
  const Tensor row = flags({true, false, false});
  return {
      {"a row", {4}},
      {"one number", {2, 1}},
      {"rows", {3, 5}},
      {"long rows", {2, 21}},
      {"first axis", {3, 4}, 0},
      {"middle axis", {2, 3, 2}, 1},
      {"large", {190, 180}, -1, {}, every_entry, true},
      {"causal", {2, 3, 3}, -1, Mask::causal(), [](const Index& i) { return i[2] <= i[1]; }},
      {"causal, more keys",
       {2, 4},
       -1,
       Mask::causal(Align::lower_right),
       [](const Index& i) { return i[1] <= i[0] + 2; }},
      {"a row masked out",
       {2, 3},
       -1,
       Mask::masked_out(row),
       [](const Index& i) { return i[1] != 0; }},
      {"keep", {2, 3}, -1, Mask::keep(row), [](const Index& i) { return i[1] == 0; }},
      {"window",
       {4, 4},
       -1,
       Mask::sliding_window(1, 0),
       [](const Index& i) { return i[1] <= i[0] && i[1] >= i[0] - 1; }},
      {"padding and causal",
       {2, 3, 3},
       -1,
       Mask::key_padding({2, 3}) & Mask::causal(),
       [](const Index& i) { return i[2] <= i[1] && i[2] < (i[0] == 0 ? 2 : 3); }},
      {"a row of nothing",
       {2, 3},
       -1,
       Mask::keep(reshape(flags({false, false, false, true, true, false}), {2, 3})),
       [](const Index& i) { return i[0] == 1 && i[1] < 2; }},
  };
}

// Rows of weights that sum to 1, and an upstream gradient.
Inputs weights_and_gradient(const Shape& shape) {
  return [shape](Rng& rng) {
    std::vector<double> p(static_cast<std::size_t>(shape.numel()));
    rng.uniform(p, 0.1, 1);
    const auto m = static_cast<std::size_t>(shape.dim(-1));
    for (std::size_t row = 0; row < p.size(); row += m) {
      const double total = std::accumulate(p.begin() + static_cast<std::ptrdiff_t>(row),
                                           p.begin() + static_cast<std::ptrdiff_t>(row + m), 0.0);
      for (std::size_t j = row; j < row + m; ++j) p[j] /= total;
    }
    return std::vector<Tensor>{tensor(p, shape, {.dtype = DType::float64}),
                               normals({shape})(rng)[0]};
  };
}

Array vjp_of(const Arrays& x) {
  Array y(x[0].shape);
  const std::int64_t m = y.shape.dim(-1);
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
    long double mean = 0;
    for (std::int64_t j = i / m * m; j < i / m * m + m; ++j) mean += x[0][j] * x[1][j];
    y[i] = x[0][i] * (x[1][i] - mean);
  }
  return y;
}

}  // namespace

Family softmax_rows() {
  Family rows;
  for (const Row& v : variants()) {
    const auto axis = static_cast<std::size_t>(v.axis < 0 ? v.shape.rank() - 1 : v.axis);
    const SoftmaxOptions options{.axis = v.axis, .mask = v.mask};
    rows.cases.push_back({.op = "softmax",
                          .name = v.name,
                          .inputs = normals({v.shape}),
                          .f = fn([=](const Tensor& x) { return softmax(x, options); }),
                          .reference = softmax_of(axis, false, v.visible),
                          .large = v.large});
    rows.cases.push_back({.op = "log_softmax",
                          .name = v.name,
                          .inputs = normals({v.shape}),
                          .f = fn([=](const Tensor& x) { return log_softmax(x, options); }),
                          .reference = softmax_of(axis, true, v.visible),
                          .large = v.large});
  }
  for (const Shape& shape : {Shape{4}, Shape{2, 3}, Shape{2, 1, 5}, Shape{1, 1}}) {
    rows.cases.push_back(
        {.op = "softmax_vjp",
         .name = to_string(shape),
         .inputs = weights_and_gradient(shape),
         .f = fn([](const Tensor& p, const Tensor& g) { return softmax_vjp(p, g); }),
         .reference = vjp_of});
  }

  // Dropout as a function of its input: the same mask in every call.
  rows.cases.push_back({.op = "dropout",
                        .name = "p = 0.4",
                        .inputs = normals({{3, 4}}),
                        .f = fn([](const Tensor& x) {
                          Rng rng(7);
                          return dropout(x, 0.4, rng);
                        }),
                        .reference = [](const Arrays& x) {
                          Rng rng(7);
                          Array y(x[0].shape);
                          for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
                            y[i] = rng.random() >= 0.4 ? x[0][i] / 0.6L : 0;
                          }
                          return y;
                        }});
  rows.cases.push_back({.op = "dropout",
                        .name = "p = 1",
                        .inputs = normals({{2, 2}}),
                        .f = fn([](const Tensor& x) {
                          Rng rng(7);
                          return dropout(x, 1, rng);
                        }),
                        .reference = each([](long double) { return 0.0L; })});

  const auto all_of = [](Tensor (*f)(TensorArg, const SoftmaxOptions&)) {
    return fn([f](const Tensor& x) { return f(x, {}); });
  };
  rows.points = {
      {"softmax", "only -Inf", {vec({-kInf, -kInf})}, all_of(softmax), vec({1, 2}), {vec({0, 0})}},
      {"softmax",
       "-Inf beside one number",
       {vec({-kInf, 3})},
       all_of(softmax),
       vec({kInf, 2}),
       {vec({0, 0})}},
      {"log_softmax",
       "masked entry",
       {vec({1, 2})},
       fn([](const Tensor& x) {
         return log_softmax(x, {.mask = Mask::masked_out(flags({true, false}))});
       }),
       vec({5, 3}),
       {vec({0, 0})}},
  };

  for (const char* op : {"softmax", "log_softmax"}) {
    const auto call = op == std::string("softmax")
                          ? [](const Tensor& x, const SoftmaxOptions& o) { softmax(x, o); }
                          : [](const Tensor& x, const SoftmaxOptions& o) { log_softmax(x, o); };
    const Tensor x = reshape(vec({1, 2, 3, 4, 5, 6}), {2, 3});
    const auto refuse = [&](const char* name, ErrorType type, const char* message, const Tensor& t,
                            const SoftmaxOptions& options) {
      rows.errors.push_back({op, name, type, message, [=] { call(t, options); }});
    };
    refuse("undefined", ErrorType::graph, "x is an undefined tensor", Tensor(), {});
    refuse("int64", ErrorType::dtype, "must be float32 or float64", ids({1}), {});
    refuse("rank 0", ErrorType::shape, "needs rank 1 or more", reshape(vec({1}), Shape{}), {});
    refuse("axis", ErrorType::shape, "axis must lie in", x, {.axis = 2});
    refuse("mask along another axis", ErrorType::shape, "a mask goes with the last axis", x,
           {.axis = 0, .mask = Mask::causal()});
    refuse("causal with more keys", ErrorType::shape, "Mask::causal(Align::lower_right)", x,
           {.mask = Mask::causal()});
    refuse("mask of another shape", ErrorType::shape, "must broadcast", x,
           {.mask = Mask::keep(reshape(flags({true, false}), {1, 2}))});
    refuse("number of lengths", ErrorType::shape, "one length per sequence", x,
           {.mask = Mask::key_padding({1, 1, 1})});
  }
  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  refuse("softmax_vjp", "shapes", ErrorType::shape, "shapes must be equal", [] {
    softmax_vjp(vec({1}), vec({1, 2}));
  });
  refuse("softmax_vjp", "dtypes", ErrorType::dtype, "float32",
         [] { softmax_vjp(vec({1}), to(vec({1}), DType::float32)); });
  refuse("softmax_vjp", "undefined", ErrorType::graph, "p is an undefined tensor",
         [] { softmax_vjp(Tensor(), vec({1})); });
  refuse("dropout", "p above 1", ErrorType::value, "p must lie in [0, 1]: got 1.5", [] {
    Rng rng(1);
    dropout(vec({1}), 1.5, rng);
  });
  refuse("dropout", "p is NaN", ErrorType::value, "p must lie in [0, 1]", [] {
    Rng rng(1);
    dropout(vec({1}), std::nan(""), rng);
  });
  refuse("dropout", "int64", ErrorType::dtype, "must be float32 or float64", [] {
    Rng rng(1);
    dropout(ids({1}), 0.5, rng);
  });
  refuse("dropout", "undefined", ErrorType::graph, "x is an undefined tensor", [] {
    Rng rng(1);
    dropout(Tensor(), 0.5, rng);
  });
  refuse("mask", "negative window", ErrorType::value, "a window must not be negative",
         [] { Mask::sliding_window(-1, 0); });
  refuse("mask", "negative length", ErrorType::value, "lengths must not be negative",
         [] { Mask::key_padding({-1}); });
  return rows;
}

}  // namespace grad_cases
