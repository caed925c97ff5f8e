// Rows of reductions.
#include "softtape/ops/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

using Group = std::vector<long double>;

long double sum_of(const Group& g) { return std::accumulate(g.begin(), g.end(), 0.0L); }
long double mean_of(const Group& g) { return sum_of(g) / static_cast<long double>(g.size()); }
long double max_of(const Group& g) { return *std::max_element(g.begin(), g.end()); }
long double min_of(const Group& g) { return *std::min_element(g.begin(), g.end()); }
long double var_of(const Group& g, long double correction) {
  const long double mean = mean_of(g);
  long double squares = 0;
  for (const long double x : g) squares += (x - mean) * (x - mean);
  return squares / (static_cast<long double>(g.size()) - correction);
}
long double logsumexp_of(const Group& g) {
  long double total = 0;
  for (const long double x : g) total += std::exp(x);
  return std::log(total);
}
long double norm_of(const Group& g, double p) {
  long double most = 0;
  long double total = 0;
  for (const long double x : g) {
    most = std::max(most, std::abs(x));
    total += std::pow(std::abs(x), static_cast<long double>(p));
  }
  return p == kInf ? most : std::pow(total, 1 / static_cast<long double>(p));
}

struct Reducer {
  const char* op;
  const char* name;
  std::function<Tensor(const Tensor&, Axes, bool keepdim)> f;
  std::function<long double(const Group&)> reference;
};

Reducer plain(const char* op, Tensor (*f)(TensorArg, Axes, ReduceOptions),
              long double (*reference)(const Group&)) {
  return {
      op, "",
      [f](const Tensor& x, Axes axes, bool keepdim) { return f(x, axes, {.keepdim = keepdim}); },
      reference};
}

std::vector<Reducer> reductions() {
  std::vector<Reducer> all = {plain("sum", sum, sum_of), plain("mean", mean, mean_of),
                              plain("max", max, max_of), plain("min", min, min_of),
                              plain("logsumexp", logsumexp, logsumexp_of)};
  for (const double correction : {1.0, 0.0}) {
    const char* name = correction == 1 ? "sample " : "population ";
    all.push_back({"var", name,
                   [=](const Tensor& x, Axes axes, bool keepdim) {
                     return var(x, axes, {.correction = correction, .keepdim = keepdim});
                   },
                   [=](const Group& g) { return var_of(g, correction); }});
    all.push_back({"std", name,
                   [=](const Tensor& x, Axes axes, bool keepdim) {
                     return softtape::std(x, axes, {.correction = correction, .keepdim = keepdim});
                   },
                   [=](const Group& g) { return std::sqrt(var_of(g, correction)); }});
  }
  for (const double p : {1.0, 2.0, 3.0, 2.5, kInf}) {
    // The sums of p = 1 and the largest of p = Inf are those ops.
    all.push_back({p == 1      ? "sum"
                   : p == kInf ? "max"
                               : "norm",
                   "norm ",
                   [=](const Tensor& x, Axes axes, bool keepdim) {
                     return norm(x, axes, {.p = p, .keepdim = keepdim});
                   },
                   [=](const Group& g) { return norm_of(g, p); }});
  }
  return all;
}

struct Along {
  const char* name;
  Shape shape;
  std::vector<int> axes;
  bool keepdim;
  bool large = false;
};
const Along kAlong[] = {
    {"of a row", {5}, {}, false},
    {"all of a matrix, kept", {2, 3}, {}, true},
    {"first axis", {3, 2}, {0}, false},
    {"last axis, kept", {2, 3}, {-1}, true},
    {"outer axes", {2, 3, 2}, {0, -1}, false},
    {"inner axes", {2, 2, 3}, {1, 2}, false},
    {"middle axis, kept", {2, 3, 2}, {1}, true},
    {"all of a large one", {190, 180}, {}, false, true},
    {"large last axis", {190, 180}, {1}, false, true},
    {"large first axis", {190, 180}, {0}, false, true},
};

// The sum of all numbers up to each place along an axis.
Reference running_sums(std::size_t axis) {
  return [axis](const Arrays& x) {
    Array y(x[0].shape);
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      Index at = unravel(i, y.shape);
      const std::int64_t last = at[axis];
      for (at[axis] = 0; at[axis] <= last; ++at[axis]) y[i] += x[0][ravel(at, y.shape)];
    }
    return y;
  };
}

Reference sums_to(const Shape& shape) {
  return [shape](const Arrays& x) {
    Array y(shape);
    for (std::int64_t i = 0; i < x[0].shape.numel(); ++i) {
      y[broadcast_position(i, x[0].shape, shape)] += x[0][i];
    }
    return y;
  };
}

}  // namespace

