// Losses against PyTorch and closed forms, to second order; edges, exact zeros, errors.
#include "softtape/ops/loss.hpp"

#include <optional>
#include <string>

#include "golden/reduce_loss_golden.hpp"
#include "ops/numbers.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/study/gradcheck.hpp"
#include "support/compare.hpp"

using namespace softtape;
using namespace ops_test;

namespace {

Reduction reduction_of(const std::string& name) {
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}

const Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};
const GradcheckOptions kSecond{.order = 2};

}  // namespace

TEST_CASE("cross entropy is PyTorch's in every option, and nll_loss of log_softmax too") {
  namespace g = golden::cross_entropy;
  const Tensor targets = tensor(g::targets);
  for (const auto& c : g::cases) {
    CAPTURE(c.reduction);
    CAPTURE(c.weighted);
    CAPTURE(c.smoothing);
    const Tensor x = leaf(g::logits, {5, 4});
    const Tensor weights = c.weighted ? doubles(g::weights) : Tensor();
    const Reduction reduction = reduction_of(c.reduction);
    const Tensor y = cross_entropy(x, targets,
                                   {.ignore_index = -7,
                                    .label_smoothing = c.smoothing,
                                    .class_weights = weights,
                                    .reduction = reduction});
    check_close(y, c.y, 1e-14);
    const Tensor gy = doubles(c.gy, y.shape());
    for (const bool again : {false, true}) check_close(gradient(y, x, gy, again), c.gx, 1e-14);
    if (c.smoothing > 0) continue;
    const Tensor z =
        nll_loss(log_softmax(x, -1), targets,
                 {.ignore_index = -7, .class_weights = weights, .reduction = reduction});
    check_close(z, c.y, 1e-14);
    check_close(gradient(z, x, gy), c.gx, 1e-14);
  }
}

TEST_CASE("cross entropy: gradients of gradients, leading shapes of any rank") {
  Rng rng(4);
  const Tensor x = randn(rng, {2, 3, 4}, kDouble);
  const Tensor targets = tensor({{0, 1, 3}, {3, -1, 2}});
  const Tensor weights = doubles({0.5, 2, 1.25, 0.75});
  for (const Reduction reduction : kReductions) {
    for (const double smoothing : {0.0, 0.3}) {
      for (const Tensor& w : {Tensor(), weights}) {
        CHECK(gradcheck(
            [&](const Tensor& t) {
              return cross_entropy(t, targets,
                                   {.ignore_index = -1,
                                    .label_smoothing = smoothing,
                                    .class_weights = w,
                                    .reduction = reduction});
            },
            {x}, kSecond));
      }
    }
    CHECK(gradcheck(
        [&](const Tensor& t) {
          return nll_loss(square(t), targets, {.ignore_index = -1, .reduction = reduction});
        },
        {x}, kSecond));
  }
  CHECK(cross_entropy(x, targets, {.ignore_index = -1, .reduction = Reduction::none}).shape() ==
        Shape{2, 3});
  // A single row: rank 1 logits and one target.
  CHECK(cross_entropy(x[0][1], tensor(2)).item() ==
        doctest::Approx(-log_softmax(x[0][1], 0)[2].item()).epsilon(1e-14));
  CHECK(gradcheck([](const Tensor& t) { return cross_entropy(t, tensor(2)); }, {x[0][1]}, kSecond));
}

TEST_CASE("rows of every width, in float32, against log_softmax") {
  Rng rng(6);
  for (const std::int64_t classes : {1, 2, 15, 16, 17, 33, 130}) {
    Tensor x = mul(randn(rng, {40, classes}, kDouble), 3);
    x.requires_grad_();
    const Tensor targets = randint(rng, 0, classes, {40});
    const Tensor y = cross_entropy(x, targets);
    const Tensor composed = neg(mean(gather(log_softmax(x, -1), -1, reshape(targets, {40, 1}))));
    CHECK(y.item() == doctest::Approx(composed.item()).epsilon(1e-13));
    check_close(gradient(y, x), gradient(composed, x).to_vector(), 1e-14);
    Tensor f = to(x.detach(), DType::float32);
    f.requires_grad_();
    const Tensor z = cross_entropy(f, targets);
    CHECK(z.item() == doctest::Approx(y.item()).epsilon(1e-5));
    check_close(gradient(z, f), gradient(cross_entropy(x, targets), x).to_vector(), 1e-6);
  }
}

