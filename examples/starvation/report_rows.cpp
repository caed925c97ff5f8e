// Rows of tables, medians over seeds, best learning rates, names for people.
#include "report_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <variant>

#include "statistics.hpp"
namespace starvation {

using softtape::Cell;
using softtape::Series;
using softtape::Table;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double number_of(const Cell& cell) {
  if (const double* x = std::get_if<double>(&cell)) return *x;
  if (const std::int64_t* n = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*n);
  if (const bool* flag = std::get_if<bool>(&cell)) return *flag ? 1 : 0;
  return kNan;
}

std::string text_of(const Cell& cell) {
  const std::string* text = std::get_if<std::string>(&cell);
  return text ? *text : softtape::to_csv(cell);
}

}  // namespace

Rows::Rows(const Table& table) : table_(&table) {
  for (std::size_t i = 0; i < table.rows().size(); ++i) rows_.push_back(i);
}

Rows Rows::where(const std::string& column, const std::string& value) const {
  const std::size_t at = table_->column(column);
  Rows out = *this;
  std::erase_if(out.rows_, [&](std::size_t row) {
    const std::string* text = std::get_if<std::string>(&table_->rows()[row][at]);
    return !text || *text != value;
  });
  return out;
}

Rows Rows::where(const std::string& column, double value) const {
  const std::size_t at = table_->column(column);
  Rows out = *this;
  std::erase_if(out.rows_,
                [&](std::size_t row) { return number_of(table_->rows()[row][at]) != value; });
  return out;
}

Rows Rows::first_of(const std::vector<std::string>& columns) const {
  std::set<std::vector<std::string>> seen;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < size(); ++i) {
    std::vector<std::string> values;
    for (const std::string& column : columns) values.push_back(text(i, column));
    if (seen.insert(std::move(values)).second) kept.push_back(rows_[i]);
  }
  Rows out = *this;
  out.rows_ = std::move(kept);
  return out;
}

double Rows::number(std::size_t row, const std::string& column) const {
  return number_of(table_->rows()[rows_[row]][table_->column(column)]);
}

std::string Rows::text(std::size_t row, const std::string& column) const {
  return text_of(table_->rows()[rows_[row]][table_->column(column)]);
}

std::vector<double> Rows::numbers(const std::string& column) const {
  std::vector<double> out;
  for (std::size_t i = 0; i < size(); ++i) out.push_back(number(i, column));
  return out;
}

std::vector<double> Rows::distinct(const std::string& column) const {
  std::vector<double> out = numbers(column);
  std::erase_if(out, [](double x) { return std::isnan(x); });
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::string> Rows::distinct_text(const std::string& column) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < size(); ++i) {
    std::string value = text(i, column);
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(std::move(value));
  }
  return out;
}

std::vector<Outcome> outcomes(const Table& summary) {
  const Rows rows(summary);
  std::vector<Outcome> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Outcome one;
    one.setting = {rows.text(i, "task"),        rows.text(i, "scale"), rows.text(i, "remedy"),
                   rows.text(i, "optimizer"),   rows.number(i, "dk"),  rows.number(i, "T"),
                   rows.number(i, "init_gain"), rows.number(i, "lr"),  rows.number(i, "lr_qk")};
    one.seeds = rows.number(i, "seeds");
    one.reached = rows.number(i, "reached_90");
    one.step = rows.number(i, "step");
    const double steps = rows.number(i, "steps_to_90_median");
    one.steps_to_90 = steps >= 0 ? steps : kInfinity;
    one.loss = rows.number(i, "loss_mean");
    one.loss_sd = rows.number(i, "loss_sd");
    one.accuracy = rows.number(i, "accuracy_mean");
    const auto known = std::find_if(
        out.begin(), out.end(), [&](const Outcome& other) { return other.setting == one.setting; });
    if (known == out.end()) {
      out.push_back(one);
    } else if (one.step >= known->step) {
      *known = one;
    }
  }
  return out;
}

const Outcome* best(const std::vector<const Outcome*>& among) {
  // Smaller is better.
  const auto rank = [](const Outcome* one) {
    return std::tuple(one->accuracy < 0.9, one->steps_to_90,
                      std::isnan(one->loss) ? kInfinity : one->loss);
  };
  const auto found =
      std::min_element(among.begin(), among.end(),
                       [&](const Outcome* a, const Outcome* b) { return rank(a) < rank(b); });
  return found == among.end() ? nullptr : *found;
}

Rows rows_of(const Table& curves, const Setting& s) {
  return Rows(curves)
      .where("task", s.task)
      .where("dk", s.dk)
      .where("T", s.T)
      .where("scale", s.scale)
      .where("remedy", s.remedy)
      .where("init_gain", s.init_gain)
      .where("optimizer", s.optimizer)
      .where("lr", s.lr)
      .where("lr_qk", s.lr_qk);
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  return median_of(std::move(values));
}

Series over_seeds(const Rows& rows, const std::string& x, const std::string& y,
                  const std::string& name, int look) {
  std::map<double, std::vector<double>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double at = rows.number(i, x), value = rows.number(i, y);
    if (std::isnan(at)) continue;
    std::vector<double>& group = groups[at];
    if (std::isfinite(value)) group.push_back(value);
  }
  Series out{.name = name, .look = look};
  for (const auto& [at, values] : groups) {
    out.x.push_back(at);
    out.y.push_back(median(values));
    out.low.push_back(values.empty() ? kNan : *std::min_element(values.begin(), values.end()));
    out.high.push_back(values.empty() ? kNan : *std::max_element(values.begin(), values.end()));
  }
  return out;
}

double most_common(const Rows& rows, const std::string& column) {
  std::map<double, std::size_t> counts;
  for (const double x : rows.numbers(column)) {
    if (!std::isnan(x)) ++counts[x];
  }
  double found = kNan;
  std::size_t most = 0;
  for (const auto& [value, count] : counts) {
    if (count > most) {
      most = count;
      found = value;
    }
  }
  return found;
}

std::string name_of(const std::string& scale, const std::string& remedy, double init_gain) {
  static const std::map<std::string, std::string> names{
      {"inv_sqrt_dk", "scaled"},    {"none", "unscaled"},         {"inv_dk", "1/d_k"},
      {"dk_quarter", "d_k^(-1/4)"}, {"learned", "learned scale"}, {"qk_norm", "QK-norm"},
      {"soft_cap", "soft-cap"}};
  const auto readable = [](std::string name) {
    const auto known = names.find(name);
    if (known != names.end()) return known->second;
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
  };
  std::string out = readable(scale);
  const bool remedied = remedy != "-" && !remedy.empty() && remedy != scale;
  if (remedied) out = readable(remedy) + ", " + out;
  if (init_gain != 1) out += fmt::format(", gain {:.4g}", init_gain);
  return out;
}

double score_std(const Setting& s) {
  if (s.remedy != "-") return kNan;
  const double spread = std::sqrt(s.dk) * s.init_gain * s.init_gain;
  if (s.scale == "inv_sqrt_dk") return spread / std::sqrt(s.dk);
  if (s.scale == "none") return spread;
  if (s.scale == "inv_dk") return spread / s.dk;
  if (s.scale == "dk_quarter") return spread / std::pow(s.dk, 0.25);
  return kNan;
}

std::string digits(double x) { return std::isnan(x) ? "NaN" : fmt::format("{:.4g}", x); }

}  // namespace starvation
