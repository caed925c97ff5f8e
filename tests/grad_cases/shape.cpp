// Rows of ops that move numbers.
#include "softtape/ops/shape.hpp"

#include <numeric>

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

GradCase row(const char* op, const char* name, const Shape& x, Function f, Reference reference) {
  return {.op = op,
          .name = name,
          .inputs = normals({x}),
          .f = fn(std::move(f)),
          .reference = std::move(reference),
          .value_rtol = 0,
          .large = x.numel() > 1000};
}

// The same numbers under another shape.
Reference renamed(const Shape& shape) {
  return [shape](const Arrays& x) {
    Array y = x[0];
    y.shape = shape;
    return y;
  };
}

// Tensors of one shape but for `axis`, one after the other.
Reference joined(std::size_t axis) {
  return [axis](const Arrays& x) {
    std::int64_t total = 0;
    const int a = static_cast<int>(axis);
    for (const Array& part : x) total += part.shape[a];
    Array y(x[0].shape.with(a, total));
    std::int64_t start = 0;
    for (const Array& part : x) {
      for (std::int64_t i = 0; i < part.shape.numel(); ++i) {
        Index at = unravel(i, part.shape);
        at[axis] += start;
        y[ravel(at, y.shape)] = part[i];
      }
      start += part.shape[a];
    }
    return y;
  };
}

void add_reshapes(Family& rows) {
  const auto same = [&](const char* name, const Shape& x, const Shape& y, Function f) {
    rows.cases.push_back(row("reshape", name, x, std::move(f), renamed(y)));
  };
  same("2 to 3 axes", {2, 6}, {2, 3, 2}, [](const Tensor& x) { return reshape(x, {2, 3, 2}); });
  same("one size worked out", {2, 6}, {4, 3}, [](const Tensor& x) { return reshape(x, {4, -1}); });
  same("to rank 0", {1, 1}, {}, [](const Tensor& x) { return reshape(x, Shape{}); });
  same("from rank 0", {}, {1, 1}, [](const Tensor& x) { return reshape(x, {1, 1}); });
  same("flatten", {2, 3, 2}, {12}, [](const Tensor& x) { return flatten(x); });
  same("flatten the end", {2, 3, 2}, {2, 6}, [](const Tensor& x) { return flatten(x, 1); });
  same("squeeze all", {1, 3, 1}, {3}, [](const Tensor& x) { return squeeze(x); });
  same("squeeze one", {1, 3, 1}, {1, 3}, [](const Tensor& x) { return squeeze(x, -1); });
  same("unsqueeze", {2, 3}, {2, 1, 3}, [](const Tensor& x) { return unsqueeze(x, 1); });
  same("unsqueeze last", {2, 3}, {2, 3, 1}, [](const Tensor& x) { return unsqueeze(x, -1); });
}

void add_orders(Family& rows) {
  rows.cases.push_back(row(
      "permute", "three axes", {2, 3, 4},
      [](const Tensor& x) {
        return permute(x, {2, 0, 1});
      },
      taking({4, 2, 3}, [](const Index& i) {
        return Index{i[1], i[2], i[0]};
      })));
  rows.cases.push_back(row(
      "permute", "transpose", {2, 3}, [](const Tensor& x) { return transpose(x); },
      taking({3, 2}, [](const Index& i) {
        return Index{i[1], i[0]};
      })));
  rows.cases.push_back(row(
      "permute", "transpose of outer axes", {2, 3, 2},
      [](const Tensor& x) { return transpose(x, 0, 1); }, taking({3, 2, 2}, [](const Index& i) {
        return Index{i[1], i[0], i[2]};
      })));
  rows.cases.push_back(row(
      "permute", "large", {190, 180}, [](const Tensor& x) { return transpose(x); },
      taking({180, 190}, [](const Index& i) {
        return Index{i[1], i[0]};
      })));
  rows.cases.push_back(row(
      "slice", "flip", {2, 3}, [](const Tensor& x) { return flip(x, 1); },
      taking({2, 3}, [](const Index& i) {
        return Index{i[0], 2 - i[1]};
      })));
  rows.cases.push_back(row(
      "cat", "roll", {2, 5}, [](const Tensor& x) { return roll(x, 2, 1); },
      taking({2, 5}, [](const Index& i) {
        return Index{i[0], (i[1] + 3) % 5};
      })));
  rows.cases.push_back(row(
      "broadcast_to", "new axis in front", {3},
      [](const Tensor& x) {
        return broadcast_to(x, {2, 3});
      },
      taking({2, 3}, [](const Index& i) { return Index{i[1]}; })));
  rows.cases.push_back(row(
      "broadcast_to", "inner axis", {2, 1},
      [](const Tensor& x) {
        return broadcast_to(x, {2, 2, 3});
      },
      taking({2, 2, 3}, [](const Index& i) {
        return Index{i[1], 0};
      })));
  rows.cases.push_back(row(
      "broadcast_to", "rank 0", {},
      [](const Tensor& x) {
        return broadcast_to(x, {2, 2});
      },
      taking({2, 2}, [](const Index&) { return Index{}; })));
  rows.cases.push_back(row(
      "broadcast_to", "expand", {2, 1},
      [](const Tensor& x) {
        return expand(x, {-1, 3});
      },
      taking({2, 3}, [](const Index& i) {
        return Index{i[0], 0};
      })));
}

