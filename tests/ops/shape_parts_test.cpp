// Parts and joins: slice and its kin, cat, stack, split, pad, triangles, flip, roll.
#include <limits>

#include "ops/support.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;
using ops_test::check_linear;
using ops_test::count;

namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();

struct SliceRow {
  std::int64_t size;
  std::optional<std::int64_t> start, stop;
  std::int64_t step;
  std::vector<std::int64_t> entries;
};

// list(range(size))[start:stop:step] in CPython.
const SliceRow kSlices[] = {
    {5, {}, {}, 1, {0, 1, 2, 3, 4}},
    {5, 1, 4, 1, {1, 2, 3}},
    {5, -3, -1, 1, {2, 3}},
    {5, -10, 10, 2, {0, 2, 4}},
    {5, 4, 1, 1, {}},
    {5, 7, {}, 1, {}},
    {5, {}, {}, -1, {4, 3, 2, 1, 0}},
    {5, 3, {}, -2, {3, 1}},
    {5, -1, 0, -1, {4, 3, 2, 1}},
    {5, 10, -10, -3, {4, 1}},
    {5, 1, 3, -1, {}},
    {5, -9, {}, -1, {}},
    {0, {}, {}, 1, {}},
    {0, {}, {}, -1, {}},
    {1, -1, {}, 1, {0}},
    {1, 0, -1, 1, {}},
    {5, 0, 5, 7, {0}},
    {5, 2, {}, -7, {2}},
    {6, 1, {}, 2, {1, 3, 5}},
    {6, -2, {}, -2, {4, 2, 0}},
    {6, 5, -7, -5, {5, 0}},
    {4, -4, -4, 1, {}},
    {4, {}, -5, -1, {3, 2, 1, 0}},
    {4, 3, 3, -1, {}},
    {2, {}, 2, 3, {0}},
    {5, {}, 6, 2, {0, 2, 4}},
    {2, -3, 8, 1, {0, 1}},
    {6, {}, -5, 3, {0}},
    {1, {}, {}, -1, {0}},
    {7, -9, 6, 3, {0, 3}},
    {7, 4, 9, -2, {}},
    {3, {}, -5, -2, {2, 0}},
    {3, 4, 4, 2, {}},
    {3, 8, {}, -1, {2, 1, 0}},
    {6, -9, -4, 2, {0}},
    {5, {}, -3, -1, {4, 3}},
    {1, -7, {}, -1, {}},
    {7, -7, {}, -1, {0}},
    {4, {}, {}, 1, {0, 1, 2, 3}},
    {6, 9, 8, 2, {}},
    {5, kLow, kHuge, 1, {0, 1, 2, 3, 4}},
    {5, kHuge, kLow, -1, {4, 3, 2, 1, 0}},
    {5, 1, kHuge, kHuge, {1}},
    {5, 3, kLow, kLow, {3}},
};

}  // namespace

TEST_CASE("slice reads what Python reads, and slice_vjp writes there") {
  for (const SliceRow& row : kSlices) {
    CAPTURE(row.size);
    CAPTURE(row.step);
    const Tensor x = arange(row.size);
    const Tensor y = slice(x, 0, row.start, row.stop, row.step);
    CHECK(y.to_vector<std::int64_t>() == row.entries);
    std::vector<std::int64_t> written(static_cast<std::size_t>(row.size), 0);
    for (const std::int64_t i : row.entries) written[static_cast<std::size_t>(i)] = i + 1;
    const Tensor back = slice_vjp(y + 1, {row.size}, 0, row.start, row.stop, row.step);
    CHECK(back.to_vector<std::int64_t>() == written);
    // The same along the middle of three axes.
    const Tensor wide = broadcast_to(reshape(x, {-1, 1}), {2, row.size, 3});
    const Tensor cut = slice(wide, 1, row.start, row.stop, row.step);
    CHECK_SAME(cut, broadcast_to(reshape(y, {-1, 1}), {2, y.numel(), 3}));
    CHECK_SAME(slice_vjp(cut + 1, wide.shape(), 1, row.start, row.stop, row.step),
               broadcast_to(reshape(back, {-1, 1}), wide.shape()));
  }
}

TEST_CASE("slices leave exact zeros outside, whatever the upstream gradient holds") {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = tensor({1.0, 2.0, 3.0, 4.0}, {.requires_grad = true});
  const auto g = grad(slice(x, 0, 1, 4, 2), x, {.grad_outputs = {tensor({inf, -inf})}}).front();
  CHECK_SAME(g, tensor({0.0, inf, 0.0, -inf}));
}

