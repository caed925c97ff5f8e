// Reductions: values against plain loops in long double and PyTorch's gradients, edges, errors.
#include "softtape/ops/reduce.hpp"

#include <algorithm>
#include <cmath>

#include "golden/reduce_loss_golden.hpp"
#include "ops/numbers.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;
using namespace ops_test;

namespace {

// The numbers behind each element of a reduction, in row-major order.
std::vector<std::vector<long double>> groups(const Tensor& x, std::uint32_t mask) {
  std::vector<std::vector<long double>> out;
  const auto numbers = x.to_vector<long double>();
  std::int64_t kept = 1;
  for (int a = 0; a < x.rank(); ++a) kept *= mask >> a & 1 ? 1 : x.dim(a);
  out.resize(static_cast<std::size_t>(kept));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t rest = i;
    std::int64_t place = 0;
    std::int64_t step = 1;
    for (int a = x.rank() - 1; a >= 0; --a) {
      if (!(mask >> a & 1)) {
        place += rest % x.dim(a) * step;
        step *= x.dim(a);
      }
      rest /= x.dim(a);
    }
    out[static_cast<std::size_t>(place)].push_back(numbers[static_cast<std::size_t>(i)]);
  }
  return out;
}

using Group = std::vector<long double>;
long double sum_of(const Group& g) {
  long double s = 0;
  for (const long double v : g) s += v;
  return s;
}
long double var_of(const Group& g, long double correction) {
  const auto n = static_cast<long double>(g.size());
  long double s = 0;
  for (const long double v : g) s += (v - sum_of(g) / n) * (v - sum_of(g) / n);
  return s / (n - correction);
}
long double power_of(const Group& g, long double p) {
  long double s = 0;
  for (const long double v : g) s += std::pow(std::abs(v), p);
  return std::pow(s, 1 / p);
}

template <class F>
void check_groups(const Tensor& got, const Tensor& x, std::uint32_t mask, F f) {
  std::vector<double> expected;
  for (const Group& group : groups(x, mask)) expected.push_back(static_cast<double>(f(group)));
  check_close(got, expected, 1e-13);
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; i < a.size() && same; ++i) same = equal(a[i], b[i]);
  return same;
}

}  // namespace

TEST_CASE("every set of axes of shapes of rank 0 to 4 gives what plain loops give") {
  Rng rng(7);
  for (const Shape& shape :
       {Shape{}, Shape{5}, Shape{1, 4}, Shape{3, 70}, Shape{70, 3}, Shape{2, 1, 5},
        Shape{3, 4, 2, 5}, Shape{2, 300, 3}, Shape{2, 3, 270}}) {
    const Tensor x = randn(rng, shape, kDouble);
    for (std::uint32_t mask = shape.rank() ? 1 : 0; mask < 1u << shape.rank(); ++mask) {
      std::vector<int> list;
      for (int a = 0; a < shape.rank(); ++a) {
        if (mask >> a & 1) list.push_back(a % 2 ? a - shape.rank() : a);
      }
      const Axes axes{std::span<const int>(list)};
      CAPTURE(shape);
      CAPTURE(mask);
      check_groups(sum(x, axes), x, mask, sum_of);
      const auto count = [](const Group& g) { return static_cast<long double>(g.size()); };
      check_groups(mean(x, axes), x, mask, [&](const Group& g) { return sum_of(g) / count(g); });
      check_groups(max(x, axes), x, mask,
                   [](const Group& g) { return *std::max_element(g.begin(), g.end()); });
      check_groups(min(x, axes), x, mask,
                   [](const Group& g) { return *std::min_element(g.begin(), g.end()); });
      check_groups(var(x, axes, {.correction = 0}), x, mask,
                   [](const Group& g) { return var_of(g, 0); });
      check_groups(softtape::std(x, axes, {.correction = 0.5}), x, mask,
                   [](const Group& g) { return std::sqrt(var_of(g, 0.5L)); });
      check_groups(logsumexp(x, axes), x, mask, [](const Group& g) {
        long double s = 0;
        for (const long double v : g) s += std::exp(v);
        return std::log(s);
      });
      check_groups(norm(x, axes), x, mask, [](const Group& g) { return power_of(g, 2); });
      check_groups(norm(x, axes, {.p = 0.7}), x, mask,
                   [](const Group& g) { return power_of(g, 0.7L); });
      const Tensor kept = sum(x, axes, {.keepdim = true});
      CHECK(kept.rank() == x.rank());
      CHECK_SAME(reshape(kept, sum(x, axes).shape()), sum(x, axes));
      CHECK_SAME(sum_to(x, kept.shape()), kept);
      CHECK_SAME(sum(to(x > 0, DType::int64), axes), sum(x > 0, axes));
      CHECK_SAME(any(x > 1, axes), sum(x > 1, axes) > 0);
      CHECK_SAME(all(x > -1, axes), eq(sum(x <= -1, axes), 0));
    }
  }
}

