// Results are bit-identical at any thread count and from run to run, on sizes of several chunks.
#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/normalize.hpp"
#include "softtape/ops/softmax.hpp"
#include "softtape/ops/sort.hpp"
#include "support/threads.hpp"

using namespace softtape;
using namespace test_support;

namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// The value and the gradients of all inputs under random weights.
std::vector<Tensor> results(const Function& f, const std::vector<Tensor>& inputs, int threads) {
  const ThreadCount count(threads);
  std::vector<Tensor> x;
  for (const Tensor& t : inputs) x.push_back(t.clone().requires_grad_());
  const Tensor y = f(x);
  Rng rng(99);
  const Tensor w = randn(rng, y.shape(), {.dtype = y.dtype()});
  std::vector<Tensor> all = grad(y, x, {.grad_outputs = {w}});
  all.push_back(y.detach());
  return all;
}

void check_identical(const char* name, const std::vector<Shape>& shapes, const Function& f) {
  CAPTURE(name);
  for (const DType dtype : kFloats) {
    Rng rng(21);
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) inputs.push_back(randn(rng, shape, {.dtype = dtype}));
    const auto one = results(f, inputs, 1);
    for (const int threads : {1, 2, 3}) {
      const auto again = results(f, inputs, threads);
      for (std::size_t i = 0; i < one.size(); ++i) {
        CAPTURE(i);
        CHECK(same_bits(again[i], one[i]));
      }
    }
  }
}

Tensor ids(std::int64_t classes, const Shape& shape) {
  Rng rng(22);
  return randint(rng, 0, classes, shape);
}

}  // namespace

TEST_CASE("products are bit-identical at any thread count [thread]") {
  const LeakGuard guard;
  check_identical("matmul", {{150, 90}, {90, 130}},
                  [](const auto& x) { return matmul(x[0], x[1]); });
  check_identical("matmul, transposed", {{90, 150}, {130, 90}}, [](const auto& x) {
    return matmul(x[0], x[1], {.transpose_a = true, .transpose_b = true});
  });
  check_identical("matmul, batch", {{6, 60, 40}, {6, 40, 50}},
                  [](const auto& x) { return matmul(x[0], x[1]); });
  check_identical("matmul, one weight", {{10, 60, 40}, {40, 50}},
                  [](const auto& x) { return matmul(x[0], x[1]); });
  check_identical("matmul, long sum", {{3, 20000}, {20000, 5}},
                  [](const auto& x) { return matmul(x[0], x[1]); });
}

TEST_CASE("rows are bit-identical at any thread count [thread]") {
  const LeakGuard guard;
  check_identical("softmax", {{700, 130}}, [](const auto& x) { return softmax(x[0]); });
  check_identical("softmax, narrow", {{30000, 3}}, [](const auto& x) { return softmax(x[0]); });
  check_identical("softmax, causal", {{4, 150, 150}},
                  [](const auto& x) { return softmax(x[0], {.mask = Mask::causal()}); });
  check_identical("log_softmax", {{700, 130}}, [](const auto& x) { return log_softmax(x[0]); });
  check_identical("layer_norm", {{2000, 64}, {64}, {64}},
                  [](const auto& x) { return layer_norm(x[0], x[1], x[2]); });
  check_identical("rms_norm", {{2000, 64}, {64}},
                  [](const auto& x) { return rms_norm(x[0], x[1]); });
  const Tensor targets = ids(97, {1500});
  check_identical("cross_entropy", {{1500, 97}},
                  [&](const auto& x) { return cross_entropy(x[0], targets); });
  check_identical("mse_loss", {{300, 500}, {300, 500}},
                  [](const auto& x) { return mse_loss(x[0], x[1]); });
}

TEST_CASE("reductions are bit-identical at any thread count [thread]") {
  const LeakGuard guard;
  check_identical("sum", {{300001}}, [](const auto& x) { return sum(x[0]); });
  check_identical("sum, columns", {{2000, 150}}, [](const auto& x) { return sum(x[0], 0); });
  check_identical("sum, rows", {{150, 2000}}, [](const auto& x) { return sum(x[0], 1); });
  check_identical("sum, middle", {{20, 300, 50}}, [](const auto& x) { return sum(x[0], 1); });
  check_identical("mean", {{400, 400}}, [](const auto& x) { return mean(x[0], {0, 1}); });
  check_identical("var", {{2000, 90}}, [](const auto& x) { return var(x[0], 0); });
  check_identical("logsumexp", {{2000, 90}}, [](const auto& x) { return logsumexp(x[0]); });
  check_identical("norm", {{2000, 90}}, [](const auto& x) { return norm(x[0]); });
  check_identical("max", {{2000, 90}}, [](const auto& x) { return max(x[0], 0); });
  check_identical("cumsum", {{200, 900}}, [](const auto& x) { return cumsum(x[0], 1); });
}

TEST_CASE("indices are bit-identical at any thread count [thread]") {
  const LeakGuard guard;
  const Tensor many = ids(50, {5000});
  check_identical("take_rows", {{50, 32}}, [&](const auto& x) { return take_rows(x[0], many); });
  check_identical("index_select", {{40, 50, 8}},
                  [&](const auto& x) { return index_select(x[0], 1, many); });
  const Tensor places = ids(50, {5000, 8});
  check_identical("gather", {{50, 8}}, [&](const auto& x) { return gather(x[0], 0, places); });
  check_identical("scatter_add", {{50, 8}, {5000, 8}},
                  [&](const auto& x) { return scatter_add(x[0], 0, places, x[1]); });
  check_identical("sort", {{100, 700}}, [](const auto& x) { return sort(x[0]).values; });
}

TEST_CASE("elementwise ops are bit-identical at any thread count [thread]") {
  const LeakGuard guard;
  check_identical("activations", {{100003}}, [](const auto& x) {
    return gelu(x[0]) + tanh(x[0]) * sigmoid(x[0]) + exp(x[0] * 0.1) + softplus(x[0]);
  });
  check_identical("broadcast", {{300, 1, 40}, {20, 1}}, [](const auto& x) { return x[0] * x[1]; });
  check_identical("where", {{90000}, {90000}},
                  [](const auto& x) { return where(x[0] > x[1], x[0], square(x[1])); });
  check_identical("shapes", {{200, 30, 20}}, [](const auto& x) {
    return cat({permute(x[0], {2, 0, 1}), permute(flip(x[0], 0), {2, 0, 1})}, 1);
  });
  check_identical("dropout", {{90000}}, [](const auto& x) {
    Rng rng(1);
    return dropout(x[0], 0.3, rng);
  });
}