TEST_CASE("cross entropy: hard rows") {
  const auto loss_and_gradient = [](const std::vector<double>& logits, std::int64_t target,
                                    double smoothing = 0) {
    const Tensor x = leaf(logits, {1, static_cast<std::int64_t>(logits.size())});
    const Tensor y = cross_entropy(x, tensor({target}), {.label_smoothing = smoothing});
    const auto again = gradient(y, x, ones({}, kDouble), true);
    return std::pair(y.item(), std::pair(gradient(y, x), again));
  };
  struct Row {
    std::vector<double> logits;
    std::int64_t target;
    double smoothing;
    double loss;
    std::vector<double> gradient;
  };
  const Row rows[] = {
      {{3e12, 3e12, 3e12}, 0, 0, 1.0986122886681098, {-2. / 3, 1. / 3, 1. / 3}},
      {{0, -kInf, 1}, 1, 0, kInf, {0.2689414213699951, -1, 0.7310585786300049}},
      {{0, -kInf, 1}, 0, 0, 1.3132616875182228, {-0.7310585786300049, 0, 0.7310585786300049}},
      {{-kInf, -kInf}, 1, 0, kInf, {0, -1}},
      {{2, 0}, 0, 0, 0.1269280110429725, {-0.11920292202211755, 0.11920292202211755}},
      {{0.7, -0.2, 0.1, 1.5},
       3,
       0,
       0.6305318500313727,
       {0.23918167962594591, 0.09724401410170581, 0.13126568891923265, -0.46769138264688437}},
      {{1, -0.5, 0.25},
       0,
       0.1,
       0.6029757438553098,
       {-0.3435356696765207, 0.09826831381358102, 0.24526735586293968}},
      {{1, -kInf, 0},
       0,
       0.1,
       kInf,
       {0.7310585786300049 - 0.9 - 0.1 / 3, -0.1 / 3, 0.2689414213699951 - 0.1 / 3}},
      {{1e4, 0}, 1, 0, 1e4, {1, -1}},
      {{7}, 0, 0, 0, {0}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.loss);
    const auto [loss, gradients] = loss_and_gradient(row.logits, row.target, row.smoothing);
    CHECK((loss == row.loss || std::abs(loss / row.loss - 1) < 1e-15));
    check_close(gradients.first, row.gradient, 1e-15);
    check_close(gradients.second, row.gradient, 1e-15);
  }
  for (const double bad : {kInf, kNaN}) {
    const auto [loss, gradients] = loss_and_gradient({1, bad, 0}, 0);
    CHECK(std::isnan(loss));
    for (const double g : gradients.first.to_vector()) CHECK(std::isnan(g));
  }
}

TEST_CASE("a target that is nearly certain keeps its digits in float32") {
  Tensor x = tensor({{20.0, 0.0, 1.0}}, {.dtype = DType::float32, .requires_grad = true});
  const Tensor y = cross_entropy(x, tensor({0}));
  const double rest = (std::exp(-20.0) + std::exp(-19.0)) / (1 + std::exp(-20.0) + std::exp(-19.0));
  CHECK(y.item() == doctest::Approx(std::log1p(std::exp(-20.0) + std::exp(-19.0))).epsilon(1e-6));
  const auto g = gradient(y, x).to_vector();
  CHECK(g[0] == doctest::Approx(-rest).epsilon(1e-6));
  CHECK(g[0] + g[1] + g[2] == doctest::Approx(0).epsilon(1e-14));
}