TEST_CASE("narrow, select and operator[]") {
  const Tensor x = count({2, 3, 4});
  CHECK_SAME(narrow(x, 1, 1, 2), slice(x, 1, 1, 3));
  CHECK_SAME(narrow(x, -1, -2, 2), slice(x, 2, 2, 4));
  CHECK(narrow(x, 0, 2, 0).shape() == Shape{0, 3, 4});
  CHECK_SAME(select(x, 1, -1), tensor({{8, 9, 10, 11}, {20, 21, 22, 23}}));
  CHECK_SAME(x[1][2], tensor({20, 21, 22, 23}));
  CHECK(x[-1][0][-4].item() == 12);
  CHECK(x[0].shape() == Shape{3, 4});
  CHECK_SAME(tensor({true, false})[1], tensor(false));
}

TEST_CASE("cat joins along an axis") {
  const Tensor a = tensor({{1, 2}, {3, 4}});
  const Tensor b = tensor({{5, 6}});
  CHECK_SAME(cat({a, b}), tensor({{1, 2}, {3, 4}, {5, 6}}));
  CHECK_SAME(cat({a, transpose(b), a}, -1), tensor({{1, 2, 5, 1, 2}, {3, 4, 6, 3, 4}}));
  CHECK_SAME(cat({a}), a);
  CHECK_SAME(cat({zeros({0, 2}, {.dtype = DType::int64}), a}), a);
  const std::vector<Tensor> many(40, b);
  CHECK(cat(many).shape() == Shape{40, 2});
  CHECK(cat(many, 1).shape() == Shape{1, 80});
  CHECK_SAME(cat({tensor({true}), tensor({false})}), tensor({true, false}));
  CHECK(cat({count({2, 1, 2, 2, 1, 3}), count({2, 1, 2, 1, 1, 3})}, 3).shape() ==
        Shape{2, 1, 2, 3, 1, 3});
}

TEST_CASE("stack joins along a new axis") {
  const Tensor a = tensor({1, 2, 3});
  const Tensor b = tensor({4, 5, 6});
  CHECK_SAME(stack({a, b}), tensor({{1, 2, 3}, {4, 5, 6}}));
  CHECK_SAME(stack({a, b}, 1), tensor({{1, 4}, {2, 5}, {3, 6}}));
  CHECK_SAME(stack({a, b}, -1), stack({a, b}, 1));
  CHECK_SAME(stack({scalar(1.5), scalar(2.5)}), tensor({1.5, 2.5}));
  CHECK_SAME(stack(std::vector<Tensor>{a}), tensor({{1, 2, 3}}));
}

TEST_CASE("split and chunk are undone by cat") {
  const Tensor x = count({7, 2});
  const auto sizes = [](const std::vector<Tensor>& parts, int axis) {
    std::vector<std::int64_t> out;
    for (const Tensor& part : parts) out.push_back(part.dim(axis));
    return out;
  };
  CHECK(sizes(split(x, 3), 0) == std::vector<std::int64_t>{3, 3, 1});
  CHECK(sizes(split(x, 100), 0) == std::vector<std::int64_t>{7});
  CHECK(sizes(split(x, {2, 0, 5}), 0) == std::vector<std::int64_t>{2, 0, 5});
  CHECK(sizes(split(x, 1, -1), 1) == std::vector<std::int64_t>{1, 1});
  CHECK(sizes(split(zeros({0, 2}), 3), 0) == std::vector<std::int64_t>{0});
  CHECK(sizes(chunk(x, 3), 0) == std::vector<std::int64_t>{3, 3, 1});
  CHECK(sizes(chunk(x, 5), 0) == std::vector<std::int64_t>{2, 2, 2, 1});  // as torch.chunk
  CHECK(sizes(chunk(x, 9), 0) == std::vector<std::int64_t>(7, 1));
  CHECK_SAME(cat(split(x, 3)), x);
  CHECK_SAME(cat(split(x, {4, 3})), x);
  CHECK_SAME(cat(chunk(x, 2, 1), 1), x);
}

