// What the command line of `starvation` sets. An empty list means the default grid of a part.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "softtape/base/dtype.hpp"

namespace starvation {

struct Options {
  std::set<std::string> only;  ///< parts to run: lesson, init, train, text
  bool full = false;
  std::vector<std::int64_t> dk, T;
  std::vector<std::string> scales, remedies, optimizers;
  std::vector<double> init_gains, lr, lr_qk;
  std::vector<std::uint64_t> seeds;
  std::int64_t steps = 0, eval_every = 0;  ///< 0: as the grid says
  std::int64_t keys = 32, values = 16, batch = 32;
  std::string text;  ///< path; empty: the text that Debian installs
  softtape::DType dtype = softtape::DType::float64;
  int threads = 1;
  std::string out = "out/starvation";
  bool force = false;
  std::string format = "text";
  bool quiet = false, progress = true, report = true;

  /// Whether the grid of the training part is the user's own.
  bool own_grid() const {
    return !(dk.empty() && T.empty() && scales.empty() && remedies.empty() && optimizers.empty() &&
             init_gains.empty() && lr.empty() && lr_qk.empty()) ||
           keys != 32 || values != 16 || batch != 32;
  }
  bool runs(const std::string& part) const { return only.empty() || only.contains(part); }
  /// The seeds asked for, or the first `count`.
  std::vector<std::uint64_t> seeds_or(std::uint64_t count) const {
    if (!seeds.empty()) return seeds;
    std::vector<std::uint64_t> first;
    for (std::uint64_t i = 0; i < count; ++i) first.push_back(i);
    return first;
  }

  /// Everything as given, for run.json and the report.
  std::vector<std::pair<std::string, std::string>> listed;
};

}  // namespace starvation