void add_parts(Family& rows) {
  const auto part = [&](const char* name, const Shape& y, Function f,
                        std::function<Source(const Index&)> from) {
    rows.cases.push_back(row("slice", name, {4, 5}, std::move(f), taking(y, std::move(from))));
  };
  part(
      "of rows", {2, 5}, [](const Tensor& x) { return slice(x, 0, 1, 3); },
      [](const Index& i) {
        return Index{i[0] + 1, i[1]};
      });
  part(
      "step 2", {4, 2}, [](const Tensor& x) { return slice(x, -1, 1, {}, 2); },
      [](const Index& i) {
        return Index{i[0], 1 + 2 * i[1]};
      });
  part(
      "step -2", {4, 3}, [](const Tensor& x) { return slice(x, 1, {}, {}, -2); },
      [](const Index& i) {
        return Index{i[0], 4 - 2 * i[1]};
      });
  part(
      "negative and far bounds", {3, 5}, [](const Tensor& x) { return slice(x, 0, -3, 100); },
      [](const Index& i) {
        return Index{i[0] + 1, i[1]};
      });
  part(
      "narrow", {4, 2}, [](const Tensor& x) { return narrow(x, 1, 2, 2); },
      [](const Index& i) {
        return Index{i[0], i[1] + 2};
      });
  part(
      "select", {4}, [](const Tensor& x) { return select(x, 1, -2); },
      [](const Index& i) {
        return Index{i[0], 3};
      });
  part(
      "split", {4, 2}, [](const Tensor& x) { return split(x, 2, 1)[1]; },
      [](const Index& i) {
        return Index{i[0], i[1] + 2};
      });
  part(
      "split by sizes", {3, 5},
      [](const Tensor& x) {
        return split(x, {1, 3}, 0)[1];
      },
      [](const Index& i) {
        return Index{i[0] + 1, i[1]};
      });
  part(
      "chunk", {4, 1}, [](const Tensor& x) { return chunk(x, 3, 1)[2]; },
      [](const Index& i) {
        return Index{i[0], 4};
      });
  rows.cases.push_back(row(
      "slice_vjp", "zeros around", {2, 3},
      [](const Tensor& g) {
        return slice_vjp(g, {2, 5}, 1, 1, 4);
      },
      taking({2, 5}, [](const Index& i) {
        return i[1] >= 1 && i[1] < 4 ? Source(Index{i[0], i[1] - 1}) : Source();
      })));
  rows.cases.push_back(row(
      "slice_vjp", "zeros between, backwards", {2, 2},
      [](const Tensor& g) {
        return slice_vjp(g, {4, 2}, 0, {}, {}, -2);
      },
      taking({4, 2}, [](const Index& i) {
        return i[0] % 2 ? Source(Index{(3 - i[0]) / 2, i[1]}) : Source();
      })));
  rows.cases.push_back(row(
      "pad", "zeros", {2, 3},
      [](const Tensor& x) {
        return pad(x, {{1, 0}, {0, 2}});
      },
      taking({3, 5}, [](const Index& i) {
        return i[0] > 0 && i[1] < 3 ? Source(Index{i[0] - 1, i[1]}) : Source();
      })));
  rows.cases.push_back(row(
      "pad", "a value", {2},
      [](const Tensor& x) {
        return pad(x, {{1, 1}}, -2.5);
      },
      taking(
          {4},
          [](const Index& i) { return i[0] > 0 && i[0] < 3 ? Source(Index{i[0] - 1}) : Source(); },
          -2.5L)));
  for (const std::int64_t diagonal : {-1, 0, 1}) {
    rows.cases.push_back(row(
        "tril", "of two matrices", {2, 3, 4}, [=](const Tensor& x) { return tril(x, diagonal); },
        taking({2, 3, 4},
               [=](const Index& i) { return i[2] - i[1] <= diagonal ? Source(i) : Source(); })));
    rows.cases.push_back(row(
        "triu", "of two matrices", {2, 3, 4}, [=](const Tensor& x) { return triu(x, diagonal); },
        taking({2, 3, 4},
               [=](const Index& i) { return i[2] - i[1] >= diagonal ? Source(i) : Source(); })));
  }
}

