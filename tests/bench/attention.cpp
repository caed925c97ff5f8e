// Speed and memory of fused attention beside a tiled program written by hand with Eigen.
//
//   meson setup build/bench -Dbenchmarks=true -Dnative=true && ninja -C build/bench
//   build/bench/tests/bench/bench_attention [T] [repetitions]   times, in turn, at 1 and 2 threads
//   build/bench/tests/bench/bench_attention memory [T]          growth of resident memory
//
// W4: causal attention, 8 heads of width 64, float32, forward and backward from a given upstream
// gradient. Times are the smallest of all repetitions. CPU times compare on a machine that others
// use too; wall times need a quiet one. The share of peak counts the visible half of six products,
// 6144 T^2 / 2, against what fused multiply-adds reach in registers.
#include "softtape/attention/attention.hpp"

#include <sys/resource.h>
#include <time.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "softtape/base/parallel.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"

namespace {

using namespace softtape;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXf;
using Index = Eigen::Index;

constexpr Index kHeads = 8;
constexpr Index kWidth = 64;
constexpr Index kTile = 128;
constexpr float kScale = 0.125f;  // 1 / sqrt(kWidth)

// What one would write without an engine: tiles of 128, causal tiles skipped, online softmax, the
// weights computed again in backward, Eigen's products. T is a multiple of the tile.
struct HandTiled {
  explicit HandTiled(Index t) : length(t) {
    for (Matrix* x : {&q, &k, &v, &go}) *x = Matrix::Random(kHeads * t, kWidth);
    for (Matrix* x : {&o, &gq, &gk, &gv}) x->resize(kHeads * t, kWidth);
    logsumexp.resize(kHeads * t);
  }

  void run() {
    for (Matrix* x : {&gq, &gk, &gv}) x->setZero();
    for (Index head = 0; head < kHeads * length; head += length) {
      for (Index i = 0; i < length; i += kTile) forward(head, i);
      for (Index i = 0; i < length; i += kTile) backward(head, i);
    }
  }

  void forward(Index head, Index i) {
    output.setZero();
    top.setConstant(-std::numeric_limits<float>::infinity());
    sum.setZero();
    for (Index j = 0; j <= i; j += kTile) {
      weights.noalias() = q.middleRows(head + i, kTile) * k.middleRows(head + j, kTile).transpose();
      for (Index r = 0; r < kTile; ++r) {
        const Index seen = i == j ? r + 1 : kTile;
        auto row = weights.row(r).head(seen).array();
        const float higher = std::max(top[r], row.maxCoeff() * kScale);
        const float shrink = std::exp(top[r] - higher);
        row = (row * kScale - higher).exp();
        sum[r] = sum[r] * shrink + row.sum();
        top[r] = higher;
        output.row(r) *= shrink;
        weights.row(r).tail(kTile - seen).setZero();
      }
      output.noalias() += weights * v.middleRows(head + j, kTile);
    }
    o.middleRows(head + i, kTile) = output.array().colwise() / sum.array();
    logsumexp.segment(head + i, kTile) = top.array() + sum.array().log();
  }

  void backward(Index head, Index i) {
    const auto rows = [&](Matrix& x, Index at) { return x.middleRows(head + at, kTile); };
    sum = (rows(o, i).array() * rows(go, i).array()).rowwise().sum();
    for (Index j = 0; j <= i; j += kTile) {
      weights.noalias() = rows(q, i) * rows(k, j).transpose();
      for (Index r = 0; r < kTile; ++r) {
        const Index seen = i == j ? r + 1 : kTile;
        auto row = weights.row(r).head(seen).array();
        row = (row * kScale - logsumexp[head + i + r]).exp();
        weights.row(r).tail(kTile - seen).setZero();
      }
      rows(gv, j).noalias() += weights.transpose() * rows(go, i);
      slopes.noalias() = rows(go, i) * rows(v, j).transpose();
      slopes.array() = weights.array() * (slopes.array().colwise() - sum.array()) * kScale;
      rows(gq, i).noalias() += slopes * rows(k, j);
      rows(gk, j).noalias() += slopes.transpose() * rows(q, i);
    }
  }

  Index length;
  Matrix q, k, v, go, o, gq, gk, gv;
  Vector logsumexp;
  Matrix weights{kTile, kTile}, slopes{kTile, kTile}, output{kTile, kWidth};
  Vector top{kTile}, sum{kTile};
};

struct Fused {
  Tensor q, k, v, go, o;
  std::vector<Tensor> gradients;

  explicit Fused(const HandTiled& same)
      : q(copy(same.q)), k(copy(same.k)), v(copy(same.v)), go(copy(same.go)) {
    for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
  }
  static Tensor copy(const Matrix& x) {
    return tensor(std::span(x.data(), static_cast<std::size_t>(x.size())),
                  {kHeads, x.rows() / kHeads, kWidth});
  }
  void run() {
    o = scaled_dot_product_attention(q, k, v, {.mask = Mask::causal(), .need_weights = false})
            .output;
    gradients = grad({o}, {q, k, v}, {.grad_outputs = {go}});
  }
};

struct Times {
  double cpu = 1e9;
  double wall = 1e9;

