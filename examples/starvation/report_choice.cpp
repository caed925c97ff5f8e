// Picks the two-by-two, the sweep over learning rates, the remedies and the best runs on text.
#include "report_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace starvation {

Headline headline_of(const std::vector<Outcome>& all) {
  // Where another gain ran: at d_k = 256, else at the largest.
  std::vector<const Outcome*> candidates;
  double dk = 0, T = 0;
  for (const Outcome& one : all) {
    const Setting& s = one.setting;
    const bool fits = s.task == "recall" && s.remedy == "-" && s.optimizer == "sgd" &&
                      s.lr_qk == s.lr && (s.scale == "inv_sqrt_dk" || s.scale == "none");
    if (!fits) continue;
    candidates.push_back(&one);
    if (s.init_gain != 1 && dk != 256 && (s.dk == 256 || s.dk > dk)) {
      dk = s.dk;
      T = s.T;
    }
  }
  if (dk == 0) return {};
  const auto at_rate = [&](double lr) {
    Headline found;
    for (const Outcome* one : candidates) {
      const Setting& s = one->setting;
      if (s.dk != dk || s.T != T || s.lr != lr) continue;
      const double spread = score_std(s);
      const bool narrow = spread > 0.5 && spread < 2;
      const bool wide = spread > std::sqrt(s.dk) / 2 && spread > std::sqrt(2 * std::log(s.T));
      const bool scaled = s.scale == "inv_sqrt_dk";
      if (narrow) (scaled ? found.scaled_narrow : found.unscaled_narrow) = one;
      if (wide && !narrow) (scaled ? found.scaled_wide : found.unscaled_wide) = one;
    }
    return found;
  };
  const auto filled = [](const Headline& headline) {
    const std::vector<const Outcome*> cells = headline.cells();
    return std::count_if(cells.begin(), cells.end(), [](const Outcome* one) { return one; });
  };
  Headline found = at_rate(10);
  for (const Outcome* one : candidates) {
    const Headline other = at_rate(one->setting.lr);
    if (filled(other) > filled(found)) found = other;
  }
  return found;
}

std::vector<const Outcome*> sweep_of(const std::vector<Outcome>& all,
                                     const std::string& optimizer) {
  std::map<double, std::size_t> runs_of_T;
  for (const Outcome& one : all) {
    if (one.setting.task == "recall") ++runs_of_T[one.setting.T];
  }
  double T = 0;
  for (const auto& [value, count] : runs_of_T) {
    if (T == 0 || count > runs_of_T[T]) T = value;
  }
  std::map<double, std::set<double>> rates;
  std::vector<const Outcome*> out;
  for (const Outcome& one : all) {
    const Setting& s = one.setting;
    const bool scales = s.scale == "inv_sqrt_dk" || s.scale == "none";
    if (s.task != "recall" || s.T != T || s.optimizer != optimizer || !s.plain() || !scales) {
      continue;
    }
    rates[s.dk].insert(s.lr);
    out.push_back(&one);
  }
  std::size_t most = 0;
  for (const auto& [dk, of_dk] : rates) most = std::max(most, of_dk.size());
  // A control has a learning rate or two; it is no sweep.
  std::erase_if(out, [&](const Outcome* one) { return rates[one->setting.dk].size() < most; });
  return out;
}

std::vector<const Outcome*> remedies_of(const std::vector<Outcome>& all) {
  const auto is_remedy = [](const Setting& s) {
    return s.task == "recall" && s.optimizer == "sgd" && s.lr_qk == s.lr &&
           (s.remedy != "-" || (s.scale != "inv_sqrt_dk" && s.scale != "none"));
  };
  std::map<double, int> widths;
  double dk = 0;
  for (const Outcome& one : all) {
    if (is_remedy(one.setting)) ++widths[one.setting.dk];
  }
  for (const auto& [value, count] : widths) {
    if (dk == 0 || count > widths[dk]) dk = value;
  }
  if (dk == 0) return {};
  std::map<std::tuple<std::string, std::string, double>, std::vector<const Outcome*>> groups;
  std::vector<std::tuple<std::string, std::string, double>> order{{"inv_sqrt_dk", "-", 1.0},
                                                                  {"none", "-", 1.0}};
  double T = 0;
  for (const Outcome& one : all) {
    if (is_remedy(one.setting) && one.setting.dk == dk) T = one.setting.T;
  }
  for (const Outcome& one : all) {
    const Setting& s = one.setting;
    if (s.task != "recall" || s.optimizer != "sgd" || s.lr_qk != s.lr || s.dk != dk || s.T != T) {
      continue;
    }
    const std::tuple key{s.scale, s.remedy, s.init_gain};
    if (std::find(order.begin(), order.end(), key) == order.end()) order.push_back(key);
    groups[key].push_back(&one);
  }
  std::vector<const Outcome*> out;
  for (const auto& key : order) {
    if (const Outcome* one = best(groups[key])) out.push_back(one);
  }
  return out;
}

std::vector<TextRuns> best_text_runs(const Results& results) {
  const Rows all(results.text);
  const Rows unnamed = all.where("reference", "");
  const Rows rows = unnamed.empty() ? all.where("reference", "-") : unnamed;
  std::vector<TextRuns> out;
  for (const double dk : rows.distinct("dk")) {
    for (const std::string& scale : rows.distinct_text("scale")) {
      const Rows of_scale = rows.where("dk", dk).where("scale", scale);
      double lowest = std::numeric_limits<double>::infinity();
      std::vector<TextRuns> chosen;
      for (const std::string& optimizer : of_scale.distinct_text("optimizer")) {
        const Rows of_optimizer = of_scale.where("optimizer", optimizer);
        for (const double lr : of_optimizer.distinct("lr")) {
          const Rows run = of_optimizer.where("lr", lr);
          const std::vector<double> steps = run.distinct("step");
          if (steps.empty()) continue;
          const double ends = median(run.where("step", steps.back()).numbers("loss"));
          if (!chosen.empty() && !(ends < lowest)) continue;
          if (!std::isnan(ends)) lowest = ends;
          chosen = {{scale, optimizer, dk, lr, run}};
        }
      }
      out.insert(out.end(), chosen.begin(), chosen.end());
    }
  }
  return out;
}

std::vector<Rows> key_symbol_groups(const Results& results) {
  const Rows all =
      Rows(results.keys).where("init_gain", 1).where("remedy", "-").where("optimizer", "sgd");
  const Rows of_T = all.where("T", most_common(all, "T"));
  const Rows ten = of_T.where("lr", 10);
  const Rows of_rate = ten.empty() ? of_T.where("lr", most_common(of_T, "lr")) : ten;
  // A control may be a shorter copy of a run; the main runs come first.
  const Rows rows = of_rate.first_of({"dk", "scale", "seed", "key"});
  std::vector<Rows> out;
  for (const double dk : rows.distinct("dk")) {
    for (const std::string scale : {"inv_sqrt_dk", "none"}) {
      const Rows here = rows.where("dk", dk).where("scale", scale);
      if (!here.empty()) out.push_back(here);
    }
  }
  return out;
}

double main_T(const Results& results) {
  const Rows start(results.init);
  const double trained = most_common(Rows(results.curves), "T");
  for (const double T : {trained, 16.0}) {
    if (!start.where("T", T).empty()) return T;
  }
  return most_common(start, "T");
}

}  // namespace starvation
