// Reductions: values against plain loops in long double and PyTorch's gradients, edges, errors.
#include "softtape/ops/reduce.hpp"

#include <cmath>
#include <limits>

#include "golden/reduce_loss_golden.hpp"
#include "ops/support.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();
const TensorOptions kDouble{.dtype = DType::float64};

Tensor doubles(const std::vector<double>& numbers, const Shape& shape) {
  return tensor(numbers, shape, kDouble);
}
Tensor doubles(const std::vector<double>& numbers) { return tensor(numbers, kDouble); }

void check_close(const Tensor& got, const std::vector<double>& expected, double tolerance) {
  const auto numbers = got.to_vector();
  REQUIRE(numbers.size() == expected.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(numbers[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

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

// The gradient of one number.
Tensor gradient(const Tensor& y, const Tensor& x) { return grad(sum(y), x).front(); }

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
    for (std::uint32_t mask = 0; mask < 1u << shape.rank(); ++mask) {
      std::vector<int> list;
      for (int a = 0; a < shape.rank(); ++a) {
        if (mask >> a & 1) list.push_back(a % 2 ? a - shape.rank() : a);
      }
      if (list.empty()) mask = (1u << shape.rank()) - 1;  // nothing named: everything
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
      if (mask + 1 == 1u << shape.rank()) break;
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

TEST_CASE("max and min: NaN is the result, ties share the gradient") {
  Tensor x = doubles({2, 5, 5, 1});
  x.requires_grad_();
  CHECK(max(x).item() == 5);
  CHECK(gradient(max(x), x).to_vector() == std::vector<double>{0, 0.5, 0.5, 0});
  Tensor low = doubles({-kInf, -kInf, -kInf, 1}, {2, 2});
  low.requires_grad_();
  CHECK(max(low, 1).to_vector() == std::vector<double>{-kInf, 1});
  CHECK(gradient(max(low, 1), low).to_vector() == std::vector<double>{0.5, 0.5, 0, 1});
  CHECK(min(low).item() == -kInf);
  for (std::size_t at : {0u, 3u, 66u, 129u}) {
    std::vector<double> numbers(130, 1.0);
    numbers[at] = kNan;
    Tensor t = doubles(numbers);
    t.requires_grad_();
    CHECK(std::isnan(max(t).item()));
    CHECK(std::isnan(min(t).item()));
    CHECK(gradient(max(t), t).to_vector()[at] == 1);
    CHECK(argmax(t).item() == static_cast<double>(at));
    CHECK(argmin(t).item() == static_cast<double>(at));
  }
  CHECK(max(tensor({{3, 9}, {7, 2}}), 0).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{7, 9});
  CHECK(min(tensor({{3, 9}, {7, 2}})).dtype() == DType::int64);
}

TEST_CASE("argmax and argmin name the first winner") {
  const Tensor x = tensor({{1, 4, 4}, {7, 0, 7}});
  CHECK_SAME(argmax(x), tensor(3));
  CHECK_SAME(argmin(x), tensor(4));
  CHECK_SAME(argmax(x, 1), tensor({1, 0}));
  CHECK_SAME(argmax(x, -1, {.keepdim = true}), tensor({{1}, {0}}));
  CHECK_SAME(argmax(x, 0), tensor({1, 0, 1}));
  CHECK_SAME(argmin(x, 0, {.keepdim = true}), tensor({{0, 1, 0}}));
  CHECK_SAME(argmax(x, {}, {.keepdim = true}), tensor({{3}}));
  CHECK(argmax(doubles({-kInf, -kInf})).item() == 0);
  CHECK(argmin(full({}, 2)).item() == 0);
  Rng rng(4);
  const Tensor big = randn(rng, {3, 1000}, {.dtype = DType::float32});
  const auto places = argmax(big, 1).to_vector<std::int64_t>();
  const auto values = max(big, 1).to_vector<float>();
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(big.data<float>()[static_cast<std::size_t>(i * 1000 + places[at])] == values[at]);
  }
}

TEST_CASE("sum counts booleans, keeps int64, and is 0 over nothing") {
  CHECK_SAME(sum(tensor({true, false, true})), tensor(2));
  CHECK_SAME(sum(tensor({{1, 2}, {3, 4}}), 1), tensor({3, 7}));
  CHECK_SAME(cumsum(tensor({{1, 2}, {3, 4}}), 0), tensor({{1, 2}, {4, 6}}));
  const std::int64_t large = std::int64_t{1} << 60;
  CHECK(sum(tensor({large, std::int64_t{1}})).data<std::int64_t>()[0] == large + 1);
  Tensor none = zeros({0, 3});
  none.requires_grad_();
  CHECK(sum(none).item() == 0);
  CHECK(gradient(sum(none), none).shape() == Shape{0, 3});
  CHECK_SAME(sum(none, 0), zeros({3}));
  CHECK(sum(none, 1).shape() == Shape{0});
  CHECK(mean(none, 1).shape() == Shape{0});
  CHECK(gradient(mean(none, 1), none).shape() == Shape{0, 3});
  CHECK(max(none, 1).shape() == Shape{0});
  CHECK(argmax(none, 1).shape() == Shape{0});
  CHECK(any(none > 0).item() == 0);
  CHECK(all(none > 0).item() == 1);
  CHECK(logsumexp(none).item() == -kInf);
  CHECK(norm(none).item() == 0);
  CHECK(cumsum(none, 0).shape() == Shape{0, 3});
}

TEST_CASE("mean divides its gradient by the number of elements") {
  Tensor x = doubles({1, 2, 3, 4, 5, 6}, {2, 3});
  x.requires_grad_();
  const Tensor y = mean(x, 1, {.keepdim = true});
  CHECK(y.to_vector() == std::vector<double>{2, 5});
  const Tensor g = grad(y, x, {.grad_outputs = {doubles({1, -2}, {2, 1})}}).front();
  check_close(g, {1. / 3, 1. / 3, 1. / 3, -2. / 3, -2. / 3, -2. / 3}, 1e-15);
}

TEST_CASE("logsumexp does not overflow, and knows infinities") {
  CHECK(logsumexp(doubles({1000, 1000})).item() ==
        doctest::Approx(1000.6931471805599).epsilon(1e-15));
  CHECK(logsumexp(doubles({-1000, -1001})).item() ==
        doctest::Approx(-999.6867383124818).epsilon(1e-15));
  CHECK(logsumexp(doubles({7})).item() == 7);
  CHECK(logsumexp(doubles({1, kInf})).item() == kInf);
  CHECK(std::isnan(logsumexp(doubles({1, kNan})).item()));
  Tensor x = doubles({-kInf, -kInf, 5, 4}, {2, 2});
  x.requires_grad_();
  const Tensor y = logsumexp(x, 1);
  CHECK(y.to_vector()[0] == -kInf);
  for (const bool again : {false, true}) {
    const Tensor g =
        grad(y, x,
             {.grad_outputs = {ones({2}, kDouble)}, .retain_graph = true, .create_graph = again})
            .front();
    check_close(g, {0, 0, 0.7310585786300049, 0.2689414213699951}, 1e-15);
  }
  // Beside a large shift the weights keep their digits.
  Tensor far = full({2}, 1e4, {.dtype = DType::float32});
  far.requires_grad_();
  CHECK(gradient(logsumexp(far), far).to_vector() == std::vector<double>{0.5, 0.5});
}

TEST_CASE("variance at a large offset, of constants, and of too few numbers") {
  const Tensor x = add(doubles({1, 2, 3, 4}), 1e8);
  CHECK(var(x).item() == doctest::Approx(5. / 3).epsilon(1e-12));
  const Tensor f = add(tensor({0.0, 8.0, 16.0, 24.0}, {.dtype = DType::float32}), 1e8);
  CHECK(var(f, {}, {.correction = 0}).item() == 80);
  for (const double v : {5.1, 1e8 + 0.3}) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      Tensor c = full({7}, v, {.dtype = dtype});
      c.requires_grad_();
      CHECK(var(c).item() == 0);
      CHECK(gradient(softtape::std(c), c).to_vector() == std::vector<double>(7, 0));
    }
  }
  CHECK(std::isnan(var(doubles({1, kNan})).item()));
  CHECK(var(doubles({3}), {}, {.correction = 0}).item() == 0);
}

TEST_CASE("norm: large, small and zero") {
  CHECK(norm(doubles({3e200, 4e200})).item() == doctest::Approx(5e200).epsilon(1e-15));
  CHECK(norm(doubles({3e-200, 4e-200})).item() == doctest::Approx(5e-200).epsilon(1e-15));
  CHECK(norm(doubles({3e200, 4e200}), {}, {.p = 3}).item() ==
        doctest::Approx(std::cbrt(91.) * 1e200).epsilon(1e-14));
  const Tensor wide = tensor({3e30, 4e30}, {.dtype = DType::float32});
  CHECK(norm(wide).item() == doctest::Approx(5e30).epsilon(1e-6));
  CHECK(norm(doubles({1, kInf})).item() == kInf);
  CHECK(std::isnan(norm(doubles({kNan, kInf})).item()));
  CHECK(norm(doubles({-3, 2, 3}), {}, {.p = kInf}).item() == 3);
  CHECK(norm(doubles({-3, 2, 3}), {}, {.p = 1}).item() == 8);
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0, kInf}) {
    CAPTURE(p);
    Tensor zero = zeros({3}, kDouble);
    zero.requires_grad_();
    CHECK(gradient(norm(zero, {}, {.p = p}), zero).to_vector() == std::vector<double>(3, 0));
    Tensor part = doubles({0, -4}, {2});
    part.requires_grad_();
    CHECK(gradient(norm(part, {}, {.p = p}), part).to_vector() == std::vector<double>{0, -1});
  }
  Tensor big = doubles({3e200, 4e200});
  big.requires_grad_();
  check_close(gradient(norm(big), big), {0.6, 0.8}, 1e-15);
}

