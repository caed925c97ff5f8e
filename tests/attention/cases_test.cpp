// Hard cases collected from public bug reports, by their ids: attention, masks, scale, on both
// paths. Those of softmax alone are in tests/cases/.
#include "attention/support.hpp"

using namespace attention_test;

namespace {

using Numbers = std::vector<double>;

// Three queries, three keys: the example that many of the cases share.
const Tensor kCaseQ = mat({{0.3, -0.1}, {1.0, 0.4}, {-0.6, 0.9}});
const Tensor kCaseK = mat({{0.2, 0.8}, {-0.5, 0.1}, {0.7, -0.3}});
const Tensor kCaseV = mat({{1.0, 0.0}, {0.0, 1.0}, {2.0, -1.0}});

// Both paths: outputs, and gradients of sum(w * output).
struct Result {
  Attention a;
  std::vector<Tensor> g;
};
std::vector<Result> both(const std::vector<Tensor>& qkv, AttentionOptions options,
                         const Tensor& w = {}) {
  std::vector<Result> results;
  for (const bool need_weights : {true, false}) {
    options.need_weights = need_weights;
    const std::vector<Tensor> x = leaves(qkv);
    Result r;
    r.a = scaled_dot_product_attention(x[0], x[1], x[2], options);
    if (w.defined()) r.g = gradients(r.a.output, x, w);
    results.push_back(r);
  }
  return results;
}

}  // namespace

TEST_CASE("ATT-006: logsumexp over kept entries beside a huge excluded one") {
  // The scores themselves: q = 1 against keys 5, 4 and 1e4.
  const Mask keep = Mask::keep(flags({{true, true, false}}));
  for (const Result& r :
       both({mat({{1}}), mat({{5}, {4}, {10000}}), mat({{1}, {2}, {3}})}, {.mask = keep})) {
    CHECK_NUMBERS(r.a.logsumexp, (Numbers{5.313261687518223}), 1e-12, 0);
  }
}

TEST_CASE("ATT-009: NaN in an excluded value row") {
  const Tensor v = tensor(Numbers{1, 2, kNaN, -1, 0.5, 0}, {3, 2}, kDouble);
  const Mask keep = Mask::keep(flags({{true, false, true}, {true, false, false}}));
  const auto results =
      both({mat({{1, 0.5}, {0.25, -1}}), mat({{0.5, 1}, {-1, 2}, {0, 0.75}}), v}, {.mask = keep});
  for (const Result& r : results) {
    CHECK_NUMBERS(select(r.a.output, -1, 1), (Numbers{1.2174432214313569, 2}), 1e-12, 0);
  }
  CHECK(any_nan(select(results[0].a.output, -1, 0)));  // composed: 0 times NaN, as IEEE has it
  CHECK_NUMBERS(select(results[1].a.output, -1, 0), (Numbers{0.8043608053578392, 1}), 1e-12, 0);
}

TEST_CASE("ATT-010, ATT-012: genuine scores below any finite fill") {
  for (const Result& r :
       both({mat({{1}}), mat({{-200000}, {3}}), mat({{7}, {8}})},
            {.mask = Mask::keep(flags({{true, false}})), .scale = Scale::none()})) {
    CHECK(r.a.output.item() == 7);
  }
}

TEST_CASE("ATT-013: mask polarity") {
  const Tensor lower = flags({{true, false, false}, {true, true, false}, {true, true, true}});
  const Numbers output{
      1, 0, 0.6666261021000085, 0.3333738978999915, 0.796632835637573, 0.20336716436242702};
  const Numbers weights{1,
                        0,
                        0,
                        0.6666261021000085,
                        0.3333738978999915,
                        0,
                        0.44176262414479506,
                        0.380802270108816,
                        0.17743510574638896};
  for (const Mask& mask :
       {Mask::keep(lower), Mask::masked_out(logical_not(lower)), Mask::causal()}) {
    const auto results = both({kCaseQ, kCaseK, kCaseV}, {.mask = mask});
    CHECK_NUMBERS(results[0].a.weights, weights, 1e-12, 0);
    for (const Result& r : results) CHECK_NUMBERS(r.a.output, output, 1e-12, 1e-14);
  }
}

TEST_CASE("ATT-015: a float mask is an additive bias") {
  const auto results = both({mat({{0}}), mat({{1}, {2}}), mat({{4}, {8}})},
                            {.bias = mat({{0, 1.0986122886681098}}), .scale = Scale::value(1)});
  CHECK_NUMBERS(results[0].a.weights, (Numbers{0.25, 0.75}), 1e-14, 0);
  for (const Result& r : results) CHECK_NUMBERS(r.a.output, (Numbers{7}), 1e-14, 0);
}

