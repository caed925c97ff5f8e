// Hard cases of masks, on attention written out by hand from matmul and softmax. Numbers were
// computed with 50 digits.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "cases/evaluate.hpp"
#include "softtape/ops/compare.hpp"
#include "softtape/ops/dropout.hpp"
#include "softtape/ops/mask.hpp"
#include "softtape/ops/matmul.hpp"
#include "softtape/ops/softmax.hpp"

using namespace softtape;
using namespace test_support;
using namespace cases;

namespace {

struct Attended {
  Tensor output;
  Tensor weights;
};

Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask = {},
                const Tensor& bias = {}) {
  Tensor scores = matmul(q, k, {.transpose_b = true}) / std::sqrt(static_cast<double>(k.dim(-1)));
  if (bias.defined()) scores = scores + bias;
  const Tensor weights = softmax(scores, {.mask = mask});
  return {matmul(weights, v), weights};
}

// Three queries on three keys of width 2, as several cases have them.
struct Three {
  explicit Three(DType dtype = DType::float64)
      : q(leaf({{0.3, -0.1}, {1.0, 0.4}, {-0.6, 0.9}}, dtype)),
        k(leaf({{0.2, 0.8}, {-0.5, 0.1}, {0.7, -0.3}}, dtype)),
        v(leaf({{1.0, 0.0}, {0.0, 1.0}, {2.0, -1.0}}, dtype)) {}
  Tensor q, k, v;

  std::vector<Tensor> gradients(const Mask& mask, const Tensor& w, const Tensor& bias = {}) const {
    return grad(attend(q, k, v, mask, bias).output, {q, k, v},
                {.grad_outputs = {to(w, q.dtype())}});
  }
};

double attention_tolerance(DType dtype) { return dtype == DType::float64 ? 1e-12 : 2e-6; }

bool zero_row(const Tensor& x, std::int64_t row) { return equal(x[row], zeros_like(x[row])); }

}  // namespace

TEST_CASE("ATT-009 a NaN in a hidden value row stays IEEE in its column alone") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor q = numbers({{1.0, 0.5}, {0.25, -1.0}}, dtype);
    const Tensor k = numbers({{0.5, 1.0}, {-1.0, 2.0}, {0.0, 0.75}}, dtype);
    const Tensor v = numbers({{1.0, 2.0}, {kNaN, -1.0}, {0.5, 0.0}}, dtype);
    const Mask keep = Mask::keep(tensor({{true, false, true}, {true, false, false}}));
    const auto [output, weights] = attend(q, k, v, keep);
    CHECK_NUMBERS(select(output, 1, 0), {kNaN, kNaN});  // 0 NaN is NaN
    CHECK_NUMBERS(select(output, 1, 1), {1.2174432214313569, 2.0}, attention_tolerance(dtype));
    CHECK_NUMBERS(select(weights, 1, 1), {0.0, 0.0});
    // A NaN in a hidden key has no effect at all.
    const Tensor bad_key = numbers({{0.5, 1.0}, {kNaN, 2.0}, {0.0, 0.75}}, dtype);
    const Tensor good = numbers({{1.0, 2.0}, {3.0, -1.0}, {0.5, 0.0}}, dtype);
    CHECK_NUMBERS(attend(q, bad_key, good, keep).output,
                  {{0.8043608053578392, 1.2174432214313569}, {1.0, 2.0}},
                  attention_tolerance(dtype));
  }
}

TEST_CASE("ATT-013 the polarity of a mask is in its name") {
  const LeakGuard guard;
  const Tensor lower = tensor({{true, false, false}, {true, true, false}, {true, true, true}});
  for (const DType dtype : kFloats) {
    const Three x(dtype);
    for (const Mask& mask :
         {Mask::keep(lower), Mask::masked_out(logical_not(lower)), Mask::causal(),
          Mask::causal(Align::upper_left), Mask::sliding_window(3, 0)}) {
      const auto [output, weights] = attend(x.q, x.k, x.v, mask);
      CHECK_NUMBERS(output,
                    {{1.0, 0.0},
                     {0.6666261021000085, 0.3333738978999915},
                     {0.796632835637573, 0.20336716436242702}},
                    attention_tolerance(dtype));
      CHECK_NUMBERS(weights,
                    {{1.0, 0.0, 0.0},
                     {0.6666261021000085, 0.3333738978999915, 0.0},
                     {0.44176262414479506, 0.380802270108816, 0.17743510574638896}},
                    attention_tolerance(dtype));
      CHECK(equal(output[0], x.v[0]));
    }
  }
}

