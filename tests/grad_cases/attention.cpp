// Rows of attention: every variant on both paths, against sums in plain loops.
#include "softtape/attention/attention.hpp"

#include <cmath>

#include "grad_cases/cases.hpp"
#include "softtape/attention/additive.hpp"
#include "softtape/attention/linear.hpp"
#include "softtape/attention/mask_scores.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// Whether query i of sequence b sees key j.
using Sees = std::function<bool(std::int64_t b, std::int64_t i, std::int64_t j)>;
bool every_key(std::int64_t, std::int64_t, std::int64_t) { return true; }

// BroadcastMatrices on the last two axes, the leading ones broadcast to those of the result.
struct BroadcastMatrices {
  const Array& array;
  Shape lead;  // of the result
  Shape own;   // of this array
  std::int64_t rows, columns;

  BroadcastMatrices(const Array& from, const Shape& lead_of_result)
      : array(from), lead(lead_of_result), rows(from.shape.dim(-2)), columns(from.shape.dim(-1)) {
    own = from.shape.without(from.shape.rank() - 1).without(from.shape.rank() - 2);
  }
  long double operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t matrix = own.rank() ? broadcast_position(b, lead, own) : 0;
    return array[(matrix * rows + i) * columns + j];
  }
};

// The score of query i and key j in sequence b, from the inputs of a row.
using Score = std::function<long double(const Arrays&, const Shape& lead, std::int64_t b,
                                        std::int64_t i, std::int64_t j)>;
enum class Weights { softmax, share };  // exp(s) / sum exp(s), or s / sum s

// sum_j w_ij v_j with v the third input.
Reference attended(Score score, Sees sees, Weights kind = Weights::softmax) {
  return [=](const Arrays& x) {
    const auto lead_of = [](const Shape& s) {
      return s.without(s.rank() - 1).without(s.rank() - 2);
    };
    Shape lead = broadcast("reference", lead_of(x[0].shape), lead_of(x[1].shape));
    lead = broadcast("reference", lead, lead_of(x[2].shape));
    const BroadcastMatrices v(x[2], lead);
    const std::int64_t n = x[0].shape.dim(-2);
    Array y(lead.inserted(lead.rank(), n).inserted(lead.rank() + 1, v.columns));
    for (std::int64_t b = 0; b < lead.numel(); ++b) {
      for (std::int64_t i = 0; i < n; ++i) {
        long double total = 0;
        std::vector<long double> w(static_cast<std::size_t>(v.rows), 0.0L);
        for (std::int64_t j = 0; j < v.rows; ++j) {
          if (!sees(b, i, j)) continue;
          const long double s = score(x, lead, b, i, j);
          total += w[static_cast<std::size_t>(j)] = kind == Weights::softmax ? std::exp(s) : s;
        }
        for (std::int64_t j = 0; j < v.rows && total != 0; ++j) {
          for (std::int64_t c = 0; c < v.columns; ++c) {
            y[(b * n + i) * v.columns + c] += w[static_cast<std::size_t>(j)] / total * v(b, j, c);
          }
        }
      }
    }
    return y;
  };
}

struct DotSettings {
  long double scale = 0;  // 0: 1/sqrt(dk)
  bool bias = false;      // the fourth input
  bool learned = false;   // the fourth input is the scale
  long double cap = 0;
  bool norm = false;
};

Score dot_score(DotSettings set) {
  return [=](const Arrays& x, const Shape& lead, std::int64_t b, std::int64_t i, std::int64_t j) {
    const BroadcastMatrices q(x[0], lead), k(x[1], lead);
    const std::int64_t dk = q.columns;
    long double qk = 0, qq = 0, kk = 0;
    for (std::int64_t d = 0; d < dk; ++d) {
      qk += q(b, i, d) * k(b, j, d);
      qq += q(b, i, d) * q(b, i, d) / static_cast<long double>(dk);
      kk += k(b, j, d) * k(b, j, d) / static_cast<long double>(dk);
    }
    if (set.norm) qk /= std::sqrt((qq + 1e-6L) * (kk + 1e-6L));
    long double s = qk * (set.learned      ? x[3][0]
                          : set.scale != 0 ? set.scale
                                           : 1 / std::sqrt(static_cast<long double>(dk)));
    if (set.cap != 0) s = set.cap * std::tanh(s / set.cap);
    if (set.bias) {
      const Shape scores = lead.inserted(lead.rank(), q.rows).inserted(lead.rank() + 1, k.rows);
      s += x[3][broadcast_position((b * q.rows + i) * k.rows + j, scores, x[3].shape)];
    }
    return s;
  };
}

