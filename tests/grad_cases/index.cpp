// Rows of ops that read and write where an index says, and of masked_fill.
#include "softtape/ops/index.hpp"

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// y[i] = x[i with index[i] in place of the axis].
Reference gathered(std::size_t axis) {
  return [axis](const Arrays& x) {
    Array y(x[1].shape);
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      Index at = unravel(i, y.shape);
      at[axis] = static_cast<std::int64_t>(x[1][i]);
      y[i] = x[0][ravel(at, x[0].shape)];
    }
    return y;
  };
}

// Inputs x, index, src.
Reference scattered(std::size_t axis) {
  return [axis](const Arrays& x) {
    Array y = x[0];
    for (std::int64_t i = 0; i < x[1].shape.numel(); ++i) {
      Index at = unravel(i, x[1].shape);
      at[axis] = static_cast<std::int64_t>(x[1][i]);
      y[ravel(at, y.shape)] += x[2][i];
    }
    return y;
  };
}

// Position in x of element i of its selection along `axis` by an index of any rank.
std::int64_t selected(std::int64_t i, const Shape& y, const Shape& x, const Array& index,
                      std::size_t axis) {
  const Index at = unravel(i, y);
  const auto rank = static_cast<std::size_t>(index.shape.rank());
  const auto first = at.begin() + static_cast<std::ptrdiff_t>(axis);
  const Index in_index(first, first + static_cast<std::ptrdiff_t>(rank));
  Index from(at.begin(), first);
  from.push_back(static_cast<std::int64_t>(index[ravel(in_index, index.shape)]));
  from.insert(from.end(), first + static_cast<std::ptrdiff_t>(rank), at.end());
  return ravel(from, x);
}

Shape selection(const Shape& x, const Shape& index, int axis) {
  Shape y = x.without(axis);
  for (int i = 0; i < index.rank(); ++i) y = y.inserted(axis + i, index[i]);
  return y;
}

Reference selecting(int axis) {
  return [axis](const Arrays& x) {
    Array y(selection(x[0].shape, x[1].shape, axis));
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      y[i] = x[0][selected(i, y.shape, x[0].shape, x[1], static_cast<std::size_t>(axis))];
    }
    return y;
  };
}

Reference selecting_back(const Shape& shape, int axis) {
  return [shape, axis](const Arrays& x) {
    Array gx(shape);
    for (std::int64_t i = 0; i < x[0].shape.numel(); ++i) {
      gx[selected(i, x[0].shape, shape, x[1], static_cast<std::size_t>(axis))] += x[0][i];
    }
    return gx;
  };
}

GradCase row(const char* op, const char* name, Inputs inputs, softtape::TensorFunction f,
             Reference reference) {
  return {.op = op,
          .name = name,
          .inputs = std::move(inputs),
          .f = std::move(f),
          .reference = std::move(reference)};
}

}  // namespace