TEST_CASE("ignored targets, and weights of 0, cost nothing and pass nothing") {
  const Tensor x = leaf({0.5, -0.25, 1, 2, 0, -1, 0.1, 0.2, 0.3}, {3, 3});
  const Tensor targets = tensor({2, -1, 0});
  const CrossEntropyOptions skip{.ignore_index = -1};
  const Tensor y = cross_entropy(x, targets, skip);
  CHECK(y.item() == doctest::Approx(0.9200622253208643).epsilon(1e-14));
  check_close(gradient(y, x),
              {0.16020055451330653, 0.0756733836826496, -0.23587393819595612, 0, 0, 0,
               -0.34969519732213633, 0.1661124967666736, 0.18358270055546272},
              1e-14);
  CHECK(cross_entropy_count(targets, -1) == 2);
  CHECK(cross_entropy_count(targets) == 3);

  // Whatever stands in the ignored row.
  const Tensor bad = leaf({0.5, -0.25, 1, kNaN, kInf, -kInf, 0.1, 0.2, 0.3}, {3, 3});
  const Tensor z = cross_entropy(bad, targets, skip);
  CHECK(z.item() == y.item());
  for (const bool again : {false, true}) {
    check_close(gradient(z, bad, ones({}, kDouble), again),
                gradient(cross_entropy(x, targets, skip), x).to_vector(), 1e-15);
  }

  const Tensor none = tensor({-1, -1, -1});
  for (const Reduction reduction : kReductions) {
    for (const double smoothing : {0.0, 0.5}) {
      const Tensor zero = cross_entropy(
          bad, none, {.ignore_index = -1, .label_smoothing = smoothing, .reduction = reduction});
      CHECK_SAME(sum(zero), zeros({}, kDouble));
      CHECK_SAME(gradient(zero, bad), zeros({3, 3}, kDouble));
    }
    const Tensor zero = nll_loss(bad, none, {.ignore_index = -1, .reduction = reduction});
    CHECK_SAME(sum(zero), zeros({}, kDouble));
    CHECK_SAME(gradient(zero, bad), zeros({3, 3}, kDouble));
  }
  CHECK(cross_entropy_count(none, -1) == 0);

  const Tensor off = doubles({0, 0, 0});
  const Tensor zero = cross_entropy(x, tensor({0, 1, 2}), {.class_weights = off});
  CHECK(zero.item() == 0);
  CHECK_SAME(gradient(zero, x), zeros({3, 3}, kDouble));
}

// The gradient that reads the sums of the forward pass against the one that is itself recorded.
TEST_CASE("cross entropy: kept sums give the gradient, again and again, in every option") {
  Rng rng(4);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double bound = dtype == DType::float32 ? 1e-7 : 1e-15;
    for (const std::int64_t classes : {1, 5, 16, 70}) {
      const std::int64_t rows = 300;
      const Tensor x =
          (randn(rng, {rows, classes}, {.dtype = dtype}) * 4).detach().requires_grad_();
      const Tensor targets = randint(rng, 0, classes, {rows});
      const Tensor weights = abs(randn(rng, {classes}, {.dtype = dtype})).detach();
      const std::int64_t some = targets.data<std::int64_t>()[0];
      for (const double smoothing : {0.0, 0.3}) {
        for (const bool weighted : {false, true}) {
          for (const Reduction reduction : kReductions) {
            CAPTURE(classes);
            CAPTURE(smoothing);
            CAPTURE(weighted);
            const Tensor y =
                cross_entropy(x, targets,
                              {.ignore_index = classes > 1 ? std::optional(some) : std::nullopt,
                               .label_smoothing = smoothing,
                               .class_weights = weighted ? weights : Tensor(),
                               .reduction = reduction});
            const Tensor up = randn(rng, y.shape(), {.dtype = dtype});
            const GradOptions kept{.grad_outputs = {up}, .retain_graph = true};
            const Tensor once = grad({y}, {x}, kept)[0];
            CHECK(test_support::same_bits(once, grad({y}, {x}, kept)[0]));
            const Tensor recorded = grad({y}, {x}, {.grad_outputs = {up}, .create_graph = true})[0];
            CHECK(allclose(once, recorded.detach(), {.rtol = 40 * bound, .atol = 40 * bound}));
          }
        }
      }
    }
  }
}

TEST_CASE("cross entropy: an infinite upstream gradient keeps its signs") {
  const Tensor x = leaf({0, 0.5, -1}, {1, 3});
  for (const double smoothing : {0.0, 0.2}) {
    const Tensor y = cross_entropy(x, tensor({0}), {.label_smoothing = smoothing});
    for (const double up : {kInf, -kInf}) {
      CHECK_SAME(gradient(y, x, full({}, up, kDouble)), reshape(doubles({-up, up, up}), {1, 3}));
    }
  }
}

TEST_CASE("an upstream gradient of 0 gives exactly 0") {
  const Tensor x = leaf({kNaN, 1, 2, 3}, {2, 2});
  const Tensor targets = tensor({0, 1});
  const Tensor y = cross_entropy(x, targets, {.reduction = Reduction::none});
  const auto g = gradient(y, x, doubles({0, 1})).to_vector();
  CHECK((g[0] == 0 && g[1] == 0 && g[2] > 0));
  const Tensor t = doubles({0, 1, 0, 1}, {2, 2});
  for (const Tensor& z : {mse_loss(x, t, {.reduction = Reduction::none}),
                          binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::none})}) {
    for (const bool again : {false, true}) {
      CHECK(gradient(z, x, doubles({0, 0, 0, 1}, {2, 2}), again).to_vector()[0] == 0);
    }
  }
}

