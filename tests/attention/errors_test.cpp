// What attention refuses, by type, tag and the argument it names; a refused call changes nothing.
#include "attention/support.hpp"

using namespace attention_test;

namespace {

const Tensor kQ = zeros({3, 4}, kDouble);
const Tensor kK = zeros({5, 4}, kDouble);
const Tensor kV = zeros({5, 2}, kDouble);

}  // namespace

#define TAG "[scaled_dot_product_attention] "
#define REFUSED(E, rule, ...) CHECK_REFUSED(E, TAG rule, __VA_ARGS__)

TEST_CASE("attention refuses sizes that do not fit, on both paths") {
  for (const bool need_weights : {true, false}) {
    CAPTURE(need_weights);
    const auto attend = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                            AttentionOptions options = {}) {
      options.need_weights = need_weights;
      return scaled_dot_product_attention(q, k, v, options);
    };
    REFUSED(ShapeError, "queries and keys must have one width dk: q is (3, 4), k is (5, 3), 4 != 3",
            attend(kQ, zeros({5, 3}, kDouble), kV));
    REFUSED(ShapeError, "needs one value per key: k is (5, 4), v is (6, 2), 5 != 6",
            attend(kQ, kK, zeros({6, 2}, kDouble)));
    REFUSED(ShapeError, "leading axes must broadcast: q is (2, 3, 4), k is (3, 5, 4)",
            attend(zeros({2, 3, 4}, kDouble), zeros({3, 5, 4}, kDouble), kV));
    REFUSED(ShapeError, "leading axes must broadcast: q is (2, 3, 4), v is (3, 5, 2)",
            attend(zeros({2, 3, 4}, kDouble), kK, zeros({3, 5, 2}, kDouble)));
    REFUSED(ShapeError, "needs rank 2 or more: q is (4,)", attend(zeros({4}, kDouble), kK, kV));
    REFUSED(ShapeError, "needs rank 2 or more", attend(kQ, kK, zeros({5}, kDouble)));
    REFUSED(ShapeError, "dk must be 1 or more: q is (3, 0), k is (5, 0)",
            attend(zeros({3, 0}, kDouble), zeros({5, 0}, kDouble), kV));

    REFUSED(ShapeError, "the mask must broadcast to the scores: mask is (2, 5), scores are (3, 5)",
            attend(kQ, kK, kV, {.mask = Mask::keep(ones({2, 5}, {.dtype = DType::boolean}))}));
    REFUSED(ShapeError, "the mask must broadcast to the scores: mask is (2, 3, 5)",
            attend(kQ, kK, kV, {.mask = Mask::keep(ones({2, 3, 5}, {.dtype = DType::boolean}))}));
    REFUSED(ShapeError, "Mask::causal() needs as many queries as keys: scores are (3, 5), 3 != 5",
            attend(kQ, kK, kV, {.mask = Mask::causal()}));
    REFUSED(ShapeError, "key_padding needs one length per sequence",
            attend(zeros({2, 3, 4}, kDouble), kK, kV, {.mask = Mask::key_padding({1, 2, 3})}));
    REFUSED(ShapeError, "bias must broadcast to the scores: bias is (5, 3), scores are (3, 5)",
            attend(kQ, kK, kV, {.bias = zeros({5, 3}, kDouble)}));
    REFUSED(ShapeError, "bias must broadcast to the scores: bias is (2, 3, 5)",
            attend(kQ, kK, kV, {.bias = zeros({2, 3, 5}, kDouble)}));
  }
}

TEST_CASE("the message on a causal mask names both alignments") {
  std::string message;
  try {
    scaled_dot_product_attention(kQ, kK, kV, {.mask = Mask::causal()});
  } catch (const ShapeError& error) {
    message = error.what();
  }
  CHECK(message.find("Align::upper_left") != std::string::npos);
  CHECK(message.find("Align::lower_right") != std::string::npos);
}