TEST_CASE("ATT-017: a mask that keeps all is no mask") {
  const Numbers output{1.0952784967790588, -0.09527849677905884, 1.213588688634236,
                       -0.213588688634236, 0.796632835637573,    0.20336716436242702};
  const Mask all = Mask::keep(ones({3, 3}, {.dtype = DType::boolean}));
  const auto with = both({kCaseQ, kCaseK, kCaseV}, {.mask = all});
  const auto without = both({kCaseQ, kCaseK, kCaseV}, {});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK_NUMBERS(with[i].a.output, output, 1e-12, 0);
    CHECK_SAME(with[i].a.output, without[i].a.output);
  }
}

TEST_CASE("ATT-018: gradients from the future are exactly zero") {
  for (const Result& r :
       both({kCaseQ, kCaseK, kCaseV}, {.mask = Mask::causal()}, mat({{0, 0}, {2, 0.25}, {0, 0}}))) {
    CHECK_NUMBERS(r.g[0], (Numbers{0, 0, 0.19250189031874204, 0.19250189031874204, 0, 0}), 1e-12,
                  1e-14);
    CHECK_NUMBERS(r.g[1],
                  (Numbers{0.27500270045534575, 0.1100010801821383, -0.27500270045534575,
                           -0.1100010801821383, 0, 0}),
                  1e-12, 1e-14);
    CHECK_NUMBERS(r.g[2],
                  (Numbers{1.333252204200017, 0.16665652552500212, 0.666747795799983,
                           0.08334347447499788, 0, 0}),
                  1e-12, 1e-14);
    CHECK(all_zero(r.g[0][0]));
    CHECK(all_zero(r.g[0][2]));
    CHECK(all_zero(r.g[1][2]));
    CHECK(all_zero(r.g[2][2]));
  }
}

TEST_CASE("ATT-021: causal with 4 queries and 2 keys") {
  const std::vector<Tensor> x{mat({{0.2}, {0.5}, {-0.3}, {0.8}}), mat({{0.7}, {-0.1}}),
                              mat({{3}, {5}})};
  for (const Result& r : both(x, {.mask = Mask::causal(Align::lower_right)})) {
    CHECK_NUMBERS(r.a.output, (Numbers{0, 0, 3, 3.6904930787873615}), 1e-12, 0);
  }
  for (const Result& r : both(x, {.mask = Mask::causal(Align::upper_left)})) {
    CHECK_NUMBERS(r.a.output,
                  (Numbers{3, 3.802624679775096, 4.119427298534386, 3.6904930787873615}), 1e-12, 0);
  }
}

TEST_CASE("ATT-024: asking for weights does not change masking") {
  const Mask keep = Mask::keep(flags({{true, false, true}, {false, false, false}}));
  const auto results = both({mat({{1, 0.5}, {0.25, -1}}), mat({{0.5, 1}, {-1, 2}, {0, 0.75}}),
                             mat({{1, 2}, {3, -1}, {0.5, 0}})},
                            {.mask = keep});
  for (const Result& r : results) {
    CHECK_NUMBERS(r.a.output, (Numbers{0.8043608053578392, 1.2174432214313569, 0, 0}), 1e-12, 0);
  }
  CHECK_FALSE(any_nan(results[0].a.weights));
}

TEST_CASE("ATT-025: a large finite bias gives the gradients of the mask") {
  const double low = -0.7 * std::numeric_limits<float>::max();
  const Tensor w = mat({{0.5, -1}, {2, 0.25}, {-0.75, 1}});
  const Numbers gq{
      0, 0, 0.19250189031874204, 0.19250189031874204, -0.3948803405101752, 0.027866859824859976};
  const Numbers gk{0.34170550639154473, 0.009946871277839843, -0.5002357065171829,
                   0.22784842891061743, 0.15853020012563818,  -0.23779530018845726};
  const Numbers gv{1.5019302360914208,  -0.39158085033020285, 0.38114609321837095,
                   0.46414574458381386, -0.13307632930979174, 0.17743510574638896};
  for (const AttentionOptions& options :
       {AttentionOptions{.bias = mat({{0, low, low}, {0, 0, low}, {0, 0, 0}})},
        AttentionOptions{.mask = Mask::causal()}}) {
    for (const Result& r : both({kCaseQ, kCaseK, kCaseV}, options, w)) {
      CHECK_NUMBERS(r.g[0], gq, 1e-12, 1e-14);
      CHECK_NUMBERS(r.g[1], gk, 1e-12, 1e-14);
      CHECK_NUMBERS(r.g[2], gv, 1e-12, 1e-14);
    }
  }
}

