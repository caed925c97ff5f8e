// Initialisers: the numbers they draw, their bounds and spreads, what they refuse.
#include "softtape/nn/init.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/shape.hpp"
#include "support/compare.hpp"

using namespace softtape;
using test_support::kNaN;

namespace {

const TensorOptions kDoubleLeaf{.dtype = DType::float64, .requires_grad = true};

// What f makes of a weight, over what a generator of the same seed draws.
double ratio(const std::function<void(Tensor&, Rng&)>& f, const Shape& shape,
             const std::function<double(Rng&)>& draw) {
  Rng rng(7), same(7);
  Tensor x = zeros(shape, kDoubleLeaf);
  f(x, rng);
  const auto numbers = x.to_vector();
  const double first = numbers[0] / draw(same);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    CHECK(numbers[i] / draw(same) == doctest::Approx(first).epsilon(1e-12));
  }
  return first;
}

double symmetric(Rng& rng) { return 2 * rng.random() - 1; }
double standard(Rng& rng) { return rng.standard_normal(); }

}  // namespace

TEST_CASE("init: fans of (out, in, ...) weights") {
  CHECK(init::fans({5, 3}).in == 3);
  CHECK(init::fans({5, 3}).out == 5);
  CHECK(init::fans({5, 3, 2, 2}).in == 12);
  CHECK(init::fans({5, 3, 2, 2}).out == 20);
  CHECK_THROWS_SAYING(ShapeError, "fans", "rank 2 or more: got (3,)", init::fans({3}));
}

TEST_CASE("init: bounds and spreads, drawn from NumPy's streams") {
  const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-12); };
  const Shape shape{5, 3};
  CHECK(ratio([](Tensor& x, Rng& r) { init::xavier_uniform_(x, r); }, shape, symmetric) ==
        near(0.8660254037844386));
  CHECK(ratio([](Tensor& x, Rng& r) { init::xavier_normal_(x, r); }, shape, standard) == near(0.5));
  CHECK(ratio([](Tensor& x, Rng& r) { init::xavier_normal_(x, r, {.gain = 3}); }, shape,
              standard) == near(1.5));
  CHECK(ratio([](Tensor& x, Rng& r) { init::kaiming_uniform_(x, r); }, shape, symmetric) ==
        near(std::sqrt(2.0)));
  CHECK(ratio([](Tensor& x, Rng& r) { init::kaiming_normal_(x, r); }, shape, standard) ==
        near(std::sqrt(2.0 / 3)));
  CHECK(ratio([](Tensor& x, Rng& r) { init::kaiming_normal_(x, r, {.fan = init::Fan::out}); },
              shape, standard) == near(std::sqrt(2.0 / 5)));
  CHECK(ratio([](Tensor& x, Rng& r) { init::linear_(x, r, 4); }, Shape{6}, symmetric) == near(0.5));
  CHECK(ratio([](Tensor& x, Rng& r) { init::normal_(x, r, {.std = 0.1}); }, Shape{6}, standard) ==
        near(0.1));
  CHECK(ratio([](Tensor& x, Rng& r) { init::uniform_(x, r, {.low = 0, .high = 3}); }, Shape{6},
              [](Rng& r) { return r.random(); }) == near(3));
}

TEST_CASE("init: works on leaves in place, outside NoGrad too") {
  Rng rng(1);
  Tensor x = zeros({2, 2}, {.requires_grad = true});
  const auto version = x.version();
  CHECK(&init::normal_(x, rng) == &x);
  CHECK(x.version() == version + 1);
  CHECK(x.requires_grad());
  CHECK(grad_enabled());
  Tensor none = zeros({0, 3}, kDoubleLeaf);
  CHECK(init::xavier_uniform_(none, rng).numel() == 0);
  CHECK(init::orthogonal_(none, rng).numel() == 0);
}

TEST_CASE("init: orthogonal rows or columns, whichever are fewer") {
  Rng rng(3);
  for (const Shape& shape : {Shape{4, 4}, Shape{5, 3}, Shape{3, 5}, Shape{2, 2, 3}, Shape{1, 1}}) {
    Tensor x = zeros(shape, kDoubleLeaf);
    init::orthogonal_(x, rng, {.gain = 2});
    const Tensor m = reshape(x.detach(), {shape[0], -1});
    const bool tall = m.dim(0) > m.dim(1);
    const Tensor gram = matmul(m, m, {.transpose_a = tall, .transpose_b = !tall});
    CHECK_NUMBERS(gram, mul(eye(gram.dim(0), {.dtype = DType::float64}), 4), 0, 1e-14);
  }
}

TEST_CASE("init: orthogonal agrees with NumPy") {
  // a = default_rng(11).standard_normal((3, 2)); q, r = numpy.linalg.qr(a); q * sign(diag(r))
  Rng rng(11);
  Tensor x = zeros({3, 2}, kDoubleLeaf);
  init::orthogonal_(x, rng);
  CHECK_NUMBERS(x,
                {{0.02711750923802425, 0.9073525015765225},
                 {0.9712985473401368, -0.12312154928719354},
                 {-0.2363128702116446, -0.40193596751715094}},
                1e-13);
}

TEST_CASE("init: refused before anything is drawn") {
  Rng rng(1);
  const RngState before = rng.state();
  Tensor x = zeros({2, 2});
  Tensor vector = zeros({2});
  Tensor whole = tensor({{1, 2}});
  Tensor computed = mul(ones({2, 2}, {.requires_grad = true}), 2);
  CHECK_THROWS_AS(init::normal_(x, rng, {.std = -1}), ValueError);
  CHECK_THROWS_AS(init::uniform_(x, rng, {.low = 1, .high = 0}), ValueError);
  CHECK_THROWS_SAYING(ValueError, "xavier_uniform_", "gain",
                      init::xavier_uniform_(x, rng, {.gain = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "kaiming_normal_", "gain",
                      init::kaiming_normal_(x, rng, {.gain = -1}));
  CHECK_THROWS_SAYING(ValueError, "orthogonal_", "gain", init::orthogonal_(x, rng, {.gain = kNaN}));
  CHECK_THROWS_SAYING(ValueError, "linear_", "fan_in must be positive", init::linear_(x, rng, 0));
  CHECK_THROWS_AS(init::xavier_normal_(vector, rng), ShapeError);
  CHECK_THROWS_AS(init::orthogonal_(vector, rng), ShapeError);
  CHECK_THROWS_SAYING(DtypeError, "normal_", "int64", init::normal_(whole, rng));
  CHECK_THROWS_SAYING(GraphError, "normal_", "leaf", init::normal_(computed, rng));
  CHECK_THROWS_SAYING(GraphError, "orthogonal_", "leaf", init::orthogonal_(computed, rng));
  CHECK(rng.state() == before);
  CHECK_NUMBERS(x, {{0, 0}, {0, 0}});
}
