// Layer norm and RMS norm against PyTorch and long double, to second order; edges and errors.
#include "softtape/ops/normalize.hpp"

#include "golden/reduce_loss_golden.hpp"
#include "ops/numbers.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/study/gradcheck.hpp"

using namespace softtape;
using namespace ops_test;

namespace {

// One row by the definition, in long double.
std::vector<double> normalized(const std::vector<long double>& x, bool centred, long double eps) {
  const auto n = static_cast<long double>(x.size());
  long double mean = 0;
  for (const long double v : x) mean += centred ? v / n : 0;
  long double var = 0;
  for (const long double v : x) var += (v - mean) * (v - mean) / n;
  std::vector<double> y;
  for (const long double v : x) y.push_back(static_cast<double>((v - mean) / std::sqrt(var + eps)));
  return y;
}

}  // namespace

TEST_CASE("layer norm is PyTorch's, value and gradients, fused and under create_graph") {
  namespace g = golden::layer_norm;
  const Tensor x = leaf(g::x, {2, 3, 5});
  const Tensor weight = leaf(g::weight, {5});
  const Tensor bias = leaf(g::bias, {5});
  const Tensor y = layer_norm(x, weight, bias, {.eps = 1e-3});
  check_close(y, g::y, 1e-14);
  const Tensor gy = doubles(g::gy, {2, 3, 5});
  for (const bool again : {false, true}) {
    check_close(gradient(y, x, gy, again), g::gx, 1e-13);
    check_close(gradient(y, weight, gy, again), g::gw, 1e-13);
    check_close(gradient(y, bias, gy, again), g::gb, 1e-13);
  }
}

TEST_CASE("rows of every length match the definition") {
  Rng rng(5);
  for (const std::int64_t d : {1, 2, 15, 16, 17, 64, 130}) {
    const Tensor x = randn(rng, {3, d}, kDouble);
    const Tensor row = x[1];
    const auto numbers = row.to_vector<long double>();
    check_close(layer_norm(x)[1], normalized(numbers, true, 1e-5L), 1e-13);
    check_close(rms_norm(x)[1], normalized(numbers, false, 1e-6L), 1e-13);
    check_close(layer_norm(row, {}, {}, {.eps = 2}), normalized(numbers, true, 2), 1e-13);
    const Tensor small = to(x, DType::float32);
    check_close(layer_norm(small)[1], normalized(small[1].to_vector<long double>(), true, 1e-5L),
                2e-6);
    check_close(rms_norm(small)[1], normalized(small[1].to_vector<long double>(), false, 1e-6L),
                2e-6);
  }
}

TEST_CASE("gradients to second order, with and without weight and bias") {
  Rng rng(6);
  const Tensor x = randn(rng, {2, 3, 4}, kDouble);
  const Tensor w = randn(rng, {4}, kDouble);
  const Tensor b = randn(rng, {4}, kDouble);
  const GradcheckOptions second{.order = 2};
  using In = std::span<const Tensor>;
  CHECK(gradcheck([](const Tensor& t) { return layer_norm(t); }, {x}, second));
  CHECK(gradcheck([](In in) { return layer_norm(in[0], in[1], in[2]); }, {x, w, b}, second));
  CHECK(gradcheck([](In in) { return layer_norm(in[0], {}, in[1]); }, {x, b}, second));
  CHECK(gradcheck([](In in) { return layer_norm(in[0], in[1]); }, {x, w}, second));
  CHECK(gradcheck([](const Tensor& t) { return rms_norm(t); }, {x}, second));
  CHECK(gradcheck([](In in) { return rms_norm(in[0], in[1]); }, {x, w}, second));
}

TEST_CASE("the fused gradients are those of the composed rule, over many rows") {
  Rng rng(8);
  Tensor x = randn(rng, {1000, 33}, kDouble);
  Tensor w = randn(rng, {33}, kDouble);
  Tensor b = randn(rng, {33}, kDouble);
  for (Tensor* t : {&x, &w, &b}) t->requires_grad_();
  const Tensor gy = randn(rng, {1000, 33}, kDouble);
  for (const Tensor& y : {layer_norm(x, w, b), rms_norm(add(x, b), w)}) {
    for (const Tensor& t : {x, w, b}) {
      check_close(gradient(y, t, gy, false), gradient(y, t, gy, true).to_vector(), 1e-11);
    }
  }
}

TEST_CASE("results are bit-identical at 1 and 2 threads") {
  Rng rng(9);
  Tensor x = randn(rng, {3000, 64}, {.dtype = DType::float32});
  Tensor w = randn(rng, {64}, {.dtype = DType::float32});
  x.requires_grad_();
  w.requires_grad_();
  const auto run = [&] {
    const Tensor y = layer_norm(x, w);
    auto out = grad(sum(square(y)), {x, w});
    out.push_back(y);
    return out;
  };
  const int threads = num_threads();
  set_num_threads(1);
  const auto one = run();
  set_num_threads(2);
  const auto two = run();
  set_num_threads(threads);
  for (std::size_t i = 0; i < one.size(); ++i) CHECK_SAME(one[i], two[i]);
}