TEST_CASE("mse_loss: values, gradients of both sides, no broadcasting") {
  const Tensor p = leaf({1, 2, 4}, {3, 1});
  const Tensor t = leaf({0, 4, 4}, {3, 1});
  CHECK(mse_loss(p, p).item() == 0);
  CHECK(mse_loss(p, t).item() == 5. / 3);
  CHECK(mse_loss(p, t, {.reduction = Reduction::sum}).item() == 5);
  CHECK_SAME(mse_loss(p, t, {.reduction = Reduction::none}), doubles({1, 4, 0}, {3, 1}));
  check_close(gradient(mse_loss(p, t), p), {2. / 3, -4. / 3, 0}, 1e-15);
  check_close(gradient(mse_loss(p, t), t), {-2. / 3, 4. / 3, 0}, 1e-15);
  CHECK_SAME(gradient(mse_loss(p, p), p), zeros({3, 1}, kDouble));
  using In = std::span<const Tensor>;
  for (const Reduction reduction : kReductions) {
    CHECK(gradcheck([&](In in) { return mse_loss(in[0], in[1], {.reduction = reduction}); }, {p, t},
                    kSecond));
  }
  CHECK_REFUSED(ShapeError, "[mse_loss] shapes must be equal", mse_loss(p, reshape(t, {1, 3})));
}

TEST_CASE("binary cross entropy matches PyTorch's formula, to second order") {
  namespace g = golden::bce;
  using In = std::span<const Tensor>;
  for (const auto& c : g::cases) {
    const Tensor z = leaf(g::logits, {2, 3});
    const Tensor t = leaf(g::targets, {2, 3});
    const BceOptions options{.pos_weight = c.pos_weight, .reduction = reduction_of(c.reduction)};
    const Tensor y = binary_cross_entropy_with_logits(z, t, options);
    check_close(y, c.y, 1e-14);
    const Tensor gy = doubles(c.gy, y.shape());
    for (const bool again : {false, true}) {
      check_close(gradient(y, z, gy, again), c.gz, 1e-14);
      check_close(gradient(y, t, gy, again), c.gt, 1e-14);
    }
    CHECK(gradcheck([&](In in) { return binary_cross_entropy_with_logits(in[0], in[1], options); },
                    {z, t}, kSecond));
  }
}

TEST_CASE("binary cross entropy is finite wherever it has a limit") {
  const Tensor z = leaf({1e4, -1e4, kInf, -kInf, 800, -800}, {6});
  const Tensor t = doubles({1, 0, 1, 0, 0, 1});
  const Tensor y = binary_cross_entropy_with_logits(z, t, {.reduction = Reduction::none});
  check_close(y, {0, 0, 0, 0, 800, 800}, 1e-15);
  for (const bool again : {false, true}) {
    check_close(gradient(y, z, ones({6}, kDouble), again), {0, 0, 0, 0, 1, -1}, 1e-15);
  }
  CHECK(std::isnan(binary_cross_entropy_with_logits(doubles({kNaN}), doubles({1})).item()));
  // Far in the tail the loss is e^-z.
  CHECK(binary_cross_entropy_with_logits(doubles({50}), doubles({1})).item() ==
        doctest::Approx(std::exp(-50.0)).epsilon(1e-14));
}

