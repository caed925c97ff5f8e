// Reductions at their edges: NaN, infinities, ties, nothing to reduce, refused calls.
#include <cmath>

#include "ops/numbers.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"

using namespace softtape;
using namespace ops_test;

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
    numbers[at] = kNaN;
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
  CHECK(std::isnan(logsumexp(doubles({1, kNaN})).item()));
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
  CHECK(std::isnan(var(doubles({1, kNaN})).item()));
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
  CHECK(std::isnan(norm(doubles({kNaN, kInf})).item()));
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
  CHECK_REFUSED(ValueError, "[var] needs more elements", var(x, 0, {.correction = kNaN}));
  for (const double p : {0.0, -1.0, kNaN}) {
    CHECK_REFUSED(ValueError, "[norm] p must be positive", norm(x, {}, {.p = p}));
  }
  const Tensor whole = tensor({1, 2});
  const Tensor flags = tensor({true, false});
  CHECK_REFUSED(DtypeError, "[mean]", mean(whole));
  CHECK_REFUSED(DtypeError, "[var]", var(whole));
  CHECK_REFUSED(DtypeError, "[std]", softtape::std(whole));
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
