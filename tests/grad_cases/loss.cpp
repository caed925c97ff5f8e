// Rows of losses.
#include "softtape/ops/loss.hpp"

#include <cmath>

#include "grad_cases/cases.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

struct Reduced {
  Reduction reduction;
  const char* name;
};
const Reduced kReductions[] = {
    {Reduction::mean, "mean"}, {Reduction::sum, "sum"}, {Reduction::none, "none"}};

// Losses of `shape` as one number, or as they are; `weight` is what a mean divides by.
Array reduced(const Array& losses, Reduction reduction, long double weight) {
  if (reduction == Reduction::none) return losses;
  Array y(Shape{});
  for (const long double loss : losses.numbers) y[0] += loss;
  if (reduction == Reduction::mean) y[0] = weight == 0 ? 0 : y[0] / weight;
  return y;
}

Reference pairs(Reduction reduction, std::function<long double(long double, long double)> loss) {
  return [=](const Arrays& x) {
    return reduced(each_pair(loss)(x), reduction, static_cast<long double>(x[0].shape.numel()));
  };
}

// Classes on the last axis: log-probabilities given, or computed from logits.
struct Classes {
  bool logits;
  CrossEntropyOptions options;
  Array operator()(const Arrays& x) const {
    const std::int64_t classes = x[0].shape.dim(-1);
    Array losses(x[1].shape);
    long double total_weight = 0;
    const std::vector<double> weights =
        options.class_weights.defined()
            ? options.class_weights.to_vector()
            : std::vector<double>(static_cast<std::size_t>(classes), 1.0);
    for (std::int64_t row = 0; row < losses.shape.numel(); ++row) {
      const auto target = static_cast<std::int64_t>(x[1][row]);
      if (options.ignore_index && target == *options.ignore_index) continue;
      long double total = 0;
      for (std::int64_t c = 0; c < classes; ++c) total += std::exp(x[0][row * classes + c]);
      const long double shift = logits ? std::log(total) : 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const long double share = (c == target ? 1 - options.label_smoothing : 0.0) +
                                  options.label_smoothing / static_cast<double>(classes);
        losses[row] -=
            share * weights[static_cast<std::size_t>(c)] * (x[0][row * classes + c] - shift);
      }
      total_weight += weights[static_cast<std::size_t>(target)];
    }
    return reduced(losses, options.reduction, total_weight);
  }
};

// Constants take the dtype of what they meet.
Tensor like(const Tensor& x, const Tensor& constant) {
  return constant.defined() ? to(constant, x.dtype()) : constant;
}

void add_class_losses(Family& rows) {
  const Tensor targets = ids({2, 0, 1});
  const Tensor weights = vec({0.5, 2, 1.25, 0});
  struct Variant {
    const char* name;
    CrossEntropyOptions options;
  };
  for (const Reduced& r : kReductions) {
    for (const Variant& v :
         {Variant{"plain", {}}, Variant{"ignore", {.ignore_index = 0}},
          Variant{"all ignored but one", {.ignore_index = 2}},
          Variant{"smoothing", {.label_smoothing = 0.1}},
          Variant{"weights", {.class_weights = weights}},
          Variant{"everything",
                  {.ignore_index = 0, .label_smoothing = 0.2, .class_weights = weights}}}) {
      CrossEntropyOptions options = v.options;
      options.reduction = r.reduction;
      const std::string name = std::string(v.name) + ", " + r.name;
      rows.cases.push_back({.op = "cross_entropy",
                            .name = name,
                            .inputs = with(normals({{3, 4}}), targets),
                            .f = fn([=](const Tensor& z, const Tensor& t) {
                              CrossEntropyOptions o = options;
                              o.class_weights = like(z, options.class_weights);
                              return cross_entropy(z, t, o);
                            }),
                            .reference = Classes{true, options}});
      if (options.label_smoothing != 0) continue;
      rows.cases.push_back({.op = "nll_loss",
                            .name = name,
                            .inputs = with(uniforms(-3, -0.1, {{3, 4}}), targets),
                            .f = fn([=](const Tensor& z, const Tensor& t) {
                              return nll_loss(z, t,
                                              {.ignore_index = options.ignore_index,
                                               .class_weights = like(z, options.class_weights),
                                               .reduction = options.reduction});
                            }),
                            .reference = Classes{false, options}});
    }
  }
  rows.cases.push_back(
      {.op = "cross_entropy",
       .name = "batch of sequences",
       .inputs = with(normals({{2, 2, 3}}), reshape(ids({2, 0, 1, 1}), {2, 2})),
       .f = fn([](const Tensor& z, const Tensor& t) { return cross_entropy(z, t); }),
       .reference = Classes{true, {}}});
  rows.cases.push_back({.op = "cross_entropy",
                        .name = "all ignored",
                        .inputs = with(normals({{2, 3}}), ids({-100, -100})),
                        .f = fn([](const Tensor& z, const Tensor& t) {
                          return cross_entropy(z, t, {.ignore_index = -100});
                        }),
                        .reference = Classes{true, {.ignore_index = -100}}});
  rows.cases.push_back(
      {.op = "cross_entropy",
       .name = "large",
       .inputs = with(normals({{190, 180}}), ids(std::vector<std::int64_t>(190, 7))),
       .f = fn([](const Tensor& z, const Tensor& t) { return cross_entropy(z, t); }),
       .reference = Classes{true, {}},
       .large = true});
}