TEST_CASE("results are bit-identical at 1 and 2 threads") {
  Rng rng(11);
  Tensor x = randn(rng, {4000, 64}, {.dtype = DType::float32});
  x.requires_grad_();
  const Tensor targets = randint(rng, 0, 64, {4000});
  const Tensor soft = rand(rng, {4000, 64}, {.dtype = DType::float32});
  const auto run = [&] {
    std::vector<Tensor> out;
    for (const Tensor& y : {cross_entropy(x, targets), mse_loss(x, soft),
                            binary_cross_entropy_with_logits(x, soft)}) {
      out.push_back(y);
      out.push_back(grad(y, x).front());
    }
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

TEST_CASE("the mean of nothing is refused, the sum is 0") {
  const Tensor x = zeros({0, 3});
  const Tensor none = zeros({0}, {.dtype = DType::int64});
  CHECK_REFUSED(ValueError, "[cross_entropy] the mean needs", cross_entropy(x, none));
  CHECK_REFUSED(ValueError, "[nll_loss] the mean needs", nll_loss(x, none));
  CHECK_REFUSED(ValueError, "[mse_loss] the mean needs", mse_loss(x, x));
  CHECK_REFUSED(ValueError, "[binary_cross_entropy_with_logits] the mean needs",
                binary_cross_entropy_with_logits(x, x));
  CHECK(cross_entropy(x, none, {.reduction = Reduction::sum}).item() == 0);
  CHECK(cross_entropy(x, none, {.reduction = Reduction::none}).shape() == Shape{0});
  CHECK(mse_loss(x, x, {.reduction = Reduction::sum}).item() == 0);
}

TEST_CASE("refused losses") {
  const Tensor x = ones({2, 3});
  const Tensor ok = tensor({0, 1});
  for (const std::int64_t bad : {3, -1, -100}) {
    const std::string got = "got " + std::to_string(bad) + " at position 1";
    try {
      cross_entropy(x, tensor({std::int64_t{0}, bad}));
      FAIL("a bad target was taken");
    } catch (const ValueError& e) {
      CHECK(std::string(e.what()).find(got) != std::string::npos);
      CHECK(std::string(e.what()).find("3 classes") != std::string::npos);
    }
    CHECK_REFUSED(ValueError, "[nll_loss] a target must be one of 3 classes",
                  nll_loss(x, tensor({bad, std::int64_t{0}})));
  }
  CHECK_REFUSED(ValueError, "[cross_entropy] a target",
                cross_entropy(x, tensor({0, 9}), {.ignore_index = -1}));
  for (const double e : {-0.1, 1.1, kNaN}) {
    CHECK_REFUSED(ValueError, "[cross_entropy] label_smoothing",
                  cross_entropy(x, ok, {.label_smoothing = e}));
  }
  CHECK_REFUSED(ShapeError, "[cross_entropy] targets must have",
                cross_entropy(x, tensor({{0}, {1}})));
  CHECK_REFUSED(ShapeError, "[cross_entropy] targets must have",
                cross_entropy(x, tensor({0, 1, 2})));
  CHECK_REFUSED(ShapeError, "[cross_entropy] targets must have",
                cross_entropy(full({}, 1), tensor(0)));
  CHECK_REFUSED(DtypeError, "[cross_entropy] targets must be", cross_entropy(x, ones({2})));
  CHECK_REFUSED(DtypeError, "[cross_entropy]", cross_entropy(tensor({{1, 2}}), tensor({0})));
  CHECK_REFUSED(DtypeError, "[cross_entropy_count]", cross_entropy_count(ones({2})));
  const auto weighted = [&](const Tensor& w) { return cross_entropy(x, ok, {.class_weights = w}); };
  CHECK_REFUSED(ShapeError, "[cross_entropy] class_weights must have", weighted(ones({2})));
  CHECK_REFUSED(DtypeError, "[cross_entropy]", weighted(ones({3}, kDouble)));
  CHECK_REFUSED(ValueError, "[cross_entropy] class_weights must be", weighted(full({3}, -1)));
  CHECK_REFUSED(ValueError, "[cross_entropy] class_weights must be", weighted(full({3}, kInf)));
  CHECK_REFUSED(GraphError, "[cross_entropy] class_weights are constants",
                weighted(ones({3}, {.requires_grad = true})));
  CHECK_REFUSED(GraphError, "[cross_entropy]", cross_entropy(Tensor(), ok));
  CHECK_REFUSED(GraphError, "[nll_loss]", nll_loss(x, Tensor()));
  CHECK_REFUSED(GraphError, "[mse_loss]", mse_loss(x, Tensor()));
  CHECK_REFUSED(DtypeError, "[mse_loss]", mse_loss(x, ones({2, 3}, kDouble)));
  CHECK_REFUSED(DtypeError, "[mse_loss]", mse_loss(ok, ok));
  for (const double w : {0.0, -1.0, kNaN, kInf}) {
    CHECK_REFUSED(ValueError, "[binary_cross_entropy_with_logits] pos_weight",
                  binary_cross_entropy_with_logits(x, x, {.pos_weight = w}));
  }
  CHECK_REFUSED(ShapeError, "[binary_cross_entropy_with_logits] shapes must be equal",
                binary_cross_entropy_with_logits(x, ones({2, 1})));
}
