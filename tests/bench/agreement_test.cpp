// The programs written by hand that softtape's speed is compared with compute what softtape does.
#include <doctest/doctest.h>

#include "workloads.hpp"

namespace {

// After three runs: W2, W3 and W6 have taken two steps of their optimisers before the last.
double disagreement(const char* workload, bench::Sizes sizes, int threads = 1) {
  CAPTURE(workload);
  return bench::disagreement(workload, sizes, threads);
}

}  // namespace

TEST_CASE("the benchmarks' contenders agree: one head") {
  CHECK(disagreement("W1", bench::sizes_of("W1")) < 2e-6);
  bench::Sizes sizes{.batch = 3, .tokens = 9, .width = 10, .head = 6, .classes = 7};
  CHECK(disagreement("W2", sizes) < 2e-6);
  CHECK(disagreement("W2", sizes, 2) < 2e-6);
  sizes.composed = true;
  CHECK(disagreement("W2", sizes) < 2e-6);
  CHECK(disagreement("W6", {.tokens = 11, .width = 8, .head = 5}) < 2e-6);
}

TEST_CASE("the benchmarks' contenders agree: language model") {
  const bench::Sizes sizes{
      .batch = 3, .tokens = 10, .width = 12, .head = 4, .heads = 3, .layers = 2, .classes = 11};
  CHECK(disagreement("W3", sizes) < 2e-6);
  CHECK(disagreement("W3", sizes, 2) < 2e-6);
}

TEST_CASE("the benchmarks' contenders agree: tiled attention") {
  CHECK(disagreement("W4", {.tokens = 256, .width = 16, .heads = 2}) < 2e-6);
  CHECK(disagreement("W4", {.tokens = 256, .width = 16, .heads = 2}, 2) < 2e-6);
}

TEST_CASE("the benchmarks' contenders agree: a chain of scalars") {
  CHECK(disagreement("W5", bench::sizes_of("W5")) < 2e-6);
}
