// Rows of sort and topk, whose values are gathered where the indices say.
#include "softtape/ops/sort.hpp"

#include <algorithm>

#include "grad_cases/cases.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// The `count` first numbers along an axis, in order.
Reference ordered(std::size_t axis, bool descending, std::int64_t count) {
  return [=](const Arrays& x) {
    const Shape& from = x[0].shape;
    Array y(from.with(static_cast<int>(axis), count));
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      Index at = unravel(i, y.shape);
      const auto place = at[axis];
      std::vector<long double> line;
      for (at[axis] = 0; at[axis] < from[static_cast<int>(axis)]; ++at[axis]) {
        line.push_back(x[0][ravel(at, from)]);
      }
      std::sort(line.begin(), line.end());
      if (descending) std::reverse(line.begin(), line.end());
      y[i] = line[static_cast<std::size_t>(place)];
    }
    return y;
  };
}

GradCase row(const char* name, const Shape& x, std::function<Tensor(const Tensor&)> f,
             Reference reference) {
  return {.op = "gather",
          .name = name,
          .inputs = normals({x}),
          .f = fn(std::move(f)),
          .reference = std::move(reference),
          .value_rtol = 0};
}

}  // namespace

Family sort_rows() {
  Family rows;
  rows.cases = {
      row(
          "sort", {5}, [](const Tensor& x) { return softtape::sort(x).values; },
          ordered(0, false, 5)),
      row(
          "sort, descending rows", {2, 4},
          [](const Tensor& x) { return softtape::sort(x, -1, {.descending = true}).values; },
          ordered(1, true, 4)),
      row(
          "sort, first axis", {4, 2}, [](const Tensor& x) { return softtape::sort(x, 0).values; },
          ordered(0, false, 4)),
      row(
          "topk", {2, 5}, [](const Tensor& x) { return topk(x, 2).values; }, ordered(1, true, 2)),
      row(
          "topk, smallest along the middle", {2, 4, 2},
          [](const Tensor& x) { return topk(x, 3, 1, {.largest = false}).values; },
          ordered(1, false, 3)),
  };
  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  refuse("sort", "axis", ErrorType::shape, "axis must lie in", [] { softtape::sort(vec({1}), 1); });
  refuse("sort", "undefined", ErrorType::graph, "undefined", [] { softtape::sort(Tensor()); });
  refuse("argsort", "axis", ErrorType::shape, "axis must lie in", [] { argsort(vec({1}), -2); });
  refuse("argsort", "undefined", ErrorType::graph, "undefined", [] { argsort(Tensor()); });
  refuse("topk", "k too large", ErrorType::value, "k must lie in [0, 2]: got 3", [] {
    topk(vec({1, 2}), 3);
  });
  refuse("topk", "negative k", ErrorType::value, "k must lie in [0, 2]: got -1", [] {
    topk(vec({1, 2}), -1);
  });
  refuse("topk", "axis", ErrorType::shape, "axis must lie in", [] { topk(vec({1, 2}), 1, 1); });
  refuse("topk", "undefined", ErrorType::graph, "undefined", [] { topk(Tensor(), 1); });
  return rows;
}

}  // namespace grad_cases
