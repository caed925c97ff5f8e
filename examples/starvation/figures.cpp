// Figures of the start and of training on the retrieval task.
#include "figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "statistics.hpp"

namespace starvation {

using softtape::Axis;
using softtape::Figure;
using softtape::Mark;
using softtape::Panel;
using softtape::Series;

namespace {

// Looks of figure.hpp: the same setting looks the same everywhere.
int look_of(const std::string& scale) {
  static const std::vector<std::string> order{"inv_sqrt_dk", "none",       "inv_dk",
                                              "learned",     "dk_quarter", "other"};
  return static_cast<int>(std::find(order.begin(), order.end(), scale) - order.begin());
}

Axis axis_of_widths(const Rows& rows) {
  Axis axis{.label = "d_k", .log = true};
  for (const double dk : rows.distinct("dk")) axis.ticks.emplace_back(dk, digits(dk));
  return axis;
}

Panel panel_of_curves(const std::string& title, const std::string& quantity, bool log) {
  Panel panel{.title = title};
  panel.x.label = "step";
  panel.y = {.label = quantity, .log = log};
  if (quantity == "accuracy") panel.y.low = 0, panel.y.high = 1.02;
  return panel;
}

// First evaluation at which a run reached 90 %; infinite when it did not.
double steps_to_90(const Rows& run) {
  double first = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < run.size(); ++i) {
    if (run.number(i, "accuracy") >= 0.9) first = std::min(first, run.number(i, "step"));
  }
  return first;
}

}  // namespace

Figure two_by_two_figure(const Results& results, const Headline& headline) {
  Figure figure{.name = "two_by_two",
                .description =
                    "Accuracy and loss against training step for four starts: with and "
                    "without the scale, scores spread about 1 or about sqrt(d_k). Lines "
                    "are medians over seeds, bands reach from the worst to the best."};
  Panel accuracy = panel_of_curves("Accuracy", "accuracy", false);
  Panel loss = panel_of_curves("Loss (evaluation)", "nats", true);
  accuracy.references.push_back({"90 %", 0.9});
  static constexpr int looks[] = {0, 5, 4, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    const Outcome* one = headline.cells()[i];
    if (!one) continue;
    const Setting& s = one->setting;
    const std::string name =
        fmt::format("{}, gain {:.4g}: spread {:.4g}", name_of(s.scale), s.init_gain, score_std(s));
    const Rows rows = rows_of(results.curves, s);
    if (rows.empty()) continue;
    accuracy.series.push_back(over_seeds(rows, "step", "accuracy", name, looks[i]));
    loss.series.push_back(over_seeds(rows, "step", "loss", name, looks[i]));
  }
  if (!accuracy.series.empty()) figure.panels = {accuracy, loss};
  return figure;
}

