// Against PyTorch and NumPy: values, gradients and second derivatives of every variant they have.
// The inputs are NumPy's streams, drawn here by Rng in the same order.
#include <functional>

#include "attention/support.hpp"
#include "golden/attention_golden.hpp"

using namespace attention_test;

namespace {

struct Variant {
  const char* name;
  std::vector<Shape> shapes;
  std::function<Attention(const std::vector<Tensor>&, bool)> attend;
};

Variant dot(const char* name, std::vector<Shape> shapes, AttentionOptions options = {}) {
  return {name, std::move(shapes), [options](const std::vector<Tensor>& x, bool need_weights) {
            AttentionOptions o = options;
            o.need_weights = need_weights;
            return scaled_dot_product_attention(x[0], x[1], x[2], o);
          }};
}

std::vector<Variant> variants() {
  const std::vector<Shape> qkv{{2, 3, 4}, {2, 5, 4}, {2, 5, 2}};
  const std::vector<Shape> square{{3, 4}, {3, 4}, {3, 2}};
  const std::vector<Shape> two{{2, 3, 4}, {2, 3, 4}, {2, 3, 4}};
  const auto with = [](std::vector<Shape> shapes, const Shape& last) {
    shapes.push_back(last);
    return shapes;
  };
  const Mask keep = Mask::keep(flags({{true, false, true, true, false},
                                      {false, true, true, false, false},
                                      {true, true, true, true, true}}));
  std::vector<Variant> all{
      dot("plain", qkv),
      dot("four axes", {{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}}),
      dot("keep", qkv, {.mask = keep}),
      dot("causal", square, {.mask = Mask::causal()}),
      dot("scale 0.3", qkv, {.scale = Scale::value(0.3)}),
      dot("soft cap", qkv, {.soft_cap = 0.5}),
      dot("qk norm", qkv, {.qk_norm = true}),
      dot("heads", two, {.heads = 2}),
      dot("heads, causal", two, {.mask = Mask::causal(), .heads = 2}),
      dot("heads, padding", two, {.mask = Mask::key_padding({2, 3}), .heads = 2}),
  };
  all.push_back({"bias", with(qkv, {3, 5}), [](const std::vector<Tensor>& x, bool need_weights) {
                   return scaled_dot_product_attention(
                       x[0], x[1], x[2], {.bias = x[3], .need_weights = need_weights});
                 }});
  all.push_back({"learned", with(qkv, {}), [](const std::vector<Tensor>& x, bool need_weights) {
                   return scaled_dot_product_attention(
                       x[0], x[1], x[2],
                       {.scale = Scale::learned(x[3]), .need_weights = need_weights});
                 }});
  all.push_back({"additive",
                 {{3, 2}, {4, 3}, {4, 2}, {2, 5}, {3, 5}, {5}},
                 [](const std::vector<Tensor>& x, bool need_weights) {
                   return additive_attention(x[0], x[1], x[2], {x[3], x[4], x[5]},
                                             {.need_weights = need_weights});
                 }});
  all.push_back({"linear", qkv, [](const std::vector<Tensor>& x, bool need_weights) {
                   return linear_attention(x[0], x[1], x[2], {.need_weights = need_weights});
                 }});
  all.push_back({"linear, causal", square, [](const std::vector<Tensor>& x, bool need_weights) {
                   return linear_attention(x[0], x[1], x[2],
                                           {.causal = true, .need_weights = need_weights});
                 }});
  return all;
}

}  // namespace

TEST_CASE("values, gradients and second derivatives are PyTorch's") {
  int compared = 0;
  for (const Variant& v : variants()) {
    const auto found =
        std::find_if(golden::attention::cases.begin(), golden::attention::cases.end(),
                     [&](const auto& c) { return c.name == std::string(v.name); });
    REQUIRE(found != golden::attention::cases.end());
    const golden::attention::Case& want = *found;
    for (const bool need_weights : {true, false}) {
      CAPTURE(v.name);
      CAPTURE(need_weights);
      Rng rng(want.seed);
      std::vector<Tensor> x;
      for (const Shape& shape : v.shapes) x.push_back(normals(rng, shape).requires_grad_());
      const Attention a = v.attend(x, need_weights);
      const Tensor gy = normals(rng, a.output.shape());
      std::vector<Tensor> directions;
      for (const Shape& shape : v.shapes) directions.push_back(normals(rng, shape));

      CHECK_NUMBERS(a.output, want.output, 1e-12, 1e-14);
      if (need_weights) CHECK_NUMBERS(a.weights, want.weights, 1e-12, 1e-15);
      const std::vector<Tensor> plain = gradients(a.output, x, gy, false);
      const std::vector<Tensor> first = gradients(v.attend(x, need_weights).output, x, gy, true);
      const std::vector<Tensor> twice = second(first, x, directions);
      for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(i);
        CHECK_NUMBERS(plain[i], want.gradients[i], 1e-12, 1e-13);
        CHECK_NUMBERS(first[i], want.gradients[i], 1e-12, 1e-13);
        CHECK_NUMBERS(twice[i], want.second[i], 1e-12, 1e-13);
      }
      ++compared;
    }
  }
  CHECK(compared == 2 * static_cast<int>(golden::attention::cases.size()));
}
