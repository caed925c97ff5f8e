// The fused kernels on their own, against plain loops in double: tile edges, masks, biases,
// layouts, numbers that must not leak, threads and memory.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>

#include "attention/fused_kernel_support.hpp"
#include "softtape/base/memory.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/ops/create.hpp"
#include "support/constants.hpp"

namespace softtape {
namespace {

using namespace fused_test;
using test_support::kInf;
using test_support::kNaN;

template <class T>
constexpr double kBound = std::is_same_v<T, float> ? 2e-5 : 1e-13;

/// A tensor mask with visible, hidden and mixed tiles.
Mask blotches(Int n, Int m) {
  const auto visible = std::make_unique<bool[]>(static_cast<std::size_t>(n * m));
  for (Int i = 0; i < n; ++i) {
    for (Int j = 0; j < m; ++j) {
      visible[static_cast<std::size_t>(i * m + j)] =
          i / 64 != j / 64 && (i % 128 > 64 || (i * j) % 3 == 0);
    }
  }
  return Mask::keep(tensor(std::span(visible.get(), static_cast<std::size_t>(n * m)), {n, m}));
}

/// For two sequences of n queries and m keys.
std::vector<Mask> masks(Int n, Int m) {
  return {Mask(),
          Mask::causal(Align::upper_left),
          Mask::causal(Align::lower_right),
          Mask::sliding_window(5, 3),
          Mask::key_padding({m / 2, 0}) & Mask::causal(Align::lower_right),
          blotches(n, m)};
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST_CASE_TEMPLATE("fused kernels: equal plain loops at every edge of a tile", T, float, double) {
  constexpr Int kShapes[][2] = {{0, 3},   {3, 0},     {1, 1},    {5, 7},   {63, 65},
                                {64, 64}, {130, 129}, {17, 200}, {200, 40}};
  constexpr Int kWidths[][2] = {{1, 1}, {3, 5}, {16, 16}, {17, 33}, {64, 8}};
  for (const auto& shape : kShapes) {
    for (const auto& widths : kWidths) {
      // Plain names: clang 14 lets no lambda (INFO is one) see structured bindings.
      const Int n = shape[0], m = shape[1], dk = widths[0], dv = widths[1];
      bool blocks = false;
      for (const Mask& mask : masks(n, m)) {
        blocks = !blocks;
        Run<T> run({2, 2, n, m, dk, dv, blocks}, mask);
        run.run();
        INFO("n ", n, " m ", m, " dk ", dk, " dv ", dv, " blocks ", blocks);
        CHECK(worst_error(run) <= kBound<T>);
      }
    }
  }
}

TEST_CASE_TEMPLATE("fused kernels: bias of every layout and its gradient", T, float, double) {
  const Sizes s{2, 2, 70, 90, 5, 3};
  const Int layouts[][4] = {{2 * 70 * 90, 70 * 90, 90, 1}, {0, 90, 0, 1}, {0, 0, 1, 0}};
  for (const auto& layout : layouts) {
    for (const Mask& mask : masks(s.n, s.m)) {
      Run<T> run(s, mask);
      std::copy_n(layout, 4, run.bias_strides);
      for (Int i = 0; i < 4 * s.n * s.m; ++i) run.bias.push_back(static_cast<T>((i * 37) % 19) / 9);
      run.gbias.assign(static_cast<std::size_t>(4 * s.n * s.m), T{7});
      run.run();
      INFO("head stride ", layout[1]);
      CHECK(worst_error(run) <= kBound<T>);
    }
  }
}

TEST_CASE_TEMPLATE("fused kernels: bit-identical on one and several threads", T, float, double) {
  const int threads = num_threads();
  // The first is long enough for a head to be cut into parts that add to the same gradients.
  for (const Sizes& s : {Sizes{2, 1, 600, 550, 16, 16}, Sizes{2, 3, 100, 70, 24, 5, true}}) {
    for (const Mask& mask : masks(s.n, s.m)) {
      Run<T> one(s, mask);
      set_num_threads(1);
      one.run();
      CHECK(worst_error(one) <= kBound<T>);
      for (const int count : {2, 3}) {
        Run<T> many(s, mask);
        set_num_threads(count);
        many.run();
        for (std::size_t i = 0; i < 4; ++i) {
          CHECK(same_bits(one.results()[i]->numbers, many.results()[i]->numbers));
        }
        CHECK(same_bits(one.shift, many.shift));
        CHECK(same_bits(one.sum, many.sum));
        CHECK(same_bits(one.logsumexp, many.logsumexp));
      }
    }
  }
  set_num_threads(threads);
}

TEST_CASE_TEMPLATE("fused kernels: hidden keys and values have no effect, NaN included", T, float,
                   double) {
  const Sizes s{1, 2, 90, 150, 20, 12};
  for (const double poison : {kNaN, kInf}) {
    const Mask mask = Mask::key_padding({70});
    Run<T> clean(s, mask);
    Run<T> dirty = clean;
    for (Int b = 0; b < 2; ++b) {
      for (Int j = 70; j < s.m; ++j) {
        dirty.k.at(b, j, j % s.dk) = static_cast<T>(poison);
        dirty.v.at(b, j, j % s.dv) = static_cast<T>(poison);
      }
    }
    clean.run();
    dirty.run();
    for (std::size_t i = 0; i < 4; ++i) {
      const auto& expected = clean.results()[i]->numbers;
      const auto& got = dirty.results()[i]->numbers;
      for (std::size_t e = 0; e < got.size(); ++e) {
        REQUIRE(std::abs(double(got[e]) - double(expected[e])) <= kBound<T>);
      }
    }
    for (Int j = 70; j < s.m; ++j) {
      REQUIRE(dirty.gk.at(1, j, 3) == 0);
      REQUIRE(dirty.gv.at(1, j, 3) == 0);
    }
  }
}

TEST_CASE("fused kernels: a NaN query or upstream reaches what it sees and nothing else") {
  const Sizes s{1, 1, 100, 100, 16, 16};
  const Mask mask = Mask::causal();
  for (const bool upstream : {false, true}) {
    Run<double> run(s, mask);
    (upstream ? run.go : run.q).at(0, 10, 2) = kNaN;
    run.run();
    for (Int i = 0; i < s.n; ++i) {
      INFO("row ", i, " upstream ", upstream);
      CHECK(std::isnan(run.o.at(0, i, 0)) == (i == 10 && !upstream));
      CHECK(std::isnan(run.gq.at(0, i, 0)) == (i == 10));
      CHECK(std::isnan(run.gk.at(0, i, 0)) == (i <= 10));
      CHECK(std::isnan(run.gv.at(0, i, 2)) == (i <= 10));
    }
  }
}

TEST_CASE_TEMPLATE("fused kernels: infinite scores, huge scores and ties", T, float, double) {
  const Sizes s{1, 1, 3, 80, 1, 1};
  const Mask mask;
  Run<T> run(s, mask);
  run.scale = 1;
  run.go.numbers = {1, 1, 1};
  run.q.numbers = {1, static_cast<T>(1e15), 0};
  std::fill(run.k.numbers.begin(), run.k.numbers.end(), T{0});
  run.k.numbers[3] = run.k.numbers[70] = static_cast<T>(1e15);
  std::fill(run.v.numbers.begin(), run.v.numbers.end(), T{5});
  run.v.numbers[3] = 1;
  run.v.numbers[70] = 3;
  run.run();
  CHECK(run.o.at(0, 1, 0) == 2);  // two keys tie at 1e30, 64 keys apart
  CHECK(run.shift[1] == static_cast<T>(1e15) * static_cast<T>(1e15));
  CHECK(run.sum[1] == 2);
  CHECK(run.sum[2] == 80);

  run.k.numbers[70] = static_cast<T>(kInf);
  run.run();
  CHECK(std::isnan(run.o.at(0, 0, 0)));  // +Inf
  CHECK(std::isnan(run.o.at(0, 2, 0)));  // 0 times Inf
  run.k.numbers[70] = static_cast<T>(-kInf);
  run.q.numbers[2] = 1;
  run.run();
  CHECK(run.o.at(0, 0, 0) == 1);  // -Inf: weight 0; the winner is 1e15 ahead
  CHECK(run.gk.at(0, 70, 0) == 0);
  CHECK(std::isfinite(run.gv.at(0, 70, 0)));
}

TEST_CASE("fused kernels: gradients of keys that no query sees are exact zeros") {
  const Sizes s{1, 2, 40, 200, 16, 8};
  const Mask mask = Mask::causal(Align::upper_left);
  Run<float> run(s, mask);
  run.run();
  for (Int j = 40; j < s.m; ++j) {
    for (Int c = 0; c < 8; ++c) {
      CHECK(run.gk.at(1, j, c) == 0.0f);
      CHECK(run.gv.at(1, j, c) == 0.0f);
    }
  }
}

// softmax(20, 0) with upstream (1, 2): gradients (-2.06e-9, +2.06e-9). See fused_backward.
TEST_CASE("fused kernels: the stated float32 bound of a saturated row") {
  const Sizes s{1, 1, 1, 2, 1, 1};
  const Mask mask;
  Run<float> run(s, mask);
  run.scale = 1;
  run.q.numbers = {1};
  run.k.numbers = {20, 0};
  run.v.numbers = {1, 2};
  run.go.numbers = {1};
  run.bias = {0, 0};
  run.gbias = {7, 7};
  run.bias_strides[3] = 1;
  run.run();
  CHECK(run.gbias[1] == doctest::Approx(2.0611536e-9).epsilon(1e-5));
  CHECK(std::abs(run.gbias[0] + 2.0611536e-9f) <= std::numeric_limits<float>::epsilon() * 2);
}

TEST_CASE("fused kernels: scratch stays small, and comes from the pool") {
  const int threads = num_threads();
  set_num_threads(1);
  const Mask mask = Mask::causal();
  Run<float> run({1, 1, 2048, 2048, 64, 64}, mask);
  release_memory();
  const MemoryStats before = memory_stats();
  run.run();
  const MemoryStats after = memory_stats();
  run.run();
  const Int grown = after.live_bytes + after.cached_bytes - before.live_bytes - before.cached_bytes;
  CHECK(grown <= 256 * 1024);  // one row of tiles of scores would be 512 KiB, all scores 16 MiB
  CHECK(memory_stats().live_bytes == before.live_bytes);
  CHECK(memory_stats().system_calls == after.system_calls);
  set_num_threads(threads);
}

}  // namespace
}  // namespace softtape