TEST_CASE("attention refuses dtypes that do not fit") {
  const Tensor whole = zeros({3, 4}, {.dtype = DType::int64});
  const Tensor single = zeros({5, 4}, {.dtype = DType::float32});
  REFUSED(DtypeError, "q must be float32 or float64: got int64",
          scaled_dot_product_attention(whole, kK, kV));
  REFUSED(DtypeError, "k must be float32 or float64: got int64",
          scaled_dot_product_attention(kQ, whole, kV));
  REFUSED(DtypeError, "v must be float32 or float64: got boolean",
          scaled_dot_product_attention(kQ, kK, ones({5, 2}, {.dtype = DType::boolean})));
  REFUSED(DtypeError, "q and k must have one dtype", scaled_dot_product_attention(kQ, single, kV));
  REFUSED(DtypeError, "q and v must have one dtype", scaled_dot_product_attention(kQ, kK, single));
  REFUSED(
      DtypeError, "bias must have the dtype of q: got float32 and float64",
      scaled_dot_product_attention(kQ, kK, kV, {.bias = zeros({5}, {.dtype = DType::float32})}));
  REFUSED(
      DtypeError, "bias must be float32 or float64: got boolean",
      scaled_dot_product_attention(kQ, kK, kV, {.bias = ones({3, 5}, {.dtype = DType::boolean})}));
  REFUSED(DtypeError, "a learned scale must have the dtype of q: got float32 and float64",
          scaled_dot_product_attention(
              kQ, kK, kV, {.scale = Scale::learned(ones({}, {.dtype = DType::float32}))}));
  CHECK_REFUSED(DtypeError, "[mask] the mask must be boolean", Mask::keep(kQ));
  CHECK_REFUSED(DtypeError, "[mask] the mask must be boolean", Mask::masked_out(whole));
}

TEST_CASE("attention refuses settings out of range") {
  Rng rng(1);
  REFUSED(ValueError, "dropout must lie in [0, 1]: got 1.5",
          scaled_dot_product_attention(kQ, kK, kV, {.dropout = 1.5, .rng = &rng}));
  REFUSED(ValueError, "dropout of 0.5 needs a generator",
          scaled_dot_product_attention(kQ, kK, kV, {.dropout = 0.5}));
  REFUSED(ValueError, "soft_cap must be finite and not negative: got -1",
          scaled_dot_product_attention(kQ, kK, kV, {.soft_cap = -1}));
  REFUSED(ValueError, "soft_cap must be finite and not negative: got inf",
          scaled_dot_product_attention(kQ, kK, kV, {.soft_cap = kInf}));
  REFUSED(ValueError, "soft_cap must be finite and not negative: got nan",
          scaled_dot_product_attention(kQ, kK, kV, {.soft_cap = kNaN}));
  REFUSED(ValueError, "heads must not be negative: got -2",
          scaled_dot_product_attention(kQ, kK, kV, {.heads = -2}));
  REFUSED(ShapeError,
          "the last axis must split into heads, rank 5 or less: q is (3, 4), heads is 3",
          scaled_dot_product_attention(kQ, kK, kV, {.heads = 3}));
  REFUSED(ShapeError,
          "the last axis must split into heads, rank 5 or less: v is (5, 2), heads is 4",
          scaled_dot_product_attention(kQ, kK, kV, {.heads = 4}));
  const auto single = [](const Shape& shape) { return zeros(shape, {.dtype = DType::float32}); };
  REFUSED(ValueError, "scale must be finite in float32: got 1e+300",
          scaled_dot_product_attention(single({3, 4}), single({5, 4}), single({5, 2}),
                                       {.scale = Scale::value(1e300)}));
  CHECK_REFUSED(ShapeError, "[scale] a learned factor is one number: got (2,)",
                Scale::learned(ones({2}, kDouble)));
  CHECK_REFUSED(DtypeError, "[scale] the learned factor must be float32 or float64: got int64",
                Scale::learned(ones({}, {.dtype = DType::int64})));
  CHECK_REFUSED(GraphError, "[scale] the learned factor is an undefined tensor",
                Scale::learned(Tensor()));
}

TEST_CASE("attention refuses undefined tensors by name") {
  REFUSED(GraphError, "q is an undefined tensor", scaled_dot_product_attention(Tensor(), kK, kV));
  REFUSED(GraphError, "k is an undefined tensor", scaled_dot_product_attention(kQ, Tensor(), kV));
  REFUSED(GraphError, "v is an undefined tensor", scaled_dot_product_attention(kQ, kK, Tensor()));
}

