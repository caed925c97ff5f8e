// History: the numbers of a run, by step and name; saved with it, so that a resumed run's log is
// whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softtape/io/table.hpp"
#include "softtape/nn/state.hpp"
#include "softtape/train/metrics.hpp"

namespace softtape {

/// Numbers under names, each at a step: how many updates were made before it was measured.
class SOFTTAPE_API History final : public Stateful {
 public:
  /// Throws: ValueError for a negative step or an empty name.
  void add(std::int64_t step, const std::string& metric, double value);
  void add(std::int64_t step, const Metrics& metrics);

  /// Names in order of first appearance.
  const std::vector<std::string>& metrics() const { return names_; }
  /// Steps and values of one metric, as recorded; empty for a name that never came.
  std::vector<std::int64_t> steps(const std::string& metric) const;
  std::vector<double> values(const std::string& metric) const;
  /// All that is recorded, metrics together.
  std::size_t size() const { return records_.size(); }

  /// Columns step, metric and value: a row for each number, in the order recorded.
  Table table() const;
  /// Columns step and the given metrics: a row for each step where all of them were recorded.
  /// Throws: ValueError for no metrics, or one that never came.
  Table table(const std::vector<std::string>& metrics) const;

  State state() const override;
  void load_state(const State& state) override;

 private:
  struct Record {
    std::int64_t step;
    std::size_t metric;  // place in names_
    double value;
  };
  std::vector<std::string> names_;
  std::vector<Record> records_;
};

}  // namespace softtape
