// Speed of the engine beside programs written by hand for the same numbers.
//
//   meson setup build/bench -Dbenchmarks=true -Dnative=true && ninja -C build/bench
//   build/bench/tests/bench/bench_engine --benchmark_enable_random_interleaving=true
//
// W1 is one causal attention head on 5 tokens, forward and backward, composed of ten ops. W5 is a
// chain of 1000 scalar products and sums, forward and backward. The table at the end gives ratios
// of the fastest repetitions: times of one run compare, times of different days do not.
// peer_torch.py times the same two in PyTorch.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "softtape/base/parallel.hpp"
#include "softtape/base/random.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/softmax.hpp"

namespace {

using namespace softtape;

constexpr int kRepetitions = 9;

// ---------------------------------------------------------------- W1: attention on 5 tokens

constexpr int kTokens = 5;
constexpr int kWidth = 8;
constexpr int kHead = 4;
constexpr float kScale = 0.5f;  // 1 / sqrt(kHead)

// The head as one would write it without an engine: every buffer is made once and reused, products
// of this size go through Eigen's unblocked path, and softmax visits only the visible part of a
// row. With sizes known at run time, as the engine's are, or (`fixed`) to the compiler already.
template <bool fixed>
struct HandHead {
  template <int rows, int columns>
  using Matrix = Eigen::Matrix<float, fixed ? rows : Eigen::Dynamic,
                               fixed ? columns : Eigen::Dynamic, Eigen::RowMajor>;
  using Inputs = Matrix<kTokens, kWidth>;
  using Projection = Matrix<kWidth, kHead>;
  using Heads = Matrix<kTokens, kHead>;
  using Scores = Matrix<kTokens, kTokens>;

  Inputs x = Inputs::Random(kTokens, kWidth);
  Projection wq = Projection::Random(kWidth, kHead);
  Projection wk = Projection::Random(kWidth, kHead);
  Projection wv = Projection::Random(kWidth, kHead);
  Heads q, k, v, output, goutput, gq, gk, gv;
  Scores weights, gweights, gscores;
  Projection gwq, gwk, gwv;

  float step() {
    q.noalias() = x.lazyProduct(wq);
    k.noalias() = x.lazyProduct(wk);
    v.noalias() = x.lazyProduct(wv);
    weights.noalias() = q.lazyProduct(k.transpose());
    for (int i = 0; i < kTokens; ++i) {
      auto visible = weights.row(i).head(i + 1).array();
      visible = ((visible - visible.maxCoeff()) * kScale).exp();
      visible /= visible.sum();
      weights.row(i).tail(kTokens - i - 1).setZero();
    }
    output.noalias() = weights.lazyProduct(v);
    const float loss = output.squaredNorm();

    goutput = 2 * output;
    gv.noalias() = weights.transpose().lazyProduct(goutput);
    gweights.noalias() = goutput.lazyProduct(v.transpose());
    gscores.resize(kTokens, kTokens);
    for (int i = 0; i < kTokens; ++i) {
      const float mean = weights.row(i).dot(gweights.row(i));
      gscores.row(i).array() = weights.row(i).array() * (gweights.row(i).array() - mean) * kScale;
    }
    gq.noalias() = gscores.lazyProduct(k);
    gk.noalias() = gscores.transpose().lazyProduct(q);
    gwq.noalias() = x.transpose().lazyProduct(gq);
    gwk.noalias() = x.transpose().lazyProduct(gk);
    gwv.noalias() = x.transpose().lazyProduct(gv);
    return loss;
  }
};

struct EngineHead {
  Rng rng{0};
  Tensor x = randn(rng, {kTokens, kWidth});
  Tensor wq = randn(rng, {kWidth, kHead});
  Tensor wk = randn(rng, {kWidth, kHead});
  Tensor wv = randn(rng, {kWidth, kHead});

