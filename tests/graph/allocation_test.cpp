// A training step in its steady state takes no memory from the system: every call of malloc and its
// kin in this program is counted, by this file's own definitions, or under a sanitizer by its
// hooks.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "softtape/base/memory.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/normalize.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/ops/softmax.hpp"
#include "support/compare.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"

namespace {
std::atomic<long> allocations{0};
}

#ifdef SOFTTAPE_SANITIZED

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*,
                                                                           std::size_t),
                                                         void (*on_free)(const volatile void*));

namespace {
const int kInstalled = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
constexpr int kLargest = 512;  // a product of 2048 takes minutes there
}  // namespace

#else

// glibc's own entry points, under the names that this program takes over.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  ++allocations;
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;
}
}

namespace {
constexpr int kInstalled = 1;
constexpr int kLargest = 2048;
}  // namespace

#endif

using namespace softtape;
using namespace test_support;

namespace {

// Calls in `steps` steps after `warm` of them.
template <class Step>
long steady_allocations(Step step, int warm = 3, int steps = 4) {
  for (int i = 0; i < warm; ++i) step();
  const long before = allocations;
  for (int i = 0; i < steps; ++i) step();
  return allocations - before;
}

Tensor parameter(Rng& rng, const Shape& shape, DType dtype) {
  return normal(rng, 0, 0.1, shape, {.dtype = dtype, .requires_grad = true});
}

// A transformer block with its embedding and loss, by hand.
struct Model {
  Model(DType dtype, std::int64_t batch, std::int64_t tokens)
      : rng(1),
        table(parameter(rng, {50, d}, dtype).named("embedding.weight_of_a_long_name")),
        wq(parameter(rng, {d, d}, dtype)),
        wk(parameter(rng, {d, d}, dtype)),
        wv(parameter(rng, {d, d}, dtype)),
        w1(parameter(rng, {d, 4 * d}, dtype)),
        b1(parameter(rng, {4 * d}, dtype)),
        w2(parameter(rng, {4 * d, d}, dtype)),
        gain(parameter(rng, {d}, dtype)),
        bias(parameter(rng, {d}, dtype)),
        ids(randint(rng, 0, 50, {batch, tokens})),
        targets(randint(rng, 0, 50, {batch, tokens})) {}

  Tensor loss() {
    const Tensor x = take_rows(table, ids);
    const Tensor n = layer_norm(x, gain, bias);
    const Tensor q = matmul(n, wq);
    const Tensor scores = matmul(q, matmul(n, wk), {.transpose_b = true}) * 0.25;
    const Tensor weights = softmax(scores, {.mask = mask});
    const Tensor attended = x + dropout(matmul(weights, matmul(n, wv)), 0.1, rng);
    const Tensor hidden = gelu(matmul(rms_norm(attended), w1) + b1);
    const Tensor out = attended + matmul(hidden, w2);
    return cross_entropy(matmul(out, table, {.transpose_b = true}), targets);
  }
  void step() {
    for (Tensor* p : {&table, &wq, &wk, &wv, &w1, &b1, &w2, &gain, &bias}) p->zero_grad();
    loss().backward();
    const NoGrad no_grad;
    for (Tensor* p : {&table, &wq, &wk, &wv, &w1, &b1, &w2, &gain, &bias}) {
      p->sub_(p->grad(), 0.01);
    }
  }

  static constexpr std::int64_t d = 32;
  Rng rng;
  Tensor table, wq, wk, wv, w1, b1, w2, gain, bias;
  Tensor ids, targets;
  Mask mask = Mask::causal();
};

}  // namespace

TEST_CASE("the hook counts") {
  REQUIRE(kInstalled != 0);
  const long before = allocations;
  std::string* text = new std::string(100, 'x');
  void* volatile block = std::malloc(10);
  std::free(block);
  delete text;
  CHECK(allocations - before >= 3);
}

TEST_CASE("a training step of a transformer block never calls malloc") {
  for (const int threads : {1, 2}) {
    const ThreadCount count(threads);
    for (const DType dtype : kFloats) {
      CAPTURE(threads);
      CAPTURE(to_string(dtype));
      Model small(dtype, 2, 8);
      CHECK(steady_allocations([&] { small.step(); }) == 0);
      Model several_chunks(dtype, 8, 64);
      CHECK(steady_allocations([&] { several_chunks.step(); }) == 0);
    }
  }
}

