// Masks: what each shows, as a picture; combination; and what they refuse.
#include "attention/support.hpp"

using namespace attention_test;

TEST_CASE("masks print as pictures") {
  CHECK(Mask::causal().to_string({3, 3}) ==
        "# . .\n"
        "# # .\n"
        "# # #\n");
  CHECK(Mask::causal(Align::upper_left).to_string({3, 2}) ==
        "# .\n"
        "# #\n"
        "# #\n");
  CHECK(Mask::causal(Align::lower_right).to_string({2, 4}) ==
        "# # # .\n"
        "# # # #\n");
  CHECK(Mask::causal(Align::lower_right).to_string({4, 2}) ==
        ". .\n"
        ". .\n"
        "# .\n"
        "# #\n");
  CHECK(Mask::sliding_window(1, 1).to_string({4, 4}) ==
        "# # . .\n"
        "# # # .\n"
        ". # # #\n"
        ". . # #\n");
  CHECK(Mask::sliding_window(0, 0).to_string({2, 3}) ==
        ". # .\n"
        ". . #\n");
  CHECK(Mask::key_padding({1, 3}).to_string({2, 2, 3}) ==
        "# . .\n"
        "# . .\n"
        "\n"
        "# # #\n"
        "# # #\n");
  CHECK(Mask().to_string({1, 3}) == "# # #\n");
  CHECK(Mask::keep(flags({{true, false}})).to_string({2, 2}) == "# .\n# .\n");
  CHECK(Mask::masked_out(flags({{true, false}})).to_string({2, 2}) == ". #\n. #\n");
  CHECK((Mask::causal() & Mask::sliding_window(1, 5)).to_string({3, 3}) ==
        "# . .\n"
        "# # .\n"
        ". # #\n");
  CHECK(Mask::causal().to_string({0, 0}) == "");
}

TEST_CASE("& shows what both show, for every pair of masks") {
  Rng rng(1);
  const Shape scores{2, 3, 5, 5};
  const std::vector<Mask> masks{
      Mask(),
      Mask::causal(),
      Mask::causal(Align::upper_left),
      Mask::causal(Align::lower_right),
      Mask::sliding_window(2, 1),
      Mask::key_padding({2, 4}),
      Mask::keep(gt(rand(rng, {5, 5}, kDouble), 0.3)),
      Mask::masked_out(gt(rand(rng, {2, 1, 1, 5}, kDouble), 0.5)),
      Mask::keep(gt(rand(rng, {3, 1, 5}, kDouble), 0.3)),
  };
  for (const Mask& a : masks) {
    for (const Mask& b : masks) {
      CHECK_SAME((a & b).visible(scores), logical_and(a.visible(scores), b.visible(scores)));
      CHECK((a & b).empty() == (a.empty() && b.empty()));
    }
  }
}

TEST_CASE("attention and softmax see a mask as its picture") {
  Rng rng(2);
  const Tensor q = normals(rng, {2, 3, 5, 2});
  const Tensor k = normals(rng, {2, 3, 5, 2});
  for (const Mask& mask :
       {Mask::causal(), Mask::sliding_window(1, 1), Mask::key_padding({2, 5}),
        Mask::key_padding({3, 1}) & Mask::causal() & Mask::sliding_window(2, 0)}) {
    const Attention a = scaled_dot_product_attention(q, k, k, {.mask = mask});
    const Tensor visible = mask.visible({2, 3, 5, 5});
    CHECK_SAME(gt(a.weights, 0), visible);
    CHECK_SAME(gt(a.scores, -kInf), visible);
    CHECK_SAME(softmax(a.raw_scores, {.mask = mask}), softmax(where(visible, a.raw_scores, -kInf)));
  }
}

TEST_CASE("lengths beyond the keys show all of them") {
  CHECK(Mask::key_padding({7}).to_string({1, 2}) == "# #\n");
  CHECK(Mask::key_padding({0}).to_string({1, 2}) == ". .\n");
}

TEST_CASE("windows as large as numbers go do not overflow") {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK(Mask::sliding_window(huge, 0).to_string({2, 2}) == "# .\n# #\n");
  CHECK(Mask::sliding_window(huge - 1, huge - 1).to_string({2, 2}) == "# #\n# #\n");
}

TEST_CASE("masks refuse what makes no sense") {
  CHECK_REFUSED(ValueError, "[mask] a window must not be negative", Mask::sliding_window(-1, 0));
  CHECK_REFUSED(ValueError, "[mask] lengths must not be negative: lengths[1] is -3",
                Mask::key_padding({1, -3}));
  CHECK_REFUSED(ValueError, "[mask] key_padding needs at least one length", Mask::key_padding({}));
  CHECK_REFUSED(ShapeError, "[mask] paddings must have one number of lengths",
                Mask::key_padding({1}) & Mask::key_padding({1, 2}));
  CHECK_REFUSED(ShapeError, "[mask] Mask::causal() needs as many queries as keys",
                Mask::causal().visible({2, 3}));
  static_assert(!std::is_convertible_v<Tensor, Mask>, "a bare boolean tensor is not a mask");
}