TEST_CASE("pad frames with a value") {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  CHECK_SAME(pad(x, {{1, 0}, {0, 2}}), tensor({{0, 0, 0, 0}, {1, 2, 0, 0}, {3, 4, 0, 0}}));
  CHECK_SAME(pad(x, {{0, 0}, {1, 0}}, -7), tensor({{-7, 1, 2}, {-7, 3, 4}}));
  CHECK_SAME(pad(x, {{0, 0}, {0, 0}}), x);
  CHECK(pad(scalar(2.0), {}).item() == 2);
  CHECK_SAME(pad(tensor({true}), {{1, 1}}), tensor({false, true, false}));
  CHECK_SAME(pad(tensor({false}), {{0, 1}}, 1), tensor({false, true}));
  CHECK_SAME(pad(zeros({0}), {{2, 1}}, 3), tensor({3.0, 3.0, 3.0}));
  CHECK_SAME(pad(zeros({2, 0}), {{0, 1}, {1, 0}}, 1), ones({3, 1}));
  const double inf = std::numeric_limits<double>::infinity();
  const AnomalyGuard guard;
  CHECK_SAME(pad(tensor({1.0}), {{1, 0}}, -inf), tensor({-inf, 1.0}));
}

TEST_CASE("tril and triu keep one side of a diagonal") {
  const Tensor x = tensor({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}});
  CHECK_SAME(tril(x), tensor({{1, 0, 0, 0}, {5, 6, 0, 0}, {9, 10, 11, 0}}));
  CHECK_SAME(tril(x, 1), tensor({{1, 2, 0, 0}, {5, 6, 7, 0}, {9, 10, 11, 12}}));
  CHECK_SAME(tril(x, -2), tensor({{0, 0, 0, 0}, {0, 0, 0, 0}, {9, 0, 0, 0}}));
  CHECK_SAME(triu(x), tensor({{1, 2, 3, 4}, {0, 6, 7, 8}, {0, 0, 11, 12}}));
  CHECK_SAME(triu(x, 2), tensor({{0, 0, 3, 4}, {0, 0, 0, 8}, {0, 0, 0, 0}}));
  CHECK_SAME(triu(x, -1), tensor({{1, 2, 3, 4}, {5, 6, 7, 8}, {0, 10, 11, 12}}));
  for (const std::int64_t far : {kHuge, std::int64_t{4}}) {
    CHECK_SAME(tril(x, far), x);
    CHECK_SAME(triu(x, far), zeros_like(x));
  }
  for (const std::int64_t far : {kLow, std::int64_t{-4}}) {
    CHECK_SAME(triu(x, far), x);
    CHECK_SAME(tril(x, far), zeros_like(x));
  }
  CHECK_SAME(tril(stack({x, x + 1}))[1], tril(x + 1));
  CHECK(tril(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(triu(zeros({3, 0})).shape() == Shape{3, 0});
  // Selected away, not multiplied by 0.
  const Tensor poisoned = full({2, 2}, std::numeric_limits<double>::quiet_NaN());
  CHECK(tril(poisoned)[0][1].item() == 0);
}

TEST_CASE("flip and roll") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK_SAME(flip(x, 0), tensor({{4, 5, 6}, {1, 2, 3}}));
  CHECK_SAME(flip(x, -1), tensor({{3, 2, 1}, {6, 5, 4}}));
  CHECK_SAME(roll(x, 1, 1), tensor({{3, 1, 2}, {6, 4, 5}}));
  CHECK_SAME(roll(x, -1, 1), tensor({{2, 3, 1}, {5, 6, 4}}));
  CHECK_SAME(roll(x, 5, -2), flip(x, 0));
  CHECK_SAME(roll(x, 0, 0), x);
  CHECK(roll(zeros({0}), 3, 0).shape() == Shape{0});
  CHECK(flip(zeros({2, 0}), 1).shape() == Shape{2, 0});
}