  template <class F>
  void measure(F f) {
    timespec before{}, after{};
    const auto start = std::chrono::steady_clock::now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    f();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    wall = std::min(wall, elapsed.count());
    cpu = std::min(cpu, static_cast<double>(after.tv_sec - before.tv_sec) +
                            1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec));
  }
};

// FLOP/s of twelve independent chains of multiply-adds in registers.
double peak() {
  using P = Eigen::internal::packet_traits<float>::type;
  constexpr int kRounds = 300000;
  using namespace Eigen::internal;
  Times best;
  for (int repetition = 0; repetition < 30; ++repetition) {
    best.measure([] {
      P chains[12];
      for (int i = 0; i < 12; ++i) chains[i] = pset1<P>(static_cast<float>(i));
      P factor = pset1<P>(0.999f);
      asm volatile("" : "+v"(factor));  // or the loop would be computed while compiling
      for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; ++i) chains[i] = pmadd(chains[i], factor, factor);
      }
      for (int i = 1; i < 12; ++i) chains[0] = padd(chains[0], chains[i]);
      volatile float result = pfirst(chains[0]);
      static_cast<void>(result);
    });
  }
  constexpr double kLanes = sizeof(P) / sizeof(float);
  return 2 * 12 * kLanes * kRounds / best.cpu;
}

double largest_difference(const Tensor& x, const Matrix& y) {
  const auto numbers = x.data<float>();
  double largest = 0;
  for (Index i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(numbers[static_cast<std::size_t>(i)]) -
                                         static_cast<double>(y.data()[i])));
  }
  return largest;
}

void times(Index length, int repetitions) {
  HandTiled hand(length);
  Fused fused(hand);
  Times by_hand, one, two;
  for (int i = 0; i < repetitions; ++i) {
    by_hand.measure([&] { hand.run(); });
    set_num_threads(1);
    one.measure([&] { fused.run(); });
    set_num_threads(2);
    two.measure([&] { fused.run(); });
  }
  const double work = 3072.0 * static_cast<double>(length * length);
  std::printf("largest difference  output %.1e  gradients %.1e %.1e %.1e\n",
              largest_difference(fused.o, hand.o), largest_difference(fused.gradients[0], hand.gq),
              largest_difference(fused.gradients[1], hand.gk),
              largest_difference(fused.gradients[2], hand.gv));
  std::printf("W4 T=%ld                  cpu ms   wall ms\n", static_cast<long>(length));
  std::printf("by hand, 1 thread      %8.2f  %8.2f\n", by_hand.cpu * 1e3, by_hand.wall * 1e3);
  std::printf("softtape, 1 thread     %8.2f  %8.2f\n", one.cpu * 1e3, one.wall * 1e3);
  std::printf("softtape, 2 threads              %8.2f\n", two.wall * 1e3);
  std::printf("ratio to hand          %8.3f  %8.3f\n", one.cpu / by_hand.cpu,
              one.wall / by_hand.wall);
  std::printf("share of FMA peak      %8.1f %%\n", 100 * work / one.cpu / peak());
  std::printf("2 threads against 1              %8.2f\n", one.wall / two.wall);
}

double resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void memory(Index length) {
  Rng rng(1);
  const Shape shape{kHeads, length, kWidth};
  Tensor x[4];
  for (Tensor& t : x) t = rand(rng, shape, {.dtype = DType::float32});
  for (int i = 0; i < 3; ++i) x[i].requires_grad_();
  const double before = resident_mib();
  const Tensor o = scaled_dot_product_attention(x[0], x[1], x[2],
                                                {.mask = Mask::causal(), .need_weights = false})
                       .output;
  const std::vector<Tensor> gradients = grad({o}, {x[0], x[1], x[2]}, {.grad_outputs = {x[3]}});
  std::printf("T=%ld: resident growth %.1f MiB, of which output and gradients %.1f\n",
              static_cast<long>(length), resident_mib() - before,
              4.0 * 4 * static_cast<double>(shape.numel()) / (1 << 20));
}

}  // namespace

int main(int count, char** words) {
  const bool measure_memory = count > 1 && std::strcmp(words[1], "memory") == 0;
  const int at = measure_memory ? 2 : 1;
  const Index length = count > at ? std::atol(words[at]) : measure_memory ? 8192 : 2048;
  if (length < kTile || length % kTile) {
    std::fprintf(stderr, "T must be a multiple of %ld\n", static_cast<long>(kTile));
    return 2;
  }
  measure_memory ? memory(length) : times(length, count > 2 ? std::atoi(words[2]) : 10);
}
