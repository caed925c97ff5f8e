// Speed of single ops without recording, for whoever works on one of them. Whole workloads beside
// other programs: tests/bench/compare.
//
//   build/bench/tests/bench/bench_ops --benchmark_filter=softmax
#include <benchmark/benchmark.h>

#include "softtape/base/parallel.hpp"
#include "softtape/base/random.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/softmax.hpp"

namespace {

using namespace softtape;

void softmax_rows(benchmark::State& state) {
  const NoGrad values_only;
  Rng rng(0);
  const Tensor x = randn(rng, {state.range(0), state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(softmax(x));
  state.SetItemsProcessed(state.iterations() * x.numel());
}
BENCHMARK(softmax_rows)->Args({5, 5})->Args({1000, 5})->Args({1000, 16})->Args({64, 64});

void softmax_vjp_rows(benchmark::State& state) {
  const NoGrad values_only;
  Rng rng(0);
  const Tensor g = randn(rng, {state.range(0), state.range(1)});
  const Tensor p = softmax(g);
  for (auto _ : state) benchmark::DoNotOptimize(softmax_vjp(p, g));
  state.SetItemsProcessed(state.iterations() * g.numel());
}
BENCHMARK(softmax_vjp_rows)->Args({5, 5})->Args({1000, 5})->Args({1000, 16})->Args({64, 64});

void matmul_sizes(benchmark::State& state) {
  const NoGrad values_only;
  Rng rng(0);
  const Tensor a = randn(rng, {state.range(0), state.range(1)});
  const Tensor b = randn(rng, {state.range(1), state.range(2)});
  for (auto _ : state) benchmark::DoNotOptimize(matmul(a, b));
  // Multiplications and additions.
  state.SetItemsProcessed(state.iterations() * 2 * a.numel() * state.range(2));
}
BENCHMARK(matmul_sizes)
    ->Args({5, 8, 4})
    ->Args({16, 16, 16})
    ->Args({64, 64, 64})
    ->Args({256, 256, 256})
    ->Args({1024, 1024, 1024});

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  set_num_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