TEST_CASE("gradients of parts and joins are exact, to second order") {
  check_linear([](const Tensor& x) { return slice(x, 1, 1, 6, 2); }, {2, 7, 3});
  check_linear([](const Tensor& x) { return slice(x, -1, {}, 1, -3); }, {4, 9});
  check_linear([](const Tensor& x) { return slice(x, 0, 5, 2); }, {4, 2});
  check_linear([](const Tensor& x) { return narrow(x, 2, -2, 1); }, {2, 3, 4});
  check_linear([](const Tensor& x) { return x[1][-1]; }, {2, 3, 4});
  check_linear([](const Tensor& g) { return slice_vjp(g, {2, 8}, 1, 1, {}, 3); }, {2, 3});
  check_linear([](const Tensor& x) { return cat({x, 2 * x, slice(x, 1, 1)}, 1); }, {2, 3, 2});
  check_linear([](const Tensor& x) { return stack({x, -x, x}, 1); }, {2, 3});
  check_linear([](const Tensor& x) { return split(x, {1, 4}, 1)[1]; }, {2, 5});
  check_linear([](const Tensor& x) { return chunk(x, 2)[0]; }, {5});
  check_linear([](const Tensor& x) { return pad(x, {{1, 2}, {0, 0}, {0, 3}}); }, {2, 3, 4});
  check_linear([](const Tensor& x) { return tril(x, -1); }, {2, 4, 3});
  check_linear([](const Tensor& x) { return triu(x, 1); }, {4, 5});
  check_linear([](const Tensor& x) { return flip(x, 1); }, {2, 3, 2});
  check_linear([](const Tensor& x) { return roll(x, 2, 0); }, {5, 2});
}

TEST_CASE("cat passes gradients only to those who need them") {
  Tensor a = tensor({1.0, 2.0}, {.requires_grad = true});
  const Tensor b = tensor({3.0});
  Tensor c = tensor({4.0, 5.0, 6.0}, {.requires_grad = true});
  const Tensor y = cat({b, a, c});
  const Tensor w = arange(1.0, 7.0);
  CHECK_SAME(grad(y, a, {.grad_outputs = {w}, .retain_graph = true})[0], tensor({2.0, 3.0}));
  CHECK_SAME(grad(y, c, {.grad_outputs = {w}})[0], tensor({4.0, 5.0, 6.0}));
  CHECK(!cat({b, b}).requires_grad());
}

TEST_CASE("[thread] long slices, joins and broadcasts are the same at any number of threads") {
  const Tensor x = count({300, 500});
  const auto all = [&] {
    return std::vector<Tensor>{slice(x, 0, {}, {}, -1),
                               slice(x, 1, 3, {}, 7),
                               cat({x, x}, 1),
                               broadcast_to(x, {2, 300, 500}),
                               tril(x),
                               slice(flatten(x), 0, {}, {}, 2)};
  };
  const int before = num_threads();
  set_num_threads(1);
  const auto alone = all();
  set_num_threads(3);
  const auto together = all();
  set_num_threads(before);
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(equal(alone[i], together[i]));
  CHECK(alone[0][0][7].item() == 299 * 500 + 7);
  CHECK(alone[1][2][3].item() == 1000 + 3 + 21);
  CHECK(alone[5][70000].item() == 140000);
}

