// starvation(): the probes on one gradient, and how they read.
#include "softtape/study/starvation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/ops/softmax.hpp"

namespace softtape {

namespace {

void check(const Tensor& loss, const Attention& attended, const StarvationOptions& options) {
  detail::check_float("starvation", "loss", loss);
  if (loss.numel() != 1) {
    throw ShapeError(
        fmt::format("[starvation] the loss must be one number: got shape {}; reduce it",
                    to_string(loss.shape())));
  }
  for (const auto& [name, tensor] :
       {std::pair{"output", &attended.output}, std::pair{"weights", &attended.weights},
        std::pair{"scores", &attended.scores}}) {
    if (tensor->defined()) continue;
    throw GraphError(
        fmt::format("[starvation] attention must keep its weights and scores: {} is undefined; "
                    "pass {{.need_weights = true}}, or call the layer's attend",
                    name));
  }
  if (!attended.logsumexp.defined()) {
    throw ValueError(
        "[starvation] needs attention with a softmax: logsumexp is undefined, as in linear "
        "attention");
  }
  const auto positive = [](const char* key, double value) {
    if (value > 0 && std::isfinite(value)) return;
    throw ValueError(
        fmt::format("[starvation] {} must be positive and finite: got {}", key, value));
  };
  if (options.samples) positive("samples", *options.samples);
  positive("threshold", options.threshold);
}

// The summary of a probe over rows that see at least one key; all 0 where none does.
Summary over_rows(const Tensor& values, const std::vector<bool>& seeing) {
  std::vector<double> kept;
  const auto numbers = values.data<double>();
  for (std::size_t row = 0; row < seeing.size(); ++row) {
    if (seeing[row]) kept.push_back(numbers[row]);
  }
  return kept.empty() ? Summary{} : summarize(tensor(kept, {.dtype = DType::float64}));
}

double output_rows(const Tensor& output) {
  const std::int64_t width = output.dim(-1);
  return width == 0 ? 1 : std::max(1.0, static_cast<double>(output.numel() / width));
}

}  // namespace

Starvation starvation(const Tensor& loss, const Attention& attended,
                      const StarvationOptions& options) {
  check(loss, attended, options);
  const std::vector<Tensor> gradients =
      grad(loss, {attended.weights, attended.scores}, {.retain_graph = true});
  const NoGrad values_only;
  Starvation found;
  found.samples = options.samples.value_or(output_rows(attended.output));
  found.threshold = options.threshold;
  found.gweights = mul(gradients[0], found.samples).detach();
  found.gscores = mul(gradients[1], found.samples).detach();

  const Tensor scores = attended.scores.detach();
  const Tensor visible = ne(scores, -std::numeric_limits<double>::infinity());
  const Tensor weights = softmax(scores);
  const Tensor keys = sum(visible, -1);
  std::vector<bool> seeing;
  for (const std::int64_t count : keys.data<std::int64_t>()) {
    seeing.push_back(count > 0);
    found.visible += count;
  }
  found.rows = static_cast<std::int64_t>(seeing.size());
  found.entropy = over_rows(entropy(weights), seeing);
  found.effective_keys = over_rows(effective_keys(weights), seeing);
  found.max_weight = over_rows(max_weight(weights), seeing);
  found.jacobian = over_rows(jacobian_frobenius_norm(weights), seeing);
  found.row_gradient = over_rows(row_gradient_norm(found.gscores), seeing);
  found.carrying = over_rows(keys_carrying_gradient(found.gscores), seeing);
  const DeadKeyOptions dead{.threshold = options.threshold, .mask = Mask::keep(visible)};
  found.dead_keys = dead_keys(found.gscores, dead);
  found.dead_relative = dead_keys_relative(found.gscores, found.gweights, dead);
  found.starved_rows = starved_rows(found.gscores, dead);
  found.scores = score_statistics(scores);
  return found;
}

std::string to_string(const Starvation& f) {
  std::string text = fmt::format("starvation: {} row{}, {} visible pairs, loss times {:.6g}\n",
                                 f.rows, f.rows == 1 ? "" : "s", f.visible, f.samples);
  const auto line = [&](const char* name, const Summary& s, const char* unit) {
    text += fmt::format("  {:<15} mean {:.4g}, median {:.4g}{}\n", name, s.mean, s.median, unit);
  };
  line("entropy", f.entropy, " nats");
  line("effective keys", f.effective_keys, "");
  line("largest weight", f.max_weight, "");
  line("Jacobian |J|_F", f.jacobian, "");
  line("row |dL/ds|", f.row_gradient, "");
  text += fmt::format(
      "  {:<15} {:.2f} % below {:.3g}, {:.2f} % below {:.3g} |dL/dP| of the row; {:.2f} % of rows "
      "starved\n",
      "dead keys", 100 * f.dead_keys, f.threshold, 100 * f.dead_relative, f.threshold,
      100 * f.starved_rows);
  text += fmt::format("  {:<15} standard deviation {:.4g} in a row, {} sqrt(2 ln {:.4g}) = {:.4g}",
                      "scores", f.scores.row_std, f.scores.saturated() ? "beyond" : "within",
                      f.scores.keys, f.scores.boundary);
  return text;
}

}  // namespace softtape