TEST_CASE("refused reductions") {
  const Tensor x = ones({2, 3});
  CHECK_REFUSED(ShapeError, "[sum] axis must lie in", sum(x, 2));
  CHECK_REFUSED(ShapeError, "[mean] axis must lie in", mean(x, {0, -3}));
  CHECK_REFUSED(ShapeError, "[max] an axis may be named only once", max(x, {1, -1}));
  CHECK_REFUSED(ShapeError, "[sum] at most 6 axes", sum(x, {0, 1, 0, 1, 0, 1, 0}));
  CHECK_REFUSED(ShapeError, "[argmax] axis", argmax(x, 2));
  CHECK_REFUSED(ShapeError, "[cumsum] axis", cumsum(x, 2));
  CHECK_REFUSED(ShapeError, "[cumsum] axis", cumsum(full({}, 1), 0));
  const Tensor none = zeros({0, 3});
  CHECK_REFUSED(ValueError, "[mean] there must be something", mean(none));
  CHECK_REFUSED(ValueError, "[mean] there must be something", mean(none, 0));
  CHECK_REFUSED(ValueError, "[max] there must be something", max(none));
  CHECK_REFUSED(ValueError, "[min] there must be something", min(none, 0));
  CHECK_REFUSED(ValueError, "[argmax] there must be something", argmax(none));
  CHECK_REFUSED(ValueError, "[argmin] there must be something", argmin(none, 0));
  CHECK_REFUSED(ValueError, "[norm] there must be something", norm(none, {}, {.p = kInf}));
  CHECK_REFUSED(ValueError, "[var] needs more elements", var(full({1}, 3)));
  CHECK_REFUSED(ValueError, "[std] needs more elements", softtape::std(x, 0, {.correction = 2}));
  CHECK_REFUSED(ValueError, "[var] needs more elements", var(x, 0, {.correction = kNan}));
  for (const double p : {0.0, -1.0, kNan}) {
    CHECK_REFUSED(ValueError, "[norm] p must be positive", norm(x, {}, {.p = p}));
  }
  const Tensor whole = tensor({1, 2});
  const Tensor flags = tensor({true, false});
  CHECK_REFUSED(DtypeError, "[mean]", mean(whole));
  CHECK_REFUSED(DtypeError, "[var]", var(whole));
  CHECK_REFUSED(DtypeError, "[std]", std(whole));
  CHECK_REFUSED(DtypeError, "[logsumexp]", logsumexp(whole));
  CHECK_REFUSED(DtypeError, "[norm]", norm(whole));
  CHECK_REFUSED(DtypeError, "[max]", max(flags));
  CHECK_REFUSED(DtypeError, "[argmin]", argmin(flags));
  CHECK_REFUSED(DtypeError, "[cumsum]", cumsum(flags, 0));
  CHECK_REFUSED(DtypeError, "[any]", any(x));
  CHECK_REFUSED(DtypeError, "[all]", all(whole));
  const Tensor undefined;
  CHECK_REFUSED(GraphError, "[sum]", sum(undefined));
  CHECK_REFUSED(GraphError, "[sum_to]", sum_to(undefined, {}));
  CHECK_REFUSED(GraphError, "[mean]", mean(undefined));
  CHECK_REFUSED(GraphError, "[min]", min(undefined));
  CHECK_REFUSED(GraphError, "[argmax]", argmax(undefined));
  CHECK_REFUSED(GraphError, "[cumsum]", cumsum(undefined, 0));
}