Figure dead_keys_figure(const Results& results) {
  Figure figure{.name = "dead_keys",
                .description =
                    "Share of dead keys, those whose score gets a gradient below 1e-6, "
                    "against d_k, at the start of training. Lines are medians over "
                    "seeds, bands reach from the least to the most."};
  const Rows rows = Rows(results.init).where("init_gain", 1);
  for (const double T : rows.distinct("T")) {
    const Rows here = rows.where("T", T);
    Panel panel{.title = fmt::format("T = {} keys", T), .x = axis_of_widths(here)};
    panel.y = {.label = "dead keys (share)", .low = -0.02, .high = 1.02};
    if (2 * std::log(T) >= 1) panel.references.push_back({"2 ln T", 2 * std::log(T), true});
    for (const std::string& scale : here.distinct_text("scale")) {
      Series one =
          over_seeds(here.where("scale", scale), "dk", "dead_keys", name_of(scale), look_of(scale));
      one.mark = Mark::line_points;
      panel.series.push_back(std::move(one));
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return figure;
}

Figure jacobian_figure(const Results& results) {
  Figure figure{.name = "jacobian",
                .description =
                    "Frobenius norm of the softmax Jacobian against d_k: mean and "
                    "median over rows, with and without the scale, and the predicted "
                    "mean without it."};
  const Rows rows = Rows(results.init).where("init_gain", 1);
  for (const double T : rows.distinct("T")) {
    const Rows here = rows.where("T", T);
    Panel panel{.title = fmt::format("T = {} keys", T), .x = axis_of_widths(here)};
    panel.y = {.label = "norm of the Jacobian", .log = true};
    for (const std::string scale : {"inv_sqrt_dk", "none"}) {
      const bool scaled = scale == "inv_sqrt_dk";
      for (const std::string kind : {"mean", "median"}) {
        const bool mean = kind == "mean";
        Series one = over_seeds(here.where("scale", scale), "dk", "jacobian_" + kind,
                                name_of(scale) + ", " + kind,
                                scaled ? (mean ? 0 : 5)
                                : mean ? 1
                                       : 3);
        one.mark = Mark::line_points;
        if (!one.x.empty()) panel.series.push_back(std::move(one));
      }
    }
    Series predicted{
        .name = "predicted mean f_T / sqrt(d_k)", .mark = Mark::line_points, .look = 6};
    for (const double dk : here.distinct("dk")) {
      if (!limit_holds(dk, T)) continue;
      predicted.x.push_back(dk);
      predicted.y.push_back(top_gap_density(T) / std::sqrt(dk));
    }
    if (!predicted.x.empty()) panel.series.push_back(std::move(predicted));
    if (!panel.series.empty()) figure.panels.push_back(std::move(panel));
  }
  figure.columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return figure;
}

Figure best_rate_figure(const Results& results, const std::vector<const Outcome*>& sweep,
                        const std::string& name) {
  Figure figure{.name = name,
                .description =
                    "Loss against training step, with and without the scale, each at "
                    "its best learning rate; a panel for each d_k. Lines are medians "
                    "over seeds, bands reach from the best to the worst."};
  std::map<double, Panel> panels;
  for (const std::string scale : {"inv_sqrt_dk", "none"}) {
    std::map<double, std::vector<const Outcome*>> of_width;
    for (const Outcome* one : sweep) {
      if (one->setting.scale == scale) of_width[one->setting.dk].push_back(one);
    }
    for (const auto& [dk, rates] : of_width) {
      const Setting& s = best(rates)->setting;
      const Rows rows = rows_of(results.curves, s);
      if (rows.empty()) continue;
      Panel& panel = panels.try_emplace(dk, panel_of_curves("", "loss (nats)", true)).first->second;
      panel.title += panel.title.empty() ? fmt::format("d_k = {}: rate {}", dk, s.lr)
                                         : fmt::format(", {}", s.lr);
      panel.series.push_back(over_seeds(rows, "step", "loss", name_of(scale), look_of(scale)));
    }
  }
  for (auto& [dk, panel] : panels) figure.panels.push_back(std::move(panel));
  figure.columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return figure;
}

Figure rate_strip_figure(const Results& results, const std::vector<const Outcome*>& sweep) {
  Figure figure{.name = "rate_strip",
                .description =
                    "Steps until 90 % of the answers are right, against the learning "
                    "rate: a point for each seed; those that did not get there lie on "
                    "the upper line. A panel for each d_k.",
                .panel_height = 270};
  double last = 0;
  for (const Outcome* one : sweep) last = std::max(last, one->step);
  const double never = 1.6 * std::max(1.0, last);
  std::map<double, Panel> panels;
  for (const Outcome* one : sweep) {
    const Setting& s = one->setting;
    const Rows rows = rows_of(results.curves, s);
    if (rows.empty()) continue;
    Panel& panel = panels[s.dk];
    if (panel.title.empty()) {
      panel.title = fmt::format("d_k = {}", s.dk);
      panel.x = {.label = "learning rate", .log = true};
      panel.y = {.label = "steps to 90 %", .log = true, .high = 1.25 * never};
      for (const double tick : {5., 10., 20., 50., 100., 200., 500., 1000., 2000., 5000.}) {
        if (tick < 0.95 * never) panel.y.ticks.emplace_back(tick, digits(tick));
      }
      panel.y.ticks.emplace_back(never, "never");
      panel.references.push_back({"", never});
    }
    const std::pair tick{s.lr, digits(s.lr)};
    if (std::find(panel.x.ticks.begin(), panel.x.ticks.end(), tick) == panel.x.ticks.end()) {
      panel.x.ticks.push_back(tick);
    }
    const std::string name = name_of(s.scale);
    auto series = std::find_if(panel.series.begin(), panel.series.end(),
                               [&](const Series& known) { return known.name == name; });
    if (series == panel.series.end()) {
      const bool scaled = s.scale == "inv_sqrt_dk";
      panel.series.push_back({.name = name,
                              .mark = Mark::points,
                              .look = look_of(s.scale),
                              .shift = scaled ? -0.12 : 0.12});
      series = panel.series.end() - 1;
    }
    for (const double seed : rows.distinct("seed")) {
      series->x.push_back(s.lr);
      series->y.push_back(std::min(steps_to_90(rows.where("seed", seed)), never));
    }
  }
  for (auto& [dk, panel] : panels) {
    if (panel.x.ticks.size() > 0) {
      const auto [low, high] = std::minmax_element(panel.x.ticks.begin(), panel.x.ticks.end());
      panel.x.low = low->first / 1.6;
      panel.x.high = high->first * 1.6;
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return figure;
}

Figure remedies_figure(const Results& results, const std::vector<const Outcome*>& remedies) {
  Figure figure{.name = "remedies",
                .description =
                    "Accuracy against training step for scaled, unscaled and each "
                    "remedy, each at its best learning rate; medians over seeds."};
  Panel panel = panel_of_curves("", "accuracy", false);
  panel.references.push_back({"90 %", 0.9});
  int next = 2;
  for (const Outcome* one : remedies) {
    const Setting& s = one->setting;
    const Rows rows = rows_of(results.curves, s);
    if (rows.empty()) continue;
    const bool other = s.remedy != "-" || s.init_gain != 1 || look_of(s.scale) > 1;
    Series line =
        over_seeds(rows, "step", "accuracy",
                   fmt::format("{} (rate {})", name_of(s.scale, s.remedy, s.init_gain), s.lr),
                   other ? next++ : look_of(s.scale));
    // Bands of so many lines would hide each other.
    line.low.clear();
    line.high.clear();
    panel.series.push_back(std::move(line));
  }
  if (!panel.series.empty()) figure.panels = {panel};
  figure.panel_height = 320;
  return figure;
}

}  // namespace starvation
