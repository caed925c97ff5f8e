// Which of the settings that ran belong into which part of the report.
#pragma once

#include <string>
#include <vector>

#include "report_rows.hpp"
#include "results.hpp"

namespace starvation {

/// The two-by-two: scale or none, scores spread about 1 or about sqrt(dk). Null: did not run.
struct Headline {
  const Outcome* scaled_narrow = nullptr;
  const Outcome* unscaled_narrow = nullptr;
  const Outcome* scaled_wide = nullptr;
  const Outcome* unscaled_wide = nullptr;
  std::vector<const Outcome*> cells() const {
    return {scaled_narrow, unscaled_narrow, scaled_wide, unscaled_wide};
  }
};
/// At d_k = 256 and learning rate 10, or where else a start with another gain was trained.
Headline headline_of(const std::vector<Outcome>& all);

/// Settings of the sweep over learning rates: plain, of the T that ran most, of the widths with
/// most learning rates.
std::vector<const Outcome*> sweep_of(const std::vector<Outcome>& all, const std::string& optimizer);

/// Remedies, and scaled and unscaled to compare with, at the width of the remedies: the best
/// learning rate of each.
std::vector<const Outcome*> remedies_of(const std::vector<Outcome>& all);

/// A scale's runs on text at its best optimiser and learning rate: the lowest loss at the end.
struct TextRuns {
  std::string scale, optimizer;
  double dk = 0, lr = 0;
  Rows rows;
};
std::vector<TextRuns> best_text_runs(const Results& results);

/// keys.csv by width and scale: plain, of the T that ran most, all at learning rate 10 or, where it
/// did not run, at the one that ran most.
std::vector<Rows> key_symbol_groups(const Results& results);

/// The number of keys that the tables of the start are shown for: that of training, else 16.
double main_T(const Results& results);

}  // namespace starvation
