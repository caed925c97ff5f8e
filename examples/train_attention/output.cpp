// Probes run on samples of their own with dropout off, so that looking changes no run.
#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "softtape/base/error.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/io/file.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/shape.hpp"
#include "softtape/report/figure.hpp"

namespace train_attention {

using namespace softtape;

namespace {

constexpr std::int64_t kProbedSamples = 32;

Series series(const History& history, const std::string& metric, Mark mark = Mark::line) {
  Series out{.name = metric, .y = history.values(metric), .mark = mark};
  for (const std::int64_t step : history.steps(metric)) out.x.push_back(static_cast<double>(step));
  return out;
}

Figure loss_figure(const Data& data, const History& history) {
  Panel loss{.title = "Loss"};
  loss.x.label = "updates";
  loss.y.label = "nats per prediction";
  loss.series = {series(history, "loss"), series(history, "val_loss", Mark::line_points)};
  for (const auto& [name, value] : data.references) loss.references.push_back({name, value});
  Panel accuracy{.title = "Accuracy, held-out samples"};
  accuracy.x.label = "updates";
  accuracy.series = {series(history, "accuracy", Mark::line_points)};
  return {.name = "loss",
          .description = "Training and held-out loss, and accuracy, against updates",
          .panels = {loss, accuracy}};
}

Figure probe_figure(const History& history) {
  Figure figure{.name = "probes",
                .description =
                    "Attention of each block against updates: entropy, dead keys and "
                    "softmax Jacobian"};
  for (const auto& [ending, title] :
       {std::pair{"_entropy", "Entropy (nats)"}, std::pair{"_dead_keys", "Dead keys (share)"},
        std::pair{"_jacobian", "Softmax Jacobian (mean norm)"}}) {
    Panel panel{.title = title};
    panel.x.label = "updates";
    for (const std::string& metric : history.metrics()) {
      if (metric.starts_with("block") && metric.ends_with(ending)) {
        panel.series.push_back(series(history, metric));
        panel.series.back().name = metric.substr(0, metric.find('_'));
      }
    }
    if (!panel.series.empty()) figure.panels.push_back(panel);
  }
  return figure;
}

}  // namespace

std::vector<Starvation> probe_blocks(Model& model, const Data& data) {
  const std::int64_t samples = std::min(kProbedSamples, data.held_out.x.dim(0));
  const Tensor x = narrow(data.held_out.x, 0, 0, samples);
  const Tensor y = narrow(data.held_out.y, 0, 0, samples);
  std::vector<Attention> attended(model.blocks.size());
  std::vector<int> hooks;
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    hooks.push_back(model.blocks[i]->attention.register_attention_hook(
        [&attended, i](const Module&, const Attention& a) { attended[i] = a; }));
  }
  const EvalMode modes(model.layers);
  const EnableGrad guard;
  const Tensor loss = cross_entropy(model.layers(x), y, {.ignore_index = kIgnore});
  std::vector<Starvation> found;
  const auto predictions = static_cast<double>(cross_entropy_count(y, kIgnore));
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    model.blocks[i]->attention.remove_attention_hook(hooks[i]);
    found.push_back(starvation(loss, attended[i], {.samples = predictions}));
  }
  return found;
}

Metrics probe_metrics(const std::vector<Starvation>& blocks) {
  Metrics metrics;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto add = [&](const char* name, double value) {
      metrics.emplace_back(fmt::format("block{}_{}", i, name), value);
    };
    add("entropy", blocks[i].entropy.mean);
    add("effective_keys", blocks[i].effective_keys.mean);
    add("max_weight", blocks[i].max_weight.mean);
    add("jacobian", blocks[i].jacobian.mean);
    add("row_gradient_median", blocks[i].row_gradient.median);
    add("dead_keys", blocks[i].dead_keys);
  }
  return metrics;
}

void begin_output(const Options& o, const std::string& options_text) {
  const std::filesystem::path folder(o.out);
  if (!o.force && o.resume.empty() && std::filesystem::exists(folder / "metrics.csv")) {
    throw IoError(
        fmt::format("'{}' holds a run; --force replaces it, --resume goes on from one", o.out));
  }
  std::error_code trouble;
  std::filesystem::create_directories(folder, trouble);
  if (trouble) throw IoError(fmt::format("'{}': {}", o.out, trouble.message()));
  write_file((folder / "options.toml").string(), options_text);
}

std::string write_output(const Options& o, const Data& data, const History& history) {
  const std::filesystem::path folder(o.out);
  write_file((folder / "metrics.csv").string(), history.table().csv());
  write_file((folder / "metrics.jsonl").string(), history.table().jsonl());
  if (!o.figures) return {};
  std::string note = write_figure(loss_figure(data, history), o.out).note;
  const Figure probes = probe_figure(history);
  if (!probes.panels.empty()) note = write_figure(probes, o.out).note;
  return note;
}

std::string evaluation_table(const Options& o, const History& history) {
  const bool none = history.values("val_loss").empty();
  if (none && o.format == "text") return {};
  const Table table = none ? Table({"step", "val_loss", "accuracy"})  // programs get a table anyway
                           : history.table({"val_loss", "accuracy"});
  return o.format == "csv" ? table.csv() : o.format == "json" ? table.json() : table.text();
}

}  // namespace train_attention
