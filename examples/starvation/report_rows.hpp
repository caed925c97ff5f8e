// Questions that the report asks of the tables: rows of one setting, medians over seeds, the best
// learning rate.
#pragma once

#include <string>
#include <vector>

#include "softtape/io/table.hpp"
#include "softtape/report/figure.hpp"

namespace starvation {

/// Some rows of a table. The table must outlive it.
class Rows {
 public:
  explicit Rows(const softtape::Table& table);

  Rows where(const std::string& column, const std::string& value) const;
  Rows where(const std::string& column, double value) const;
  /// Leaves out a row that agrees with an earlier one in all these columns.
  Rows first_of(const std::vector<std::string>& columns) const;
  std::size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  /// NaN for text; 0 and 1 for flags.
  double number(std::size_t row, const std::string& column) const;
  std::string text(std::size_t row, const std::string& column) const;
  std::vector<double> numbers(const std::string& column) const;
  /// Different values, ascending; NaN left out.
  std::vector<double> distinct(const std::string& column) const;
  /// Different values in the order of their first row.
  std::vector<std::string> distinct_text(const std::string& column) const;

 private:
  const softtape::Table* table_;
  std::vector<std::size_t> rows_;
};

/// What a training run was, but for its seed.
struct Setting {
  std::string task{}, scale{}, remedy{}, optimizer{};
  double dk = 0, T = 0, init_gain = 1, lr = 0, lr_qk = 0;
  bool operator==(const Setting&) const = default;
  /// Neither a remedy nor a start of its own nor a learning rate of Wq and Wk apart.
  bool plain() const { return remedy == "-" && init_gain == 1 && lr_qk == lr; }
};

/// A setting and how its seeds ended.
struct Outcome {
  Setting setting;
  double seeds = 0, reached = 0, step = 0;
  double steps_to_90 = 0;  ///< median; infinite where it did not get there
  double loss = 0, loss_sd = 0, accuracy = 0;
};

/// The last row of every setting of summary.csv, in order.
std::vector<Outcome> outcomes(const softtape::Table& summary);

/// What ends above 90 % before what does not, then the fewest steps to get there, then the smallest
/// final loss; null for none.
const Outcome* best(const std::vector<const Outcome*>& among);

/// The rows of curves.csv that belong to a setting.
Rows rows_of(const softtape::Table& curves, const Setting& setting);

/// Of what is finite; NaN where nothing is.
double median(std::vector<double> values);

/// Median of `y` over the rows of each x (the seeds), with a band from the smallest to the largest.
softtape::Series over_seeds(const Rows& rows, const std::string& x, const std::string& y,
                            const std::string& name, int look);

/// The value that most rows have; NaN for none.
double most_common(const Rows& rows, const std::string& column);

/// "scaled", "unscaled", "QK-norm" and so on, for people.
std::string name_of(const std::string& scale, const std::string& remedy = "-",
                    double init_gain = 1);

/// Standard deviation of the scores at the start, with unit-variance projections times the gain;
/// NaN where the scale is learned or a remedy changes the scores.
double score_std(const Setting& setting);

/// Four significant digits.
std::string digits(double x);

}  // namespace starvation