  EngineHead() {
    for (Tensor* w : {&wq, &wk, &wv}) w->requires_grad_();
  }
  Tensor loss() const {
    const Tensor q = matmul(x, wq);
    const Tensor k = matmul(x, wk);
    const Tensor v = matmul(x, wv);
    const Tensor scores = mul(matmul(q, k, {.transpose_b = true}), kScale);
    const Tensor weights = softmax(scores, {.mask = Mask::causal()});
    return sum(square(matmul(weights, v)));
  }
  void step() {
    loss().backward();
    for (Tensor* w : {&wq, &wk, &wv}) w->zero_grad();
  }
};

template <bool fixed>
void run_hand(benchmark::State& state) {
  HandHead<fixed> head;
  benchmark::DoNotOptimize(&head);  // the compiler may not know what is in there
  for (auto _ : state) {
    benchmark::DoNotOptimize(head.step());
    benchmark::ClobberMemory();
  }
}
void w1_hand(benchmark::State& state) { run_hand<false>(state); }
BENCHMARK(w1_hand)->Repetitions(kRepetitions);

void w1_hand_fixed(benchmark::State& state) { run_hand<true>(state); }
BENCHMARK(w1_hand_fixed)->Repetitions(kRepetitions);

void w1_softtape(benchmark::State& state) {
  EngineHead head;
  for (auto _ : state) head.step();
}
BENCHMARK(w1_softtape)->Repetitions(kRepetitions);

void w1_softtape_forward(benchmark::State& state) {
  const EngineHead head;
  for (auto _ : state) benchmark::DoNotOptimize(head.loss());
}
BENCHMARK(w1_softtape_forward);

// ---------------------------------------------------------------- W5: a chain of scalars

constexpr int kPairs = 500;
constexpr int kOps = 2 * kPairs;  // x = x p; x = x + b
constexpr float kStart = 0.5f;
constexpr float kFactor = 0.999f;
constexpr float kShift = 0.001f;

// The least a tape can be: numbers, indices and an op code in one array.
void w5_hand_tape(benchmark::State& state) {
  struct Step {
    bool product;
    int left, right;
    float value, gradient;
  };
  std::vector<Step> tape;
  tape.reserve(kOps + 3);
  for (auto _ : state) {
    tape.clear();
    for (const float leaf : {kStart, kFactor, kShift}) tape.push_back({false, 0, 0, leaf, 0});
    int x = 0;
    const auto push = [&](bool product, int right) {
      const float a = tape[static_cast<std::size_t>(x)].value;
      const float b = tape[static_cast<std::size_t>(right)].value;
      tape.push_back({product, x, right, product ? a * b : a + b, 0});
      x = static_cast<int>(tape.size()) - 1;
    };
    for (int i = 0; i < kPairs; ++i) {
      push(true, 1);
      push(false, 2);
    }
    tape.back().gradient = 1;
    for (std::size_t i = tape.size() - 1; i > 2; --i) {
      const Step& step = tape[i];
      Step& left = tape[static_cast<std::size_t>(step.left)];
      Step& right = tape[static_cast<std::size_t>(step.right)];
      left.gradient += step.product ? step.gradient * right.value : step.gradient;
      right.gradient += step.product ? step.gradient * left.value : step.gradient;
    }
    benchmark::DoNotOptimize(tape.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(w5_hand_tape)->Repetitions(kRepetitions);

// The tape one writes first: a heap node with two Eigen matrices and a closure per op.
void w5_naive_tape(benchmark::State& state) {
  struct Node {
    Eigen::MatrixXf value, gradient;
    std::function<void()> backward;
  };
  std::vector<std::unique_ptr<Node>> tape;
  const auto push = [&](const Eigen::MatrixXf& value) {
    tape.push_back(std::make_unique<Node>());
    tape.back()->value = value;
    tape.back()->gradient.setZero(value.rows(), value.cols());
    return tape.back().get();
  };
  for (auto _ : state) {
    tape.clear();
    Node* x = push(Eigen::MatrixXf::Constant(1, 1, kStart));
    Node* factor = push(Eigen::MatrixXf::Constant(1, 1, kFactor));
    Node* shift = push(Eigen::MatrixXf::Constant(1, 1, kShift));
    for (int i = 0; i < kPairs; ++i) {
      Node* product = push(x->value.cwiseProduct(factor->value));
      product->backward = [product, x, factor] {
        x->gradient += product->gradient.cwiseProduct(factor->value);
        factor->gradient += product->gradient.cwiseProduct(x->value);
      };
      Node* total = push(product->value + shift->value);
      total->backward = [total, product, shift] {
        product->gradient += total->gradient;
        shift->gradient += total->gradient;
      };
      x = total;
    }
    x->gradient.setOnes();
    for (std::size_t i = tape.size() - 1; i > 2; --i) tape[i]->backward();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(w5_naive_tape)->Repetitions(kRepetitions);

void w5_softtape(benchmark::State& state) {
  Tensor start = full({}, kStart);
  Tensor factor = full({}, kFactor);
  Tensor shift = full({}, kShift);
  for (Tensor* leaf : {&start, &factor, &shift}) leaf->requires_grad_();
  for (auto _ : state) {
    Tensor x = start;
    for (int i = 0; i < kPairs; ++i) {
      x = x * factor;
      x = x + shift;
    }
    x.backward();
    for (Tensor* leaf : {&start, &factor, &shift}) leaf->zero_grad();
  }
  state.SetItemsProcessed(state.iterations() * kOps);
}
BENCHMARK(w5_softtape)->Repetitions(kRepetitions);

// ---------------------------------------------------------------- single ops, without recording

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

// ---------------------------------------------------------------- the table at the end

// Prints one line where a benchmark ran once and the aggregates where it was repeated, and keeps
// the fastest repetition of each: in processor time, which a busy machine disturbs least.
class FastestReporter : public benchmark::ConsoleReporter {
 public:
  FastestReporter() : ConsoleReporter(OO_Tabular) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> shown;
    for (const Run& run : runs) {
      const bool iteration = run.run_type == Run::RT_Iteration;
      if (!iteration || run.repetitions <= 1) shown.push_back(run);
      if (!iteration || run.error_occurred) continue;
      const double ns = run.cpu_accumulated_time / static_cast<double>(run.iterations) * 1e9;
      const auto [known, is_new] = fastest_.try_emplace(run.run_name.function_name, ns);
      if (!is_new) known->second = std::min(known->second, ns);
    }
    ConsoleReporter::ReportRuns(shown);
  }
  void compare(const std::string& ours, const std::string& theirs) const {
    const auto a = fastest_.find(ours);
    const auto b = fastest_.find(theirs);
    if (a == fastest_.end() || b == fastest_.end()) return;
    std::printf("%-12s %10.0f ns   %-14s %10.0f ns   ratio %.2f\n", ours.c_str(), a->second,
                theirs.c_str(), b->second, a->second / b->second);
  }
  void per_op(const std::string& name) const {
    const auto found = fastest_.find(name);
    if (found == fastest_.end()) return;
    std::printf("%-12s %10.1f ns per op\n", name.c_str(), found->second / kOps);
  }

 private:
  std::map<std::string, double> fastest_;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  set_num_threads(1);  // the programs by hand have one, too
  FastestReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("\nFastest repetitions, processor time:\n");
  reporter.compare("w1_softtape", "w1_hand");
  reporter.compare("w1_softtape", "w1_hand_fixed");
  reporter.compare("w5_softtape", "w5_hand_tape");
  reporter.compare("w5_softtape", "w5_naive_tape");
  reporter.per_op("w5_softtape");
  return 0;
}