void add_element_losses(Family& rows) {
  for (const Reduced& r : kReductions) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{190, 180}}) {
      const std::string name = to_string(shape) + ", " + r.name;
      rows.cases.push_back(
          {.op = "mse_loss",
           .name = name,
           .inputs = normals({shape, shape}),
           .f = fn([=](const Tensor& p, const Tensor& t) {
             return mse_loss(p, t, {.reduction = r.reduction});
           }),
           .reference =
               pairs(r.reduction, [](long double p, long double t) { return (p - t) * (p - t); }),
           .large = shape.numel() > 1000});
      for (const double weight : {1.0, 2.5}) {
        rows.cases.push_back({.op = "binary_cross_entropy_with_logits",
                              .name = name,
                              .inputs = uniforms2(-4, 4, shape, 0.1, 0.9, shape),
                              .f = fn([=](const Tensor& z, const Tensor& t) {
                                return binary_cross_entropy_with_logits(
                                    z, t, {.pos_weight = weight, .reduction = r.reduction});
                              }),
                              .reference = pairs(r.reduction,
                                                 [=](long double z, long double t) {
                                                   return weight * t * std::log1p(std::exp(-z)) +
                                                          (1 - t) * std::log1p(std::exp(z));
                                                 }),
                              .large = shape.numel() > 1000});
      }
    }
  }
}

void add_loss_errors(Family& rows) {
  const auto refuse = [&](const char* op, const char* name, ErrorType type, const char* message,
                          std::function<void()> call) {
    rows.errors.push_back({op, name, type, message, std::move(call)});
  };
  const Tensor z = reshape(vec({1, 2, 3, 4, 5, 6}), {2, 3});
  const Tensor t = ids({0, 2});
  const Tensor nothing = reshape(vec({}), {0, 3});
  refuse("mse_loss", "shapes", ErrorType::shape, "losses do not broadcast", [=] {
    mse_loss(z, vec({1, 2, 3}));
  });
  refuse("mse_loss", "dtypes", ErrorType::dtype, "float32",
         [=] { mse_loss(z, to(z, DType::float32)); });
  refuse("mse_loss", "undefined", ErrorType::graph, "target is an undefined",
         [=] { mse_loss(z, Tensor()); });
  refuse("mse_loss", "mean of nothing", ErrorType::value, "the mean needs at least one loss",
         [=] { mse_loss(nothing, nothing); });
  const char* const bce = "binary_cross_entropy_with_logits";
  refuse(bce, "shapes", ErrorType::shape, "losses do not broadcast", [=] {
    binary_cross_entropy_with_logits(z, vec({1, 2, 3}));
  });
  refuse(bce, "undefined", ErrorType::graph, "logits is an undefined",
         [=] { binary_cross_entropy_with_logits(Tensor(), z); });
  refuse(bce, "pos_weight", ErrorType::value, "pos_weight must be positive and finite",
         [=] { binary_cross_entropy_with_logits(z, z, {.pos_weight = 0}); });
  refuse(bce, "mean of nothing", ErrorType::value, "the mean needs at least one loss",
         [=] { binary_cross_entropy_with_logits(nothing, nothing); });
  const auto both = [&](const char* name, ErrorType type, const char* message, const Tensor& logits,
                        const Tensor& targets, const CrossEntropyOptions& o) {
    refuse("cross_entropy", name, type, message, [=] { cross_entropy(logits, targets, o); });
    refuse("nll_loss", name, type, message, [=] {
      nll_loss(logits, targets, {.ignore_index = o.ignore_index, .class_weights = o.class_weights});
    });
  };
  both("target too large", ErrorType::value, "0 <= target < 3: got 3 at position 1", z, ids({0, 3}),
       {});
  both("-100 without ignore_index", ErrorType::value, "got -100", z, ids({-100, 0}), {});
  both("float targets", ErrorType::dtype, "targets must be class indices", z, vec({0, 1}), {});
  both("targets with the logits' shape", ErrorType::shape, "without its last axis", z,
       reshape(ids({0, 1, 2, 0, 1, 2}), {2, 3}), {});
  both("undefined targets", ErrorType::graph, "undefined", z, Tensor(), {});
  both("undefined input", ErrorType::graph, "undefined", Tensor(), t, {});
  both("number of weights", ErrorType::shape, "one entry per class", z, t,
       {.class_weights = vec({1, 2})});
  both("negative weight", ErrorType::value, "class_weights must be 0 or more and finite: got -1", z,
       t, {.class_weights = vec({1, -1, 1})});
  both("infinite weight", ErrorType::value, "class_weights must be 0 or more and finite", z, t,
       {.class_weights = vec({1, kInf, 1})});
  both("mean of nothing", ErrorType::value, "the mean needs at least one loss", nothing, ids({}),
       {});
  refuse("cross_entropy", "label_smoothing", ErrorType::value, "label_smoothing must lie in [0, 1]",
         [=] { cross_entropy(z, t, {.label_smoothing = 1.5}); });
}

}  // namespace

Family loss_rows() {
  Family rows;
  add_class_losses(rows);
  add_element_losses(rows);
  add_loss_errors(rows);
  return rows;
}

}  // namespace grad_cases