TEST_CASE("values and gradients are PyTorch's") {
  for (const auto& c : golden::reduce::cases) {
    CAPTURE(c.op);
    CAPTURE(c.p);
    Tensor x = doubles(golden::reduce::x, {2, 3, 2, 2});
    x.requires_grad_();
    const std::string op = c.op;
    const Axes axes{std::span<const int>(c.axes)};
    const ReduceOptions keep{.keepdim = c.keepdim};
    const Tensor y = op == "sum"    ? sum(x, axes, keep)
                     : op == "mean" ? mean(x, axes, keep)
                     : op == "var"  ? var(x, axes, {.correction = c.p, .keepdim = c.keepdim})
                     : op == "std"
                         ? softtape::std(x, axes, {.correction = c.p, .keepdim = c.keepdim})
                     : op == "max"       ? max(x, axes, keep)
                     : op == "min"       ? min(x, axes, keep)
                     : op == "logsumexp" ? logsumexp(x, axes, keep)
                     : op == "norm"      ? norm(x, axes, {.p = c.p, .keepdim = c.keepdim})
                                         : cumsum(x, c.axes[0]);
    check_close(y, c.y, 1e-14);
    check_close(grad(y, x, {.grad_outputs = {doubles(c.gy, y.shape())}}).front(), c.gx, 1e-14);
    if (op != "cumsum") CHECK(y.rank() == (c.keepdim ? 4 : 4 - static_cast<int>(c.axes.size())));
  }
}

TEST_CASE("gradients of gradients") {
  Rng rng(3);
  const Tensor x = randn(rng, {2, 3, 4}, kDouble);
  CHECK(gradcheck([](const Tensor& t) { return sum(square(t), {0, 2}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return sum_to(square(t), {3, 1}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return mean(square(t), 1); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return var(t, {0, 1}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return softtape::std(t, 1); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return max(square(t), {1, 2}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return min(mul(t, t), 2); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return logsumexp(t, {0, 2}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return norm(t, 1); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return norm(t, 2, {.p = 3}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return norm(square(t), 1, {.p = 1}); }, {x}, {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return norm(square(t), 1, {.p = kInf}); }, {x},
                  {.order = 2}));
  CHECK(gradcheck([](const Tensor& t) { return cumsum(square(t), 1); }, {x}, {.order = 2}));
}

TEST_CASE("sum_to gives back x when there is nothing to sum") {
  const Tensor x = ones({2, 3});
  CHECK(sum_to(x, {2, 3}).is_same(x));
  CHECK_SAME(sum_to(x, {}), full({}, 6));
  CHECK_SAME(sum_to(x, {1, 3}), full({1, 3}, 2));
  CHECK_SAME(sum_to(ones({0, 3}), {3}), zeros({3}));
  CHECK_REFUSED(ShapeError, "[sum_to] shape must broadcast to that of x", sum_to(x, {2}));
  CHECK_REFUSED(ShapeError, "[sum_to]", sum_to(x, {1, 2, 3}));
}

TEST_CASE("long float32 sums keep their digits, in rows and in columns") {
  Rng rng(1);
  const std::int64_t n = 10'000'000;
  const Tensor x = rand(rng, {n}, {.dtype = DType::float32});
  long double exact = 0;
  for (const float v : x.data<float>()) exact += v;
  const auto error = [&](double got) { return std::abs(got / static_cast<double>(exact) - 1); };
  CHECK(error(sum(x).item()) < 1e-6);
  CHECK(error(sum(sum(reshape(x, {n / 4, 4}), 0)).item()) < 1e-6);
  CHECK(error(sum(sum(reshape(x, {n / 400, 400}), 0)).item()) < 1e-6);
  CHECK(error(cumsum(x, 0).data<float>()[n - 1]) < 1e-6);
  const double m = static_cast<double>(exact) / n;
  long double squares = 0;
  for (const float v : x.data<float>()) squares += (v - m) * (v - m);
  CHECK(var(x).item() == doctest::Approx(static_cast<double>(squares / (n - 1))).epsilon(1e-6));
}

TEST_CASE("results are bit-identical at 1 and 2 threads, and wherever a row stands") {
  Rng rng(2);
  const Tensor x = randn(rng, {700, 300}, {.dtype = DType::float32});
  const auto all_of_them = [&] {
    std::vector<Tensor> out;
    for (const Axes axes : {Axes(), Axes(0), Axes(1)}) {
      for (const Tensor& y : {sum(x, axes), mean(x, axes), var(x, axes), logsumexp(x, axes),
                              norm(x, axes), norm(x, axes, {.p = 3}), max(x, axes)}) {
        out.push_back(y);
      }
    }
    out.push_back(cumsum(x, 0));
    out.push_back(cumsum(x, 1));
    return out;
  };
  const int threads = num_threads();
  set_num_threads(1);
  const auto one = all_of_them();
  set_num_threads(2);
  const auto two = all_of_them();
  set_num_threads(threads);
  CHECK(same_bits(one, two));
  // One row at every place of a larger tensor.
  const Tensor row = slice(x, 0, 0, 1);
  const Tensor many = broadcast_to(row, {37, 300});
  CHECK_SAME(sum(many, 1), broadcast_to(sum(row, 1), {37}));
  CHECK_SAME(logsumexp(many, 1), broadcast_to(logsumexp(row, 1), {37}));
}