// Heads as column blocks: the reference works on (..., H, n, d) and puts blocks side by side.
Reference in_blocks(std::int64_t heads, Reference one_head) {
  return [=](const Arrays& x) {
    Arrays split;
    for (const Array& a : x) {
      const int rank = a.shape.rank();
      const std::int64_t rows = a.shape.dim(-2), width = a.shape.dim(-1) / heads;
      Array parts(a.shape.with(rank - 1, width).inserted(rank - 2, heads));
      for (std::int64_t i = 0; i < a.shape.numel(); ++i) {
        const std::int64_t column = i % (heads * width), row = i / (heads * width);
        parts[((row / rows * heads + column / width) * rows + row % rows) * width +
              column % width] = a[i];
      }
      split.push_back(parts);
    }
    const Array apart = one_head(split);
    const int rank = apart.shape.rank();
    const std::int64_t rows = apart.shape.dim(-2), width = apart.shape.dim(-1);
    Array y(apart.shape.with(rank - 1, heads * width).without(rank - 3));
    for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
      const std::int64_t column = i % (heads * width), row = i / (heads * width);
      y[i] = apart[((row / rows * heads + column / width) * rows + row % rows) * width +
                   column % width];
    }
    return y;
  };
}

struct Dot {
  const char* name;
  std::vector<Shape> shapes;
  AttentionOptions options = {};
  DotSettings settings = {};
  Sees sees = every_key;
  bool large = false;
};

std::vector<Dot> dots() {
  const std::vector<Shape> plain{{3, 2}, {4, 2}, {4, 3}};
  const std::vector<Shape> square{{3, 2}, {3, 2}, {3, 2}};
  const std::vector<Shape> batch{{2, 3, 2}, {2, 4, 2}, {2, 4, 1}};
  const auto and_also = [](std::vector<Shape> shapes, const Shape& last) {
    shapes.push_back(last);
    return shapes;
  };
  const Tensor keep = reshape(
      flags({true, false, true, true, false, true, true, false, false, false, false, false}),
      {3, 4});
  return {
      {"plain", plain},
      {"one of each", {{1, 1}, {1, 1}, {1, 1}}},
      {"batch", batch},
      {"four axes", {{2, 1, 2, 2}, {2, 1, 3, 2}, {2, 1, 3, 2}}},
      {"broadcast", {{2, 1, 2, 2}, {3, 2}, {2, 3, 1}}},
      {"no queries", {{0, 2}, {3, 2}, {3, 2}}},
      {"no keys", {{2, 2}, {0, 2}, {0, 2}}},
      {"causal",
       square,
       {.mask = Mask::causal()},
       {},
       [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; }},
      {"lower right",
       plain,
       {.mask = Mask::causal(Align::lower_right)},
       {},
       [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i + 1; }},
      {"keep, a row of nothing",
       plain,
       {.mask = Mask::keep(keep)},
       {},
       [](std::int64_t, std::int64_t i, std::int64_t j) {
         return i == 0 ? j != 1 : i == 1 && (j == 1 || j == 2);
       }},
      {"window",
       plain,
       {.mask = Mask::sliding_window(1, 0)},
       {},
       [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i + 1 && j >= i; }},
      {"padding",
       batch,
       {.mask = Mask::key_padding({3, 1})},
       {},
       [](std::int64_t b, std::int64_t, std::int64_t j) { return j < (b == 0 ? 3 : 1); }},
      {"padding and causal",
       {{2, 3, 2}, {2, 3, 2}, {2, 3, 1}},
       {.mask = Mask::key_padding({3, 1}) & Mask::causal()},
       {},
       [](std::int64_t b, std::int64_t i, std::int64_t j) {
         return j <= i && j < (b == 0 ? 3 : 1);
       }},
      {"scale none", plain, {.scale = Scale::none()}, {.scale = 1}},
      {"scale inv_dk", plain, {.scale = Scale::inv_dk()}, {.scale = 0.5L}},
      {"scale -1.5", plain, {.scale = Scale::value(-1.5)}, {.scale = -1.5L}},
      {"learned scale", and_also(plain, {1}), {}, {.learned = true}},
      {"bias", and_also(plain, {3, 4}), {}, {.bias = true}},
      {"bias of keys", and_also(batch, {4}), {}, {.bias = true}},
      {"bias of sequences", and_also(batch, {2, 1, 1}), {}, {.bias = true}},
      {"bias and causal",
       and_also(square, {3, 3}),
       {.mask = Mask::causal()},
       {.bias = true},
       [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; }},
      {"QK-norm", plain, {.qk_norm = true}, {.norm = true}},
      {"soft cap", plain, {.soft_cap = 0.7}, {.cap = 0.7L}},
      {"heads", {{3, 4}, {2, 4}, {2, 2}}, {.heads = 2}},
      {"heads in batches, QK-norm",
       {{2, 2, 4}, {2, 3, 4}, {2, 3, 2}},
       {.qk_norm = true, .heads = 2},
       {.norm = true}},
      {"several tiles",
       {{70, 5}, {70, 5}, {70, 3}},
       {.mask = Mask::causal()},
       {},
       [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; },
       true},
  };
}