Family index_rows() {
  Family rows;
  const Tensor ragged = reshape(ids({2, 0, 0, 1, 1, 2}), {3, 2});
  rows.cases.push_back(row("gather", "rows of a matrix", with(normals({{3, 3}}), ragged),
                           fn([](const Tensor& x, const Tensor& i) { return gather(x, 0, i); }),
                           gathered(0)));
  rows.cases.push_back(row("gather", "last axis, repeated", with(normals({{3, 3}}), ragged),
                           fn([](const Tensor& x, const Tensor& i) { return gather(x, -1, i); }),
                           gathered(1)));
  rows.cases.push_back(row("gather", "from a vector", with(normals({{3}}), ids({1, 1, 2, 1})),
                           fn([](const Tensor& x, const Tensor& i) { return gather(x, 0, i); }),
                           gathered(0)));
  const auto scatter = [&](const char* name, const Shape& x, const Tensor& index, int axis) {
    rows.cases.push_back(row(
        "scatter_add", name,
        [=](Rng& rng) {
          std::vector<Tensor> inputs = normals({x, index.shape()})(rng);
          inputs.insert(inputs.begin() + 1, index);
          return inputs;
        },
        fn([=](const Tensor& into, const Tensor& i, const Tensor& src) {
          return scatter_add(into, axis, i, src);
        }),
        scattered(static_cast<std::size_t>(axis))));
  };
  scatter("rows, repeated", {3, 2}, ragged, 0);
  scatter("last axis, part of the rows", {4, 3}, ragged, 1);
  scatter("into a vector", {3}, ids({1, 1, 1, 0}), 0);

  const Tensor square = reshape(ids({1, 0, 1, 2}), {2, 2});
  const auto select = fn([](const Tensor& x, const Tensor& i) { return index_select(x, 0, i); });
  rows.cases.push_back(row("index_select", "repeated rows", with(normals({{3, 2}}), ids({2, 0, 2})),
                           select, selecting(0)));
  rows.cases.push_back(row("index_select", "an index with axes", with(normals({{3, 2}}), square),
                           select, selecting(0)));
  rows.cases.push_back(row(
      "index_select", "middle axis", with(normals({{2, 3, 2}}), ids({0, 2, 2, 1})),
      fn([](const Tensor& x, const Tensor& i) { return index_select(x, 1, i); }), selecting(1)));
  rows.cases.push_back(row("index_select_vjp", "repeated rows",
                           with(normals({{3, 2}}), ids({2, 0, 2})),
                           fn([](const Tensor& g, const Tensor& i) {
                             return index_select_vjp(g, {4, 2}, 0, i);
                           }),
                           selecting_back({4, 2}, 0)));
  rows.cases.push_back(row("index_select_vjp", "middle axis",
                           with(normals({{2, 4, 2}}), ids({0, 2, 2, 1})),
                           fn([](const Tensor& g, const Tensor& i) {
                             return index_select_vjp(g, {2, 3, 2}, 1, i);
                           }),
                           selecting_back({2, 3, 2}, 1)));
  const auto lookup = fn([](const Tensor& table, const Tensor& i) { return take_rows(table, i); });
  rows.cases.push_back(
      row("take_rows", "embedding", with(normals({{4, 3}}), square), lookup, selecting(0)));
  rows.cases.push_back(row("take_rows", "one id",
                           with(normals({{4, 3}}), reshape(ids({2}), Shape{})), lookup,
                           selecting(0)));

  const auto fill = [&](const char* name, const Shape& x, const Tensor& mask) {
    rows.cases.push_back(
        row("masked_fill", name, with(normals({x}), mask),
            fn([](const Tensor& t, const Tensor& m) { return masked_fill(t, m, -1.5); }),
            [](const Arrays& a) {
              Array y = a[0];
              for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
                if (a[1][broadcast_position(i, y.shape, a[1].shape)] != 0) y[i] = -1.5L;
              }
              return y;
            }));
  };
  fill("equal shapes", {3}, flags({true, false, true}));
  fill("a row as mask", {2, 3}, flags({true, false, false}));
  fill("a column as mask", {2, 3}, reshape(flags({true, false}), {2, 1}));
  rows.points = {{"masked_fill",
                  "-Inf and its neighbours",
                  {vec({kInf, 2}), flags({true, false})},
                  fn([](const Tensor& x, const Tensor& m) { return masked_fill(x, m, -kInf); }),
                  vec({kInf, 3}),
                  {vec({0, 3})}}};

  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  const Tensor x = reshape(vec({1, 2, 3, 4}), {2, 2});
  const Tensor x3 = vec({1, 2, 3});
  refuse("gather", "index too large", ErrorType::value, "must lie in [0, 3): got 3 at (1)", [=] {
    gather(x3, 0, ids({0, 3}));
  });
  refuse("gather", "negative index", ErrorType::value, "must lie in [0, 3): got -1",
         [=] { gather(x3, 0, ids({-1})); });
  refuse("gather", "float index", ErrorType::dtype, "must be int64", [=] { gather(x3, 0, x3); });
  refuse("gather", "rank", ErrorType::shape, "index must have the rank of x",
         [=] { gather(x, 0, ids({0})); });
  refuse("gather", "axis", ErrorType::shape, "axis must lie in", [=] { gather(x3, 1, ids({0})); });
  refuse("gather", "undefined", ErrorType::graph, "undefined",
         [] { gather(Tensor(), 0, ids({0})); });
  refuse("scatter_add", "index", ErrorType::value, "must lie in [0, 3): got 7",
         [=] { scatter_add(x3, 0, ids({7}), vec({1})); });
  refuse("scatter_add", "src", ErrorType::shape, "src must have the shape of index", [=] {
    scatter_add(x3, 0, ids({1}), vec({1, 2}));
  });
  refuse("scatter_add", "dtypes", ErrorType::dtype, "one dtype",
         [=] { scatter_add(x3, 0, ids({1}), ids({1})); });
  refuse("scatter_add", "undefined", ErrorType::graph, "undefined",
         [=] { scatter_add(x3, 0, ids({1}), Tensor()); });
  refuse("index_select", "index", ErrorType::value, "must lie in [0, 2): got 2",
         [=] { index_select(x, 1, ids({2})); });
  refuse("index_select", "axis", ErrorType::shape, "axis must lie in",
         [=] { index_select(x, 2, ids({0})); });
  refuse("index_select", "undefined", ErrorType::graph, "undefined",
         [=] { index_select(x, 0, Tensor()); });
  refuse("index_select_vjp", "shape", ErrorType::shape, "gy must have the shape of the selection",
         [=] {
           index_select_vjp(x, {2, 2}, 0, ids({0}));
         });
  refuse("index_select_vjp", "undefined", ErrorType::graph, "undefined", [] {
    index_select_vjp(Tensor(), {2, 2}, 0, ids({0}));
  });
  refuse("take_rows", "id", ErrorType::value, "must lie in [0, 2): got 5", [=] {
    take_rows(x, ids({0, 5}));
  });
  refuse("take_rows", "boolean ids", ErrorType::dtype, "must be int64",
         [=] { take_rows(x, flags({true})); });
  refuse("take_rows", "undefined", ErrorType::graph, "undefined",
         [] { take_rows(Tensor(), ids({0})); });
  refuse("one_hot", "id", ErrorType::value, "must lie in [0, 2): got 2",
         [] { one_hot(ids({2}), 2); });
  refuse("one_hot", "classes", ErrorType::shape, "classes must not be negative",
         [] { one_hot(ids({}), -1); });
  refuse("masked_fill", "mask", ErrorType::dtype, "boolean", [=] { masked_fill(x3, x3, 0); });
  refuse("masked_fill", "shape", ErrorType::shape, "must broadcast", [=] {
    masked_fill(x3, flags({true, false}), 0);
  });
  refuse("masked_fill", "undefined", ErrorType::graph, "undefined",
         [] { masked_fill(Tensor(), flags({true}), 0); });
  return rows;
}

}  // namespace grad_cases
