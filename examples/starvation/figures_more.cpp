// Figures of what a head looks at, of which symbols it finds, and of text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "figures.hpp"

namespace starvation {

using softtape::Figure;
using softtape::HeatMap;
using softtape::Mark;
using softtape::Panel;
using softtape::Series;

namespace {

constexpr double kSmallest = -12;  // of log10 |dL/dS| in the drawing

HeatMap matrix(const softtape::Tensor& values, const softtape::Tensor& hidden) {
  HeatMap map{.rows = values.dim(0), .columns = values.dim(1), .values = values.to_vector()};
  if (hidden.defined()) {
    for (const double flag : hidden.to_vector()) map.hidden.push_back(flag != 0);
  }
  return map;
}

// The largest number that is shown, over all panels, so that both scales share their colours.
double largest(const std::vector<Panel>& panels, bool of_size) {
  double most = -std::numeric_limits<double>::infinity();
  for (const Panel& panel : panels) {
    const HeatMap& map = panel.heat_map;
    for (std::size_t i = 0; i < map.values.size(); ++i) {
      const bool shown = map.hidden.empty() || !map.hidden[i];
      const double x = of_size ? std::abs(map.values[i]) : map.values[i];
      if (shown && std::isfinite(x)) most = std::max(most, x);
    }
  }
  return std::isfinite(most) ? most : 1;
}

Figure side_by_side(const std::string& name, const std::string& description, const Results& results,
                    softtape::Tensor HeatMaps::*which, const std::string& label) {
  Figure figure{.name = name, .description = description};
  for (const HeatMaps& maps : results.heat_maps) {
    Panel panel{.title = name_of(maps.scale)};
    panel.x.label = "key";
    panel.y.label = "query";
    panel.heat_map = matrix(maps.*which, maps.hidden);
    panel.heat_map.label = label;
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

}  // namespace

std::vector<Figure> heat_map_figures(const Results& results) {
  if (results.heat_maps.empty()) return {};
  Figure weights =
      side_by_side("weights", "Attention weights P of one sequence at the start, query by key.",
                   results, &HeatMaps::weights, "P");
  for (Panel& panel : weights.panels) panel.heat_map.low = 0, panel.heat_map.high = 1;

  Figure gweights =
      side_by_side("weights_gradient",
                   "Gradient dL/dP of the same sequence, query by key; masked cells are hatched.",
                   results, &HeatMaps::gweights, "dL/dP");
  const double most = largest(gweights.panels, true);
  for (Panel& panel : gweights.panels) {
    panel.heat_map.colours = HeatMap::Colours::diverging;
    panel.heat_map.high = most;
    panel.heat_map.low = -most;
  }

  Figure gscores = side_by_side(
      "scores_gradient",
      "Size of the gradient dL/dS of the same sequence as a power of ten, query by key.", results,
      &HeatMaps::gscores, "log10 |dL/dS|");
  for (Panel& panel : gscores.panels) {
    for (double& x : panel.heat_map.values) {
      x = std::max(std::log10(std::abs(x)), kSmallest);  // also of 0, whose logarithm is -inf
    }
  }
  const double top = std::max(kSmallest + 1, largest(gscores.panels, false));
  for (Panel& panel : gscores.panels) {
    panel.heat_map.low = kSmallest;
    panel.heat_map.high = top;
  }
  return {weights, gweights, gscores};
}

Figure key_symbols_figure(const Results& results) {
  Figure figure{.name = "key_symbols",
                .description =
                    "How many key symbols are found how often at the end of training, "
                    "with and without the scale; a panel for each d_k.",
                .panel_height = 220};
  constexpr int kBins = 10;
  std::map<double, Panel> panels;
  for (const Rows& here : key_symbol_groups(results)) {
    const double dk = here.number(0, "dk");
    Panel& panel = panels[dk];
    panel.title = fmt::format("d_k = {}, rate {}", dk, here.number(0, "lr"));
    panel.x = {.label = "share of its queries found", .low = -0.02, .high = 1.02};
    panel.y.label = "key symbols";
    std::vector<double> counts(kBins, 0.0);
    for (const double share : here.numbers("found_share")) {
      if (std::isnan(share)) continue;  // never asked for
      const int bin = std::clamp(static_cast<int>(share * kBins), 0, kBins - 1);
      counts[static_cast<std::size_t>(bin)] += 1;
    }
    const std::string scale = here.text(0, "scale");
    const auto seeds = static_cast<double>(here.distinct("seed").size());
    Series bars{.name = name_of(scale), .mark = Mark::bars, .bar_width = 0.036};
    bars.look = scale == "none" ? 1 : 0;
    bars.shift = scale == "none" ? 0.02 : -0.02;
    for (int bin = 0; bin < kBins; ++bin) {
      bars.x.push_back((bin + 0.5) / kBins);
      bars.y.push_back(counts[static_cast<std::size_t>(bin)] / std::max(1.0, seeds));
    }
    panel.series.push_back(std::move(bars));
  }
  for (auto& [dk, panel] : panels) figure.panels.push_back(std::move(panel));
  figure.columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return figure;
}

Figure text_figure(const Results& results) {
  Figure figure{.name = "text",
                .description =
                    "Loss and attention entropy on held-out text against training "
                    "step, with and without the scale, with the losses of models that "
                    "know only letter or letter-pair frequencies. Lines are medians "
                    "over seeds, bands reach from the best to the worst."};
  Panel loss{.title = "Loss on held-out text"}, entropy{.title = "Attention entropy"};
  loss.x.label = entropy.x.label = "step";
  loss.y.label = entropy.y.label = "nats";
  const std::vector<TextRuns> runs = best_text_runs(results);
  for (const TextRuns& run : runs) {
    const std::string name =
        fmt::format("{}, d_k = {}, {} {}", name_of(run.scale), run.dk, run.optimizer, run.lr);
    const int of_scale = run.scale == "inv_sqrt_dk" ? 0 : run.scale == "none" ? 1 : 2;
    const int look = of_scale + (run.dk == runs.front().dk ? 0 : 4);
    loss.series.push_back(over_seeds(run.rows, "step", "loss", name, look));
    entropy.series.push_back(over_seeds(run.rows, "step", "entropy", name, look));
  }
  const Rows all(results.text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = all.text(i, "reference");
    const double at = all.number(i, "loss");
    const auto known = [&](const softtape::ReferenceLine& line) {
      return line.name.rfind(name, 0) == 0;
    };
    const bool is_reference = !name.empty() && name != "-";
    const auto& lines = loss.references;
    if (is_reference && std::none_of(lines.begin(), lines.end(), known)) {
      loss.references.push_back({fmt::format("{} {:.3f}", name, at), at});
    }
  }
  if (!loss.series.empty()) figure.panels = {loss, entropy};
  return figure;
}

}  // namespace starvation