TEST_CASE("parts and joins refuse what does not fit") {
  const Tensor x = zeros({2, 3}, {.requires_grad = true});
  const Tensor y = zeros({2, 3}, {.dtype = DType::float64, .requires_grad = true});
  const Tensor deep = zeros({1, 1, 1, 1, 1, 1});
  const Tensor none;
  CHECK_REFUSED(ValueError, "[slice] step must not be 0", slice(x, 0, {}, {}, 0));
  CHECK_REFUSED(ShapeError, "[slice] axis must", slice(x, 2, 0));
  CHECK_REFUSED(ShapeError, "[slice] axis must", slice(scalar(1.0), 0, 0));
  CHECK_REFUSED(GraphError, "[slice]", slice(none, 0, 0));
  CHECK_REFUSED(ShapeError, "[slice_vjp] gy must have the shape of the slice: gy is (2, 3), the",
                slice_vjp(x, {2, 5}, 1, 0, 2));
  CHECK_REFUSED(ValueError, "[slice_vjp] step", slice_vjp(x, {2, 3}, 1, {}, {}, 0));
  CHECK_REFUSED(ShapeError, "[slice_vjp] axis must", slice_vjp(x, {2, 3}, 2, {}));
  CHECK_REFUSED(GraphError, "[slice_vjp]", slice_vjp(none, {2, 3}, 1, {}));
  CHECK_REFUSED(ValueError, "[narrow] start and length", narrow(x, 1, 1, 3));
  CHECK_REFUSED(ValueError, "[narrow] start and length", narrow(x, 1, -4, 1));
  CHECK_REFUSED(ValueError, "[narrow] start and length", narrow(x, 1, 1, -1));
  CHECK_REFUSED(ValueError, "[narrow] start and length", narrow(x, 1, 1, kHuge));
  CHECK_REFUSED(ShapeError, "[narrow] axis must", narrow(x, 2, 0, 1));
  CHECK_REFUSED(GraphError, "[narrow]", narrow(none, 0, 0, 1));
  CHECK_REFUSED(ValueError, "[select] index must lie in [-3, 3): got 3 for axis 1 of (2, 3)",
                select(x, 1, 3));
  CHECK_REFUSED(ValueError, "[select] index must lie in [-2, 2): got -3", x[-3]);
  CHECK_REFUSED(ShapeError, "[select] axis must", x[0][0][0]);
  CHECK_REFUSED(GraphError, "[select]", none[0]);
  CHECK_REFUSED(ValueError, "[cat] needs at least one", cat(std::vector<Tensor>{}));
  CHECK_REFUSED(DtypeError, "[cat] all tensors must have one dtype: tensor 0 is float32, tensor 1",
                cat({x, y}));
  CHECK_REFUSED(ShapeError, "[cat] sizes must agree but for axis 0: tensor 0 is (2, 3), tensor 1",
                cat({x, zeros({2, 4})}));
  CHECK_REFUSED(ShapeError, "[cat] sizes must agree", cat({x, zeros({3})}));
  CHECK_REFUSED(ShapeError, "[cat] axis must", cat({x, x}, 2));
  CHECK_REFUSED(ShapeError, "[cat] axis must", cat({scalar(1.0)}));
  CHECK_REFUSED(GraphError, "[cat] tensor 1 is an undefined", cat({x, none}));
  CHECK_REFUSED(ValueError, "[stack] needs at least one", stack(std::vector<Tensor>{}));
  CHECK_REFUSED(ShapeError, "[stack] shapes must be equal", stack({x, zeros({2, 4})}));
  CHECK_REFUSED(DtypeError, "[stack] all tensors must have one dtype", stack({x, y}));
  CHECK_REFUSED(ShapeError, "[stack] axis must", stack({x, x}, 3));
  CHECK_REFUSED(ShapeError, "[stack] at most 6", stack({deep, deep}));
  CHECK_REFUSED(GraphError, "[stack] tensor 0 is an undefined", stack({none, x}));
  CHECK_REFUSED(ValueError, "[split] size must be at least 1: got 0", split(x, 0));
  CHECK_REFUSED(ShapeError, "[split] sizes must add up", split(x, {1, 1}, 1));
  CHECK_REFUSED(ShapeError, "[split] sizes must add up", split(x, {4, -1}, 1));
  CHECK_REFUSED(ShapeError, "[split] sizes must add up", split(x, {kHuge, kHuge, 5}, 1));
  CHECK_REFUSED(ShapeError, "[split] axis must", split(x, 1, 2));
  CHECK_REFUSED(GraphError, "[split]", split(none, 1));
  CHECK_REFUSED(ValueError, "[chunk] n must be at least 1: got -1", chunk(x, -1));
  CHECK_REFUSED(ShapeError, "[chunk] axis must", chunk(x, 1, 2));
  CHECK_REFUSED(GraphError, "[chunk]", chunk(none, 1));
  CHECK_REFUSED(ShapeError, "[pad] needs one padding per axis: got 1", pad(x, {{1, 1}}));
  CHECK_REFUSED(ShapeError, "[pad] paddings must not be negative", pad(x, {{0, 0}, {-1, 0}}));
  CHECK_REFUSED(ShapeError, "[pad] paddings", pad(x, {{0, 0}, {kHuge, kHuge}}));
  CHECK_REFUSED(DtypeError, "[pad] a fractional number", pad(tensor({1}), {{1, 1}}, 0.5));
  CHECK_REFUSED(ValueError, "[pad] a number must fit int64", pad(tensor({1}), {{1, 1}}, 1e30));
  CHECK_REFUSED(GraphError, "[pad]", pad(none, {}));
  CHECK_REFUSED(ShapeError, "[tril] needs at least two axes", tril(zeros({3})));
  CHECK_REFUSED(ShapeError, "[triu] needs at least two axes", triu(zeros({3})));
  CHECK_REFUSED(GraphError, "[tril]", tril(none));
  CHECK_REFUSED(GraphError, "[triu]", triu(none));
  CHECK_REFUSED(ShapeError, "[flip] axis must", flip(x, 2));
  CHECK_REFUSED(GraphError, "[flip]", flip(none, 0));
  CHECK_REFUSED(ShapeError, "[roll] axis must", roll(x, 1, 2));
  CHECK_REFUSED(GraphError, "[roll]", roll(none, 1, 0));
}