TEST_CASE("ATT-015 a float bias is added to the scores, and is no mask") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor bias = leaf({{0.0, 1.0986122886681098}}, dtype);
    const auto [output, weights] = attend(numbers({{0.0}}, dtype), numbers({{1.0}, {2.0}}, dtype),
                                          numbers({{4.0}, {8.0}}, dtype), {}, bias);
    const double t = dtype == DType::float64 ? 1e-14 : 1e-6;
    CHECK_NUMBERS(weights, {{0.25, 0.75}}, t);
    CHECK_NUMBERS(output, {{7.0}}, t);
    // d/db = p (v - output)
    CHECK_NUMBERS(grad(sum(output), bias)[0], {{-0.75, 0.75}}, 4 * t);
  }
}

TEST_CASE("ATT-017 a mask that shows all changes nothing, to the bit") {
  const LeakGuard guard;
  const Tensor all = tensor({{true, true, true}, {true, true, true}, {true, true, true}});
  for (const DType dtype : kFloats) {
    const Three x(dtype);
    const Tensor plain = attend(x.q, x.k, x.v).output;
    CHECK_NUMBERS(plain,
                  {{1.0952784967790588, -0.09527849677905884},
                   {1.213588688634236, -0.213588688634236},
                   {0.796632835637573, 0.20336716436242702}},
                  attention_tolerance(dtype));
    const Tensor w = numbers({{0.5, -1.0}, {2.0, 0.25}, {-0.75, 1.0}});
    const auto expected = x.gradients({}, w);
    for (const Mask& mask : {Mask::keep(all), Mask::masked_out(logical_not(all)),
                             Mask::key_padding({3}), Mask::sliding_window(2, 2)}) {
      CHECK(same_bits(attend(x.q, x.k, x.v, mask).output, plain));
      const auto got = x.gradients(mask, w);
      for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(got[i], expected[i]));
    }
  }
}

TEST_CASE("ATT-018 the future has exactly no gradient") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Three x(dtype);
    const auto g = x.gradients(Mask::causal(), numbers({{0.0, 0.0}, {2.0, 0.25}, {0.0, 0.0}}));
    const double t = attention_tolerance(dtype);
    CHECK_NUMBERS(g[0], {{0.0, 0.0}, {0.19250189031874204, 0.19250189031874204}, {0.0, 0.0}}, t);
    CHECK_NUMBERS(g[1],
                  {{0.27500270045534575, 0.1100010801821383},
                   {-0.27500270045534575, -0.1100010801821383},
                   {0.0, 0.0}},
                  t);
    CHECK_NUMBERS(g[2],
                  {{1.333252204200017, 0.16665652552500212},
                   {0.666747795799983, 0.08334347447499788},
                   {0.0, 0.0}},
                  t);
    CHECK(zero_row(g[1], 2));
    CHECK(zero_row(g[2], 2));
    CHECK(zero_row(g[0], 0));
    CHECK(zero_row(g[0], 2));
  }
}

TEST_CASE("ATT-018 sibling: the future has exactly no second derivative") {
  const LeakGuard guard;
  const Three x;
  const Tensor w = numbers({{0.0, 0.0}, {2.0, 0.25}, {0.0, 0.0}});
  const auto g = grad(attend(x.q, x.k, x.v, Mask::causal()).output, {x.q, x.k, x.v},
                      {.grad_outputs = {w}, .create_graph = true});
  const auto h = grad(sum(square(g[0])) + sum(square(g[1])) + sum(square(g[2])), {x.q, x.k, x.v});
  for (const Tensor& t : h) CHECK(all_finite(t));
  CHECK(zero_row(h[1], 2));
  CHECK(zero_row(h[2], 2));
  CHECK(zero_row(h[0], 0));
  CHECK(zero_row(h[0], 2));
}

TEST_CASE("ATT-021 causal masks of other than square scores name their alignment") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor q = leaf({{0.2}, {0.5}, {-0.3}, {0.8}}, dtype);
    const Tensor k = leaf({{0.7}, {-0.1}}, dtype);
    const Tensor v = leaf({{3.0}, {5.0}}, dtype);
    const Tensor lower = attend(q, k, v, Mask::causal(Align::lower_right)).output;
    CHECK_NUMBERS(lower, {{0.0}, {0.0}, {3.0}, {3.6904930787873615}}, attention_tolerance(dtype));
    const Tensor upper = attend(q, k, v, Mask::causal(Align::upper_left)).output;
    CHECK_NUMBERS(upper, {{3.0}, {3.802624679775096}, {4.119427298534386}, {3.6904930787873615}},
                  attention_tolerance(dtype));
    for (const Tensor& g : grad(sum(lower), {q, k, v})) CHECK(all_finite(g));
    CHECK_THROWS_SAYING(ShapeError, "softmax", "upper_left", attend(q, k, v, Mask::causal()));
    CHECK_THROWS_SAYING(ShapeError, "softmax", "lower_right", attend(q, k, v, Mask::causal()));
  }
}