TEST_CASE("a step of the lesson's attention never calls malloc") {
  Rng rng(2);
  const Tensor x = randn(rng, {5, 8});
  Tensor wq = parameter(rng, {8, 8}, DType::float32);
  Tensor wk = parameter(rng, {8, 8}, DType::float32);
  Tensor wv = parameter(rng, {8, 8}, DType::float32);
  const Tensor hidden = triu(ones({5, 5}), 1) > 0;
  const Tensor target = randn(rng, {5, 8});
  const auto step = [&] {
    const Tensor scores = matmul(matmul(x, wq), matmul(x, wk), {.transpose_b = true}) / 2.83;
    const Tensor p = softmax(masked_fill(scores, hidden, -kInf));
    const Tensor loss = mse_loss(matmul(p, matmul(x, wv)), target);
    for (Tensor* w : {&wq, &wk, &wv}) w->zero_grad();
    loss.backward();
    const NoGrad no_grad;
    for (Tensor* w : {&wq, &wk, &wv}) w->sub_(w->grad(), 0.1);
  };
  CHECK(steady_allocations(step) == 0);
}

TEST_CASE("products up to 2048 never call malloc, forward or backward") {
  for (const int threads : {1, 2}) {
    const ThreadCount count(threads);
    // On one thread the largest would only take longer.
    for (int n = 16; n <= (threads == 1 ? kLargest / 4 : kLargest); n *= 2) {
      CAPTURE(n);
      Rng rng(3);
      const DType dtype = n <= 512 ? DType::float64 : DType::float32;
      Tensor a = parameter(rng, {n, n}, dtype);
      Tensor b = parameter(rng, {n, n}, dtype);
      const auto step = [&] {
        a.zero_grad();
        b.zero_grad();
        mean(matmul(a, b)).backward();
      };
      CHECK(steady_allocations(step, n > 512 ? 1 : 2, 1) == 0);
    }
  }
}

TEST_CASE("ops over several tensors and other axes never call malloc") {
  Rng rng(4);
  Tensor x = parameter(rng, {16, 24}, DType::float32);
  Tensor y = parameter(rng, {16, 24}, DType::float32);
  const Tensor rows = tensor({3, 1, 2, 3});
  const auto check = [&](const char* what, auto f) {
    CAPTURE(what);
    const auto step = [&] {
      x.zero_grad();
      y.zero_grad();
      f().backward();
    };
    CHECK(steady_allocations(step) == 0);
  };
  check("elementwise", [&] { return mean(exp(tanh(x * y) - square(y) / (1 + abs(x)))); });
  check("broadcast", [&] { return mean(x * sum(y, 0) + sum(y, {1}, {.keepdim = true})); });
  check("reductions",
        [&] { return mean(var(x, 1) + softtape::std(y, -1) + norm(x, 1) + max(y, 1)); });
  check("logsumexp", [&] { return mean(logsumexp(x, 0) - mean(y, 0)); });
  check("softmax, other axis", [&] { return mean(softmax(x, 0) * y); });
  check("log_softmax", [&] { return mean(where(x > y, 0, log_softmax(x, {.mask = Mask()}))); });
  check("shapes", [&] { return mean(transpose(reshape(x, {8, 48})) * reshape(y, {48, 8})); });
  check("permute", [&] { return mean(permute(reshape(x, {4, 4, 24}), {2, 0, 1})); });
  check("slices", [&] { return mean(slice(x, 1, 2, 20, 3) * narrow(y, 1, 0, 6)); });
  check("cat", [&] { return mean(square(cat({x, y}, 1))); });
  check("cat of many", [&] { return mean(square(cat({x, y, x, y, x}, 0))); });
  check("stack", [&] { return mean(square(stack({x, y}))); });
  check("index", [&] { return mean(index_select(x, 0, rows) * take_rows(y, rows)); });
  check("where", [&] { return mean(where(x > 0, x, y) + masked_fill(x, y > 0, 0)); });
  check("triangles", [&] { return mean(tril(x) + triu(y)); });
  check("losses", [&] {
    return mse_loss(x, y.detach()) + binary_cross_entropy_with_logits(y, x.detach() * 0);
  });
}

TEST_CASE("memory is flat over training steps") {
  Model model(DType::float32, 2, 8);
  for (int i = 0; i < 3; ++i) model.step();
  const GraphStats before = graph_stats();
  const MemoryStats memory = memory_stats();
  for (int i = 0; i < 50; ++i) model.step();
  CHECK(graph_stats().live_nodes == before.live_nodes);
  CHECK(graph_stats().live_bytes == before.live_bytes);
  CHECK(memory_stats().system_calls == memory.system_calls);
  CHECK(memory_stats().cached_bytes == memory.cached_bytes);
}
