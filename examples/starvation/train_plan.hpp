// What the training part runs: groups of settings under a heading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"
#include "recall.hpp"

namespace starvation {

/// Settings under a heading; each runs with every seed.
struct Group {
  std::string heading;
  std::vector<RecallSetting> settings;
  std::uint64_t seeds;
  bool best = false;  // whether each line's best rate is looked for
};

/// The default grid, that of --full, or the user's own.
std::vector<Group> plan(const Options& options);

}  // namespace starvation