TEST_CASE("ATT-024 a fully masked row is zeros in weights, output and gradients") {
  const LeakGuard guard;
  for (const DType dtype : kFloats) {
    const Tensor q = leaf({{1.0, 0.5}, {0.25, -1.0}}, dtype);
    const Tensor k = leaf({{0.5, 1.0}, {-1.0, 2.0}, {0.0, 0.75}}, dtype);
    const Tensor v = leaf({{1.0, 2.0}, {3.0, -1.0}, {0.5, 0.0}}, dtype);
    const Mask keep = Mask::keep(tensor({{true, false, true}, {false, false, false}}));
    const auto [output, weights] = attend(q, k, v, keep);
    CHECK_NUMBERS(output, {{0.8043608053578392, 1.2174432214313569}, {0.0, 0.0}},
                  attention_tolerance(dtype));
    CHECK(zero_row(output, 1));
    CHECK(zero_row(weights, 1));
    const auto g = grad(sum(square(output)) + sum(square(weights)), {q, k, v});
    for (const Tensor& t : g) CHECK(all_finite(t));
    CHECK(zero_row(g[0], 1));
    CHECK(zero_row(g[1], 1));
    CHECK(zero_row(g[2], 1));
  }
}

TEST_CASE("ATT-025 a huge finite bias gives the gradients of a mask") {
  const LeakGuard guard;
  const double low = -2.381976426469702e+38;
  for (const DType dtype : kFloats) {
    const Three x(dtype);
    const Tensor bias = numbers({{0.0, low, low}, {0.0, 0.0, low}, {0.0, 0.0, 0.0}}, dtype);
    const Tensor w = numbers({{0.5, -1.0}, {2.0, 0.25}, {-0.75, 1.0}});
    for (const auto& g : {x.gradients({}, w, bias), x.gradients(Mask::causal(), w)}) {
      const double t = attention_tolerance(dtype);
      CHECK_NUMBERS(g[0],
                    {{0.0, 0.0},
                     {0.19250189031874204, 0.19250189031874204},
                     {-0.3948803405101752, 0.027866859824859976}},
                    t, t / 10);
      CHECK_NUMBERS(g[1],
                    {{0.34170550639154473, 0.009946871277839843},
                     {-0.5002357065171829, 0.22784842891061743},
                     {0.15853020012563818, -0.23779530018845726}},
                    t, t / 10);
      CHECK_NUMBERS(g[2],
                    {{1.5019302360914208, -0.39158085033020285},
                     {0.38114609321837095, 0.46414574458381386},
                     {-0.13307632930979174, 0.17743510574638896}},
                    t, t / 10);
    }
  }
}

TEST_CASE("EMP-004 attention without queries, or without keys") {
  const LeakGuard guard;
  const TensorOptions options{.dtype = DType::float64, .requires_grad = true};
  const Tensor q = zeros({0, 2}, options);
  const Tensor k = leaf({{1.0, 2.0}});
  const Tensor v = leaf({{3.0}});
  const Tensor none = attend(q, k, v).output;
  CHECK(none.shape() == Shape{0, 1});
  const auto g =
      grad(none, {q, k, v}, {.grad_outputs = {zeros({0, 1}, {.dtype = DType::float64})}});
  CHECK(g[0].shape() == Shape{0, 2});
  CHECK_NUMBERS(g[1], {{0.0, 0.0}});
  CHECK_NUMBERS(g[2], {{0.0}});
  // Zero keys: zero output, zero gradient.
  const Tensor one = leaf({{1.0, 2.0}});
  const Tensor no_keys = zeros({0, 2}, options);
  const Tensor no_values = zeros({0, 3}, options);
  const Tensor zero = attend(one, no_keys, no_values).output;
  CHECK_NUMBERS(zero, zeros({1, 3}));
  CHECK_NUMBERS(grad(sum(zero), {one, no_keys, no_values})[0], {{0.0, 0.0}});
}

TEST_CASE("DRP-001 dropout of the weights on a single key") {
  const LeakGuard guard;
  const Tensor q = numbers({{1.0}, {2.0}, {-3.0}, {0.5}});
  const Tensor weights = attend(q, numbers({{1.0}}), numbers({{4.0}})).weights;
  const Tensor v = numbers({{4.0}});
  int dropped = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    for (const double x : matmul(dropout(weights, 0.6, rng), v).to_vector()) {
      const bool zero = x == 0;
      dropped += zero;
      CHECK((zero || std::abs(x - 10) <= 1e-14));
    }
  }
  CHECK(dropped > 80);  // of 200, 120 are expected
  CHECK(dropped < 160);
  Rng rng(0);
  CHECK_NUMBERS(matmul(dropout(weights, 0.6, rng, {.training = false}), v),
                {{4.0}, {4.0}, {4.0}, {4.0}});
}
