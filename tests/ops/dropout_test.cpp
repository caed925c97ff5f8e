// Dropout: which draws it makes, exact zeros and identities, gradients, errors.
#include "softtape/ops/dropout.hpp"

#include "ops/numbers.hpp"
#include "softtape/ops/elementwise.hpp"

using namespace softtape;
using namespace ops_test;

TEST_CASE("kept where NumPy's float64 draw is at least p, whatever the dtype") {
  Rng draws(42);
  std::vector<double> uniform(1500);
  draws.random(std::span<double>(uniform));
  for (const DType dtype : {DType::float64, DType::float32}) {
    Rng rng(42);
    const Tensor x = full({15, 100}, 3, {.dtype = dtype});
    const auto y = dropout(x, 0.25, rng).to_vector();
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == (uniform[i] >= 0.25 ? 4 : 0));
    CHECK(rng.next_uint64() == Rng(draws).next_uint64());
  }
}

TEST_CASE("linear in x, and the gradient passes where x passed") {
  check_linear(
      [](const Tensor& x) {
        Rng rng(1);
        return dropout(x, 0.5, rng);
      },
      {7, 9});
}

TEST_CASE("p = 1 gives zeros, forward and back") {
  Rng rng(0);
  const Tensor x = leaf({1, -2, kInf, kNaN}, {4});
  const Tensor y = dropout(x, 1, rng);
  CHECK(y.to_vector() == std::vector<double>(4, 0));
  CHECK(gradient(y, x).to_vector() == std::vector<double>(4, 0));
}

TEST_CASE("p = 0, or not training, is x itself and draws nothing") {
  Rng rng(3);
  const RngState before = rng.state();
  const Tensor x = doubles({0.1, -3.5, 1e300});
  CHECK(dropout(x, 0, rng).is_same(x));
  CHECK(dropout(x, 0.9, rng, {.training = false}).is_same(x));
  CHECK(rng.state() == before);
}

TEST_CASE("dropped elements are exact zeros, whatever x or the upstream gradient hold") {
  Rng rng(5);
  const Tensor x = leaf(std::vector<double>(64, kInf), {64});
  const Tensor y = dropout(x, 0.5, rng);
  const auto g = gradient(y, x, full({64}, kInf, kDouble)).to_vector();
  const auto values = y.to_vector();
  int dropped = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK((values[i] == 0 || values[i] == kInf));
    CHECK(g[i] == values[i]);
    dropped += values[i] == 0;
  }
  CHECK((dropped > 10 && dropped < 54));
}

TEST_CASE("refused dropout") {
  const Tensor x = ones({3});
  Rng rng(0);
  const RngState before = rng.state();
  for (const double p : {-0.1, 1.5, kNaN}) {
    CHECK_REFUSED(ValueError, "[dropout] p must lie in [0, 1]", dropout(x, p, rng));
    CHECK_REFUSED(ValueError, "[dropout] p must lie in [0, 1]",
                  dropout(x, p, rng, {.training = false}));
  }
  CHECK_REFUSED(DtypeError, "[dropout]", dropout(tensor({1, 2}), 0.5, rng));
  CHECK_REFUSED(GraphError, "[dropout]", dropout(Tensor(), 0.5, rng));
  CHECK(rng.state() == before);
}