GradCase dot_row(const Dot& d, bool fused) {
  const AttentionOptions options = d.options;
  const DotSettings set = d.settings;
  Reference reference = attended(dot_score(set), d.sees);
  if (options.heads > 0) reference = in_blocks(options.heads, reference);
  return {.op = fused ? "scaled_dot_product_attention" : "softmax",
          .name = std::string(fused ? "fused, " : "composed attention, ") + d.name,
          .inputs = normals(d.shapes),
          .f =
              [=](std::span<const Tensor> x) {
                AttentionOptions o = options;
                o.need_weights = !fused;
                if (set.bias) o.bias = x[3];
                if (set.learned) o.scale = Scale::learned(x[3]);
                return scaled_dot_product_attention(x[0], x[1], x[2], o).output;
              },
          .reference = reference,
          .float32_rtol = 1e-4,
          .large = d.large};
}

void add_other_forms(Family& rows) {
  const Sees causal = [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; };
  const Score additive = [](const Arrays& x, const Shape& lead, std::int64_t b, std::int64_t i,
                            std::int64_t j) {
    const BroadcastMatrices q(x[0], lead), k(x[1], lead);
    long double s = 0;
    for (std::int64_t h = 0; h < x[5].shape[0]; ++h) {
      long double t = 0;
      for (std::int64_t d = 0; d < q.columns; ++d) t += q(b, i, d) * x[3][d * x[5].shape[0] + h];
      for (std::int64_t d = 0; d < k.columns; ++d) t += k(b, j, d) * x[4][d * x[5].shape[0] + h];
      s += x[5][h] * std::tanh(t);
    }
    return s;
  };
  for (const bool masked : {false, true}) {
    rows.cases.push_back({.op = masked ? "mask_scores" : "tanh",
                          .name = masked ? "additive attention, causal" : "additive attention",
                          .inputs = normals({{3, 2}, {3, 1}, {3, 2}, {2, 2}, {1, 2}, {2}}),
                          .f =
                              [=](std::span<const Tensor> x) {
                                return additive_attention(
                                           x[0], x[1], x[2], {x[3], x[4], x[5]},
                                           {.mask = masked ? Mask::causal() : Mask()})
                                    .output;
                              },
                          .reference = attended(additive, masked ? causal : every_key)});
  }

  const Score features = [](const Arrays& x, const Shape& lead, std::int64_t b, std::int64_t i,
                            std::int64_t j) {
    const BroadcastMatrices q(x[0], lead), k(x[1], lead);
    const auto phi = [](long double t) { return t > 0 ? t + 1 : std::exp(t); };
    long double s = 0;
    for (std::int64_t d = 0; d < q.columns; ++d) s += phi(q(b, i, d)) * phi(k(b, j, d));
    return s;
  };
  struct Linear {
    const char* name;
    std::vector<Shape> shapes;
    bool causal;
    const char* op;
    bool large = false;
  };
  const Linear linears[] = {
      {"linear attention", {{2, 3, 2}, {4, 2}, {2, 4, 2}}, false, "matmul"},
      {"linear attention, causal", {{4, 2}, {4, 2}, {4, 2}}, true, "tril"},
      {"linear attention, causal, two blocks", {{70, 2}, {70, 2}, {70, 1}}, true, "cumsum", true}};
  for (const Linear& l : linears) {
    rows.cases.push_back(
        {.op = l.op,
         .name = l.name,
         .inputs = normals(l.shapes),
         .f =
             [=](std::span<const Tensor> x) {
               return linear_attention(x[0], x[1], x[2], {.causal = l.causal}).output;
             },
         .reference = attended(features, l.causal ? causal : every_key, Weights::share),
         .float32_rtol = 1e-4,
         .large = l.large});
  }

  for (const double hidden : {0.0, 7.0}) {
    rows.cases.push_back(
        {.op = "mask_scores",
         .name = hidden == 0 ? "zeros" : "sevens",
         .inputs = normals({{2, 3, 3}}),
         .f = fn([=](const Tensor& x) {
           return mask_scores(x, Mask::causal() & Mask::key_padding({3, 2}), hidden);
         }),
         .reference = taking(
             {2, 3, 3},
             [](const Index& i) -> Source {
               if (i[2] > i[1] || i[2] >= (i[0] == 0 ? 3 : 2)) return {};
               return i;
             },
             static_cast<long double>(hidden))});
  }
}

