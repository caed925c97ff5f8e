// History as series, tables and a state of three columns and the names.
#include "softtape/train/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "nn/state_reader.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

void History::add(std::int64_t step, const std::string& metric, double value) {
  if (step < 0) throw ValueError(fmt::format("[History] steps are counted from 0: {}", step));
  if (metric.empty()) throw ValueError("[History] a metric needs a name: it is empty");
  auto found = std::find(names_.begin(), names_.end(), metric);
  if (found == names_.end()) found = names_.insert(names_.end(), metric);
  records_.push_back({step, static_cast<std::size_t>(found - names_.begin()), value});
}

void History::add(std::int64_t step, const Metrics& metrics) {
  for (const auto& [name, value] : metrics) add(step, name, value);
}

std::vector<std::int64_t> History::steps(const std::string& metric) const {
  std::vector<std::int64_t> out;
  for (const Record& r : records_) {
    if (names_[r.metric] == metric) out.push_back(r.step);
  }
  return out;
}

std::vector<double> History::values(const std::string& metric) const {
  std::vector<double> out;
  for (const Record& r : records_) {
    if (names_[r.metric] == metric) out.push_back(r.value);
  }
  return out;
}

Table History::table() const {
  Table out({"step", "metric", "value"});
  for (const Record& r : records_) out.add({r.step, names_[r.metric], r.value});
  return out;
}

Table History::table(const std::vector<std::string>& metrics) const {
  std::map<std::int64_t, std::vector<std::optional<double>>> rows;
  for (std::size_t column = 0; column < metrics.size(); ++column) {
    if (std::find(names_.begin(), names_.end(), metrics[column]) == names_.end()) {
      throw ValueError(
          fmt::format("[History] no metric of this name was recorded: '{}'", metrics[column]));
    }
    for (const Record& r : records_) {
      if (names_[r.metric] != metrics[column]) continue;
      auto& row = rows[r.step];
      row.resize(metrics.size());
      row[column] = r.value;  // of two at one step the later one stays
    }
  }
  if (metrics.empty()) throw ValueError("[History] a table needs metrics: none were named");
  std::vector<std::string> columns{"step"};
  columns.insert(columns.end(), metrics.begin(), metrics.end());
  Table out(columns);
  for (const auto& [step, row] : rows) {
    std::vector<Cell> cells{step};
    for (const auto& value : row) {
      if (value) cells.emplace_back(*value);
    }
    if (cells.size() == columns.size()) out.add(std::move(cells));
  }
  return out;
}

State History::state() const {
  std::vector<std::int64_t> steps, metrics;
  std::vector<double> values;
  for (const Record& r : records_) {
    steps.push_back(r.step);
    metrics.push_back(static_cast<std::int64_t>(r.metric));
    values.push_back(r.value);
  }
  State state{{"steps", tensor(steps)},
              {"metrics", tensor(metrics)},
              {"values", tensor(values, {.dtype = DType::float64})}};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    state.emplace_back("name." + names_[i], scalar(static_cast<std::int64_t>(i)));
  }
  return state;
}

void History::load_state(const State& state) {
  detail::StateReader in("History", state);
  const auto steps = in.column<std::int64_t>("steps");
  const auto metrics = in.column<std::int64_t>("metrics");
  const auto values = in.column<double>("values");
  const auto numbered = in.rest("name.");
  std::vector<std::string> names(numbered.size());
  for (const auto& [name, number] : numbered) {
    const bool fits = number >= 0 && number < static_cast<std::int64_t>(names.size());
    if (!fits || name.empty() || !names[static_cast<std::size_t>(number)].empty()) {
      in.refuse(fmt::format("metrics must be numbered in a row: '{}' is {}", name, number));
    }
    names[static_cast<std::size_t>(number)] = name;
  }
  if (steps.size() != metrics.size() || steps.size() != values.size()) {
    in.refuse(fmt::format("columns must be of one length: {}, {} and {}", steps.size(),
                          metrics.size(), values.size()));
  }
  std::vector<Record> records;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < 0 || metrics[i] < 0 || metrics[i] >= static_cast<std::int64_t>(names.size())) {
      in.refuse(fmt::format("row {} has step {} and metric {}", i, steps[i], metrics[i]));
    }
    records.push_back({steps[i], static_cast<std::size_t>(metrics[i]), values[i]});
  }
  names_ = std::move(names);
  records_ = std::move(records);
}

}  // namespace softtape