void add_joins(Family& rows) {
  const auto join = [&](const char* name, std::vector<Shape> shapes, softtape::TensorFunction f,
                        Reference reference) {
    rows.cases.push_back({.op = "cat",
                          .name = name,
                          .inputs = normals(std::move(shapes)),
                          .f = std::move(f),
                          .reference = std::move(reference),
                          .value_rtol = 0});
  };
  join(
      "rows", {{1, 3}, {2, 3}}, [](std::span<const Tensor> x) { return cat(x); }, joined(0));
  join(
      "columns of three", {{2, 1}, {2, 3}, {2, 2}},
      [](std::span<const Tensor> x) { return cat(x, -1); }, joined(1));
  join("an empty one", {{2, 2}, {2, 0}}, fn([](const Tensor& a, const Tensor& b) {
         return cat({a, b}, 1);
       }),
       joined(1));
  join(
      "middle axis", {{2, 1, 2}, {2, 1, 2}}, [](std::span<const Tensor> x) { return cat(x, 1); },
      joined(1));
  join(
      "five inputs", {{1}, {2}, {1}, {1}, {3}}, [](std::span<const Tensor> x) { return cat(x); },
      joined(0));
  const auto stacked = [](std::size_t axis) {
    return [=](Arrays x) {
      for (Array& part : x) part.shape = part.shape.inserted(static_cast<int>(axis), 1);
      return joined(axis)(x);
    };
  };
  join(
      "stack", {{2, 3}, {2, 3}}, [](std::span<const Tensor> x) { return stack(x); }, stacked(0));
  join(
      "stack last", {{2}, {2}, {2}}, [](std::span<const Tensor> x) { return stack(x, -1); },
      stacked(1));
}