TEST_CASE("a constant row gives exactly the bias, and finite gradients") {
  const Tensor x = leaf({5, 5, 5, 5}, {1, 4});
  const Tensor weight = leaf({1, 2, 1, 1}, {4});
  const Tensor bias = leaf({0.1, 0.2, 0.3, 0.4}, {4});
  const Tensor y = layer_norm(x, weight, bias);
  CHECK(y.to_vector() == bias.to_vector());
  const Tensor gy = doubles({1, 0, 0, 0}, {1, 4});
  for (const bool again : {false, true}) {
    check_close(gradient(y, x, gy, again),
                {237.17082451262843, -79.05694150420948, -79.05694150420948, -79.05694150420948},
                1e-12);
    CHECK(gradient(y, weight, gy, again).to_vector() == std::vector<double>(4, 0));
    CHECK(gradient(y, bias, gy, again).to_vector() == std::vector<double>{1, 0, 0, 0});
  }
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const double v : {5.1, 1e8 + 3, -1e-30}) {
      CHECK_SAME(layer_norm(full({2, 19}, v, {.dtype = dtype})), zeros({2, 19}, {.dtype = dtype}));
    }
  }
}

TEST_CASE("one feature: the bias, and no gradient for x") {
  const Tensor x = leaf({7, -3}, {2, 1});
  const Tensor weight = leaf({2}, {1});
  const Tensor bias = leaf({0.5}, {1});
  const Tensor y = layer_norm(x, weight, bias);
  CHECK(y.to_vector() == std::vector<double>{0.5, 0.5});
  const Tensor gy = doubles({1, 4}, {2, 1});
  for (const bool again : {false, true}) {
    CHECK(gradient(y, x, gy, again).to_vector() == std::vector<double>{0, 0});
    CHECK(gradient(y, weight, gy, again).to_vector() == std::vector<double>{0});
    CHECK(gradient(y, bias, gy, again).to_vector() == std::vector<double>{5});
  }
}

TEST_CASE("large offsets and large numbers cost no digits") {
  const std::vector<double> small{0, 8, -16, 24, 8};
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor near = tensor(small, {5}, {.dtype = dtype, .requires_grad = true});
    const Tensor far =
        tensor(add(doubles(small), 1e8).to_vector(), {5}, {.dtype = dtype, .requires_grad = true});
    const double tolerance = dtype == DType::float32 ? 1e-6 : 1e-14;
    check_close(layer_norm(far), layer_norm(near).to_vector(), tolerance);
    const Tensor gy = tensor({1.0, -2.0, 0.5, 0.0, 3.0}, {.dtype = dtype});
    for (const bool again : {false, true}) {
      check_close(gradient(layer_norm(far), far, gy, again),
                  gradient(layer_norm(near), near, gy).to_vector(), tolerance);
    }
  }
  const Tensor huge = tensor({1e30, -1e30, 2e30}, {.dtype = DType::float32});
  check_close(layer_norm(huge), normalized({1, -1, 2}, true, 0), 1e-6);
  check_close(rms_norm(huge), normalized({1, -1, 2}, false, 0), 1e-6);
  check_close(rms_norm(doubles({3e200, 4e200})), normalized({3, 4}, false, 0), 1e-14);
}

TEST_CASE("a NaN poisons its own row alone; no rows give no rows") {
  const Tensor x = doubles({1, kNaN, 3, 4}, {2, 2});
  const auto y = layer_norm(x).to_vector();
  CHECK((std::isnan(y[0]) && std::isnan(y[1]) && y[2] < 0 && y[3] > 0));
  Tensor none = zeros({0, 3}, kDouble);
  none.requires_grad_();
  Tensor w = ones({3}, kDouble);
  w.requires_grad_();
  const Tensor z = layer_norm(none, w);
  CHECK(z.shape() == Shape{0, 3});
  CHECK(gradient(z, none).shape() == Shape{0, 3});
  CHECK(gradient(layer_norm(none, w), w).to_vector() == std::vector<double>(3, 0));
}

TEST_CASE("refused norms") {
  const Tensor x = ones({2, 3});
  const Tensor w = ones({3});
  for (const double eps : {0.0, -1e-5, kNaN, kInf}) {
    CHECK_REFUSED(ValueError, "[layer_norm] eps must be positive",
                  layer_norm(x, w, w, {.eps = eps}));
    CHECK_REFUSED(ValueError, "[rms_norm] eps must be positive", rms_norm(x, w, {.eps = eps}));
  }
  CHECK_REFUSED(ValueError, "[layer_norm] eps", layer_norm(x, {}, {}, {.eps = 1e-60}));
  CHECK_REFUSED(ShapeError, "[layer_norm] weight must have", layer_norm(x, ones({2})));
  CHECK_REFUSED(ShapeError, "[layer_norm] bias must have", layer_norm(x, w, ones({1, 3})));
  CHECK_REFUSED(ShapeError, "[rms_norm] weight must have", rms_norm(x, ones({4})));
  CHECK_REFUSED(ShapeError, "[layer_norm] needs a last axis", layer_norm(full({}, 1)));
  CHECK_REFUSED(ShapeError, "[rms_norm] needs a last axis", rms_norm(zeros({3, 0})));
  CHECK_REFUSED(DtypeError, "[layer_norm]", layer_norm(x, ones({3}, kDouble)));
  CHECK_REFUSED(DtypeError, "[rms_norm]", rms_norm(tensor({1, 2})));
  CHECK_REFUSED(GraphError, "[layer_norm]", layer_norm(Tensor()));
}