Family reduce_rows() {
  Family rows;
  for (const Reducer& r : reductions()) {
    for (const Along& along : kAlong) {
      rows.cases.push_back({.op = r.op,
                            .name = r.name + std::string(along.name),
                            .inputs = normals({along.shape}),
                            .f = fn([f = r.f, along](const Tensor& x) {
                              return f(x, Axes(std::span<const int>(along.axes)), along.keepdim);
                            }),
                            .reference = over(along.axes, along.keepdim, r.reference),
                            .value_rtol = 1e-12,
                            .float32_rtol = 1e-4,
                            .large = along.large});
    }
    if (r.name == std::string("norm ") && r.op != std::string("norm")) continue;
    const auto refuse = [&](const char* name, ErrorType type, const char* message,
                            std::function<void()> call) {
      rows.errors.push_back({r.op, name, type, message, std::move(call)});
    };
    refuse("undefined", ErrorType::graph, "x is an undefined tensor",
           [f = r.f] { f(Tensor(), {}, false); });
    refuse("axis out of range", ErrorType::shape, "axis must lie in [-1, 1): got 1", [f = r.f] {
      f(vec({1, 2}), 1, false);
    });
    refuse("axis twice", ErrorType::shape, "an axis may be named only once", [f = r.f] {
      f(vec({1, 2}), {0, -1}, false);
    });
  }
  for (const int axis : {0, 1, 2}) {
    rows.cases.push_back({.op = "cumsum",
                          .name = "axis " + std::to_string(axis),
                          .inputs = normals({{2, 3, 2}}),
                          .f = fn([=](const Tensor& x) { return cumsum(x, axis); }),
                          .reference = running_sums(static_cast<std::size_t>(axis))});
  }
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{1, 3}, Shape{2, 1}, Shape{1, 1, 1}}) {
    rows.cases.push_back({.op = "sum_to",
                          .name = to_string(shape),
                          .inputs = normals({{2, 2, 3}}),
                          .f = fn([=](const Tensor& x) { return sum_to(x, shape); }),
                          .reference = sums_to(shape)});
  }

  rows.points = {
      {"max",
       "ties share",
       {vec({2, 1, 2, 2})},
       fn([](const Tensor& x) { return max(x); }),
       softtape::sum(vec({3})),
       {vec({1, 0, 1, 1})}},
      {"min",
       "ties share",
       {vec({1, 1, 2, 5})},
       fn([](const Tensor& x) { return min(x); }),
       softtape::sum(vec({3})),
       {vec({1.5, 1.5, 0, 0})}},
      {"logsumexp",
       "only -Inf",
       {vec({-kInf, -kInf})},
       fn([](const Tensor& x) { return logsumexp(x); }),
       softtape::sum(vec({3})),
       {vec({0, 0})}},
      {"logsumexp",
       "one -Inf",
       {vec({-kInf, 7})},
       fn([](const Tensor& x) { return logsumexp(x); }),
       softtape::sum(vec({3})),
       {vec({0, 3})}},
      {"std",
       "equal numbers",
       {vec({2, 2, 2})},
       fn([](const Tensor& x) { return softtape::std(x); }),
       softtape::sum(vec({3})),
       {vec({0, 0, 0})}},
      {"norm",
       "of zeros",
       {vec({0, 0})},
       fn([](const Tensor& x) { return norm(x); }),
       softtape::sum(vec({3})),
       {vec({0, 0})}},
      {"norm",
       "p = 1 with a zero",
       {vec({0, -2})},
       fn([](const Tensor& x) { return norm(x, {}, {.p = 1}); }),
       softtape::sum(vec({3})),
       {vec({0, -3})}},
  };

  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  const auto nothing = [] { return sum_to(vec({}), Shape{0}); };
  refuse("mean", "of nothing", ErrorType::value, "", [=] { mean(nothing()); });
  refuse("max", "of nothing", ErrorType::value, "there must be something to reduce",
         [=] { max(nothing()); });
  refuse("min", "of nothing", ErrorType::value, "there must be something to reduce",
         [=] { min(nothing()); });
  refuse("argmax", "of nothing", ErrorType::value, "there must be something to reduce",
         [=] { argmax(nothing()); });
  refuse("argmin", "axis", ErrorType::shape, "axis must lie in", [] { argmin(vec({1}), 1); });
  refuse("var", "of one number", ErrorType::value, "needs more elements than the correction",
         [] { var(vec({1})); });
  refuse("std", "of one number", ErrorType::value, "needs more elements than the correction",
         [] { softtape::std(vec({1})); });
  refuse("norm", "p", ErrorType::value, "p must be positive: got 0",
         [] { norm(vec({1}), {}, {.p = 0}); });
  refuse("norm", "p is NaN", ErrorType::value, "p must be positive",
         [] { norm(vec({1}), {}, {.p = std::nan("")}); });
  refuse("mean", "int64", ErrorType::dtype, "must be float32 or float64", [] { mean(ids({1})); });
  refuse("logsumexp", "boolean", ErrorType::dtype, "must be float32 or float64",
         [] { logsumexp(flags({true})); });
  refuse("max", "boolean", ErrorType::dtype, "booleans have no order", [] { max(flags({true})); });
  refuse("any", "float", ErrorType::dtype, "must be boolean", [] { any(vec({1})); });
  refuse("all", "undefined", ErrorType::graph, "x is an undefined tensor", [] { all(Tensor()); });
  refuse("sum_to", "shape", ErrorType::shape, "shape must broadcast to that of x", [] {
    sum_to(vec({1, 2}), {3});
  });
  refuse("sum_to", "undefined", ErrorType::graph, "undefined", [] { sum_to(Tensor(), {}); });
  refuse("cumsum", "axis", ErrorType::shape, "axis must lie in", [] { cumsum(vec({1}), 1); });
  refuse("cumsum", "boolean", ErrorType::dtype, "boolean", [] { cumsum(flags({true}), 0); });
  refuse("cumsum", "undefined", ErrorType::graph, "undefined", [] { cumsum(Tensor(), 0); });
  return rows;
}

}  // namespace grad_cases