void add_attention_errors(Family& rows) {
  const Tensor q = reshape(vec({1, 2, 3, 4}), {2, 2});
  const Tensor k = reshape(vec({1, 2, 3, 4, 5, 6}), {3, 2});
  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  refuse("scaled_dot_product_attention", "widths", ErrorType::shape,
         "queries and keys must have one width dk: q is (2, 2), k is (2, 3), 2 != 3", [=] {
           scaled_dot_product_attention(q, reshape(k, {2, 3}), q);
         });
  refuse("scaled_dot_product_attention", "numbers of keys and values", ErrorType::shape,
         "needs one value per key", [=] { scaled_dot_product_attention(q, k, q); });
  refuse("scaled_dot_product_attention", "causal alignment", ErrorType::shape,
         "Mask::causal(Align::upper_left)",
         [=] { scaled_dot_product_attention(q, k, k, {.mask = Mask::causal()}); });
  refuse("scaled_dot_product_attention", "dropout", ErrorType::value, "dropout must lie in [0, 1]",
         [=] { scaled_dot_product_attention(q, k, k, {.dropout = 2}); });
  refuse("scaled_dot_product_attention", "int64", ErrorType::dtype, "q must be float32 or float64",
         [=] { scaled_dot_product_attention(ids({1}), k, k); });
  refuse("scaled_dot_product_attention", "undefined", ErrorType::graph, "v is an undefined tensor",
         [=] { scaled_dot_product_attention(q, k, Tensor()); });
  refuse("additive_attention", "weights", ErrorType::shape, "wq must be (dq, h)", [=] {
    additive_attention(q, k, k, {k, q, vec({1, 2})});
  });
  refuse("linear_attention", "causal", ErrorType::shape, "causal needs as many queries as keys",
         [=] { linear_attention(q, k, k, {.causal = true}); });
  refuse("mask_scores", "mask", ErrorType::shape, "the mask must broadcast to the scores", [=] {
    mask_scores(q, Mask::keep(flags({true, false, true})));
  });
  refuse("mask_scores", "int64", ErrorType::dtype, "scores must be float32 or float64",
         [=] { mask_scores(ids({1}), Mask()); });
  refuse("mask_scores", "undefined", ErrorType::graph, "scores is an undefined tensor",
         [=] { mask_scores(Tensor(), Mask()); });
}

}  // namespace

Family attention_rows() {
  Family rows;
  for (const Dot& d : dots()) {
    rows.cases.push_back(dot_row(d, false));
    if (d.settings.cap == 0) rows.cases.push_back(dot_row(d, true));
  }
  rows.cases.push_back(
      {.op = "softmax",
       .name = "weights with dropout",
       .inputs = normals({{2, 2}, {3, 2}, {3, 2}}),
       .f = fn([](const Tensor& q, const Tensor& k, const Tensor& v) {
         Rng rng(3);
         return scaled_dot_product_attention(q, k, v, {.dropout = 0.4, .rng = &rng}).output;
       }),
       .reference = [](const Arrays& x) {
         // Dropping is linear in v once the weights are known: v of unit vectors.
         Arrays units = x;
         units[2] = Array({3, 3});
         for (std::int64_t j = 0; j < 3; ++j) units[2][j * 4] = 1;
         const Array p = attended(dot_score({}), every_key)(units);
         Rng rng(3);
         Array y({2, 2});
         for (std::int64_t at = 0; at < 6; ++at) {
           if (rng.random() < 0.4) continue;
           for (std::int64_t c = 0; c < 2; ++c) {
             y[at / 3 * 2 + c] += p[at] / 0.6L * x[2][at % 3 * 2 + c];
           }
         }
         return y;
       }});
  add_other_forms(rows);
  add_attention_errors(rows);
  return rows;
}

}  // namespace grad_cases