TEST_CASE("SCL-001: the default scale is 1/sqrt(dk)") {
  const std::vector<Tensor> x{mat({{1, -0.5, 0.25, 2}, {0, 1.5, -1, 0.5}}),
                              mat({{0.5, 0.5, -0.5, 1}, {1, 0, 0.75, -0.25}, {-1, 2, 0.1, 0.3}}),
                              mat({{1, 2, 3}, {-1, 0.5, 0}, {2, 2, -2}})};
  const auto results = both(x, {}, mat({{1, 0, -1}, {0.5, -0.5, 2}}));
  CHECK_NUMBERS(results[0].a.weights,
                (Numbers{0.6019980241589474, 0.2933904052335759, 0.10461157060747663,
                         0.3140025830444919, 0.08451264871795734, 0.6014847682375507}),
                1e-12, 0);
  for (const Result& r : results) {
    CHECK_NUMBERS(r.a.output,
                  (Numbers{0.5178307601403248, 1.5599143921496361, 1.5967709312618892,
                           1.432459470801636, 1.873231026923064, -0.26096178734162584}),
                  1e-12, 1e-14);
    CHECK_NUMBERS(r.g[0],
                  (Numbers{-0.39269685904318385, 0.39269685904318385, 0.17386995299333213,
                           -0.20043574840945377, 1.4694259887233336, -1.4694259887233336,
                           -0.5882416142925566, 0.6862141794902783}),
                  1e-12, 1e-14);
    CHECK_NUMBERS(r.g[1],
                  (Numbers{-0.2772380985584983, 1.6086949949725458, -1.0493601551018223,
                           -0.06445088188589766, 0.011580144397281786, -0.006277539926113113,
                           0.0032200145843019265, 0.022997799552072835, 0.26565795416121646,
                           -1.6024174550464327, 1.0461401405175204, 0.041453082333824824}),
                  1e-12, 1e-14);
    CHECK_NUMBERS(r.g[2],
                  (Numbers{0.7589993156811934, -0.15700129152224596, 0.026007141930036354,
                           0.3356467295925546, -0.04225632435897867, -0.12436510779766125,
                           0.405353954726252, -0.30074238411877535, 1.0983579658676248}),
                  1e-12, 1e-14);
  }
}

TEST_CASE("SCL-004: the scale multiplies") {
  const std::vector<Tensor> x{mat({{1}}), mat({{1}, {0}}), mat({{1}, {0}})};
  const auto results = both(x, {.scale = Scale::value(2)});
  CHECK_NUMBERS(results[0].a.weights, (Numbers{0.8807970779778824, 0.11920292202211756}), 1e-12, 0);
  CHECK_NUMBERS(results[1].a.output, (Numbers{0.8807970779778824}), 1e-12, 0);
}

TEST_CASE("SCL-008: a scale that is not finite is refused") {
  for (const double bad : {kNaN, kInf, -kInf}) {
    CHECK_REFUSED(ValueError, "[scale] the factor must be finite", Scale::value(bad));
  }
}

TEST_CASE("EMP-004: attention without queries") {
  for (const Result& r :
       both({zeros({0, 2}, kDouble), mat({{1, 2}}), mat({{3}})}, {}, zeros({0, 1}, kDouble))) {
    CHECK(r.a.output.shape() == Shape{0, 1});
    CHECK_NUMBERS(r.g[1], (Numbers{0, 0}), 0, 0);
    CHECK_NUMBERS(r.g[2], (Numbers{0}), 0, 0);
  }
}

TEST_CASE("DRP-001: dropout on a single key is 0 or 2.5, never renormalised") {
  const std::vector<Tensor> x{mat({{1}, {2}, {-3}, {0.5}}), mat({{1}}), mat({{4}})};
  int dropped = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (const bool need_weights : {true, false}) {
      Rng rng(seed);
      const Attention a = scaled_dot_product_attention(
          x[0], x[1], x[2], {.dropout = 0.6, .rng = &rng, .need_weights = need_weights});
      for (const double o : a.output.to_vector()) {
        CHECK((o == 0 || o == 10));
        dropped += o == 0;
      }
    }
  }
  CHECK(dropped > 100);
  CHECK(dropped < 200);
  CHECK_NUMBERS(scaled_dot_product_attention(x[0], x[1], x[2]).output, (Numbers{4, 4, 4, 4}), 0, 0);
}

TEST_CASE("DRP-004, DRP-005, DRP-007: dropout at 1, outside [0, 1], and at 0") {
  Rng rng(1);
  const std::vector<Tensor> x = leaves({kCaseQ, kCaseK, kCaseV});
  const Attention none =
      scaled_dot_product_attention(x[0], x[1], x[2], {.dropout = 1, .rng = &rng});
  CHECK(all_zero(none.output));
  for (const Tensor& g : gradients(none.output, x, ones_like(none.output))) CHECK(all_zero(g));
  for (const double p : {-0.1, 1.5, kNaN}) {
    CHECK_REFUSED(
        ValueError, "[scaled_dot_product_attention] dropout must lie in [0, 1]",
        scaled_dot_product_attention(kCaseQ, kCaseK, kCaseV, {.dropout = p, .rng = &rng}));
  }
  Rng untouched(3);
  const Attention off =
      scaled_dot_product_attention(kCaseQ, kCaseK, kCaseV, {.dropout = 0, .rng = &untouched});
  CHECK_SAME(off.output, scaled_dot_product_attention(kCaseQ, kCaseK, kCaseV).output);
  CHECK(untouched.next_uint64() == Rng(3).next_uint64());
}