TEST_CASE("a refused call draws nothing and a missing result says so") {
  Rng rng(4);
  CHECK_THROWS_AS(scaled_dot_product_attention(
                      kQ, kK, kV, {.bias = zeros({9}, kDouble), .dropout = 0.5, .rng = &rng}),
                  ShapeError);
  CHECK(rng.next_uint64() == Rng(4).next_uint64());
  const Attention a = scaled_dot_product_attention(kQ, kK, kV, {.need_weights = false});
  CHECK_THROWS_AS(sum(a.weights), GraphError);
  CHECK_THROWS_AS(a.scores.shape(), GraphError);
}

TEST_CASE("additive attention refuses by name") {
  const Tensor wq = zeros({4, 6}, kDouble);
  const Tensor uk = zeros({4, 6}, kDouble);
  const Tensor score = zeros({6}, kDouble);
#define ADDITIVE(E, rule, ...) CHECK_REFUSED(E, "[additive_attention] " rule, __VA_ARGS__)
  ADDITIVE(ShapeError, "wq must be (dq, h): q is (3, 4), wq is (3, 6)",
           additive_attention(kQ, kK, kV, {zeros({3, 6}, kDouble), uk, score}));
  ADDITIVE(ShapeError, "uk must be (dk, h): k is (5, 4), uk is (6,)",
           additive_attention(kQ, kK, kV, {wq, score, score}));
  ADDITIVE(ShapeError, "wq, uk and score must have one h",
           additive_attention(kQ, kK, kV, {wq, uk, zeros({5}, kDouble)}));
  ADDITIVE(ShapeError, "needs one value per key", additive_attention(kQ, kK, kQ, {wq, uk, score}));
  ADDITIVE(ShapeError, "Mask::causal() needs as many queries as keys",
           additive_attention(kQ, kK, kV, {wq, uk, score}, {.mask = Mask::causal()}));
  ADDITIVE(ShapeError, "bias must broadcast to the scores",
           additive_attention(kQ, kK, kV, {wq, uk, score}, {.bias = zeros({4}, kDouble)}));
  ADDITIVE(ValueError, "dropout must lie in [0, 1]: got -1",
           additive_attention(kQ, kK, kV, {wq, uk, score}, {.dropout = -1}));
  ADDITIVE(DtypeError, "q and wq must have one dtype",
           additive_attention(kQ, kK, kV, {zeros({4, 6}, {.dtype = DType::float32}), uk, score}));
  ADDITIVE(GraphError, "score is an undefined tensor",
           additive_attention(kQ, kK, kV, {wq, uk, {}}));
  const Tensor six = zeros({1, 1, 1, 1, 3, 4}, kDouble);
  ADDITIVE(ShapeError, "needs rank 5 or less", additive_attention(six, kK, kV, {wq, uk, score}));
}

TEST_CASE("linear attention refuses by name") {
#define LINEAR(E, rule, ...) CHECK_REFUSED(E, "[linear_attention] " rule, __VA_ARGS__)
  LINEAR(ShapeError, "causal needs as many queries as keys: q is (3, 4), k is (5, 4)",
         linear_attention(kQ, kK, kV, {.causal = true}));
  LINEAR(ShapeError, "queries and keys must have one width dk, 1 or more: q is (3, 4), k is (5, 2)",
         linear_attention(kQ, kV, kV));
  LINEAR(ShapeError, "queries and keys must have one width dk, 1 or more",
         linear_attention(zeros({3, 0}, kDouble), zeros({5, 0}, kDouble), kV));
  LINEAR(ShapeError, "needs one value per key", linear_attention(kQ, kK, kQ));
  LINEAR(ShapeError, "needs rank 5 or less",
         linear_attention(zeros({1, 1, 1, 1, 3, 4}, kDouble), kK, kV));
  LINEAR(DtypeError, "q must be float32 or float64: got int64",
         linear_attention(zeros({3, 4}, {.dtype = DType::int64}), kK, kV));
  LINEAR(GraphError, "v is an undefined tensor", linear_attention(kQ, kK, Tensor()));
  CHECK_REFUSED(DtypeError, "[elu_plus_one] x must be float32 or float64",
                elu_plus_one(zeros({2}, {.dtype = DType::int64})));
}