void add_shape_errors(Family& rows) {
  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  const Tensor m = reshape(vec({1, 2, 3, 4, 5, 6}), {2, 3});
  const Tensor row3 = vec({1, 2, 3});
  refuse("reshape", "element count", ErrorType::shape, "x is (2, 3) with 6", [=] {
    reshape(m, {2, 2});
  });
  refuse("reshape", "two unknown sizes", ErrorType::shape, "but for a single -1", [=] {
    reshape(m, {-1, -1});
  });
  refuse("reshape", "no size fits", ErrorType::shape, "no size fits in place of -1", [=] {
    reshape(m, {4, -1});
  });
  refuse("reshape", "undefined", ErrorType::graph, "undefined", [] { reshape(Tensor(), {1}); });
  refuse("flatten", "order", ErrorType::shape, "start must not lie behind end",
         [=] { flatten(m, 1, 0); });
  refuse("squeeze", "size", ErrorType::shape, "only an axis of size 1 can go",
         [=] { squeeze(m, 0); });
  refuse("unsqueeze", "axis", ErrorType::shape, "axis must lie in", [=] { unsqueeze(m, 4); });
  refuse("permute", "an axis twice", ErrorType::shape, "needs every axis once: got (0, 0)", [=] {
    permute(m, {0, 0});
  });
  refuse("permute", "too few", ErrorType::shape, "needs every axis once", [=] { permute(m, {0}); });
  refuse("permute", "undefined", ErrorType::graph, "undefined", [] { permute(Tensor(), {0}); });
  refuse("transpose", "axis", ErrorType::shape, "axis must lie in", [=] { transpose(m, 0, 2); });
  refuse("broadcast_to", "shape", ErrorType::shape, "x is (2, 3), asked for (2, 4)", [=] {
    broadcast_to(m, {2, 4});
  });
  refuse("broadcast_to", "fewer axes", ErrorType::shape, "asked for (3,)",
         [=] { broadcast_to(m, {3}); });
  refuse("broadcast_to", "undefined", ErrorType::graph, "undefined",
         [] { broadcast_to(Tensor(), {1}); });
  refuse("expand", "-1 for a new axis", ErrorType::shape, "-1 keeps the size", [=] {
    expand(row3, {-1, 3});
  });
  refuse("slice", "step", ErrorType::value, "step must not be 0", [=] { slice(m, 0, 0, 1, 0); });
  refuse("slice", "axis", ErrorType::shape, "axis must lie in", [=] { slice(m, 2, 0); });
  refuse("slice", "undefined", ErrorType::graph, "undefined", [] { slice(Tensor(), 0, 0); });
  refuse("slice_vjp", "shape", ErrorType::shape, "gy must have the shape of the slice", [=] {
    slice_vjp(m, {4, 3}, 0, 0, 3);
  });
  refuse("slice_vjp", "undefined", ErrorType::graph, "undefined",
         [] { slice_vjp(Tensor(), {4}, 0, 0); });
  refuse("narrow", "too long", ErrorType::value, "start and length must stay inside the axis",
         [=] { narrow(m, 1, 2, 2); });
  refuse("select", "index", ErrorType::value, "index must lie in [-3, 3): got 3",
         [=] { select(m, 1, 3); });
  refuse("cat", "nothing", ErrorType::value, "needs at least one tensor",
         [] { cat(std::span<const Tensor>()); });
  refuse("cat", "sizes", ErrorType::shape, "sizes must agree but for axis 0", [=] {
    cat({m, reshape(row3, {3, 1})});
  });
  refuse("cat", "dtypes", ErrorType::dtype, "one dtype", [=] { cat({row3, ids({1})}); });
  refuse("cat", "undefined", ErrorType::graph, "tensor 1 is an undefined", [=] {
    cat({m, Tensor()});
  });
  refuse("stack", "shapes", ErrorType::shape, "shapes must be equal", [=] { stack({m, row3}); });
  refuse("split", "size", ErrorType::value, "size must be at least 1: got 0", [=] { split(m, 0); });
  refuse("split", "sizes", ErrorType::shape, "sizes must add up to the axis", [=] {
    split(m, {1, 1}, 1);
  });
  refuse("chunk", "n", ErrorType::value, "n must be at least 1", [=] { chunk(m, 0); });
  refuse("pad", "count", ErrorType::shape, "needs one padding per axis", [=] { pad(m, {{1, 1}}); });
  refuse("pad", "negative", ErrorType::shape, "must not be negative", [=] {
    pad(row3, {{-1, 0}});
  });
  refuse("pad", "fraction", ErrorType::dtype, "", [] { pad(ids({1}), {{1, 1}}, 0.5); });
  refuse("pad", "undefined", ErrorType::graph, "undefined", [] { pad(Tensor(), {{1, 1}}); });
  refuse("tril", "rank", ErrorType::shape, "needs at least two axes", [=] { tril(row3); });
  refuse("tril", "undefined", ErrorType::graph, "undefined", [] { tril(Tensor()); });
  refuse("triu", "rank", ErrorType::shape, "needs at least two axes", [=] { triu(row3); });
  refuse("triu", "undefined", ErrorType::graph, "undefined", [] { triu(Tensor()); });
  refuse("flip", "axis", ErrorType::shape, "axis must lie in", [=] { flip(m, 2); });
  refuse("roll", "axis", ErrorType::shape, "axis must lie in", [=] { roll(m, 1, 2); });
}

}  // namespace

Family shape_rows() {
  Family rows;
  add_reshapes(rows);
  add_orders(rows);
  add_parts(rows);
  add_joins(rows);
  add_shape_errors(rows);
  return rows;
}

}  // namespace grad_cases
