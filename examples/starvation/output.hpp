// What a run leaves in its folder, and its table on stdout.
#pragma once

#include <string>

#include "options.hpp"
#include "results.hpp"

namespace starvation {

/// Makes the folder, and proves that files can be written there.
/// Throws: softtape::IoError when it holds a run already and `force` is not set, or cannot be
/// written.
void open_folder(const Options& options);

/// Writes every table that has rows, each whole or not at all, and run.json.
/// Throws: softtape::IoError.
void write_tables(const Results& results, const std::string& folder);

/// One table for programs: of the last part that ran and has a summary. `format`: csv or json.
std::string table_for_programs(const Results& results, const std::string& format);

/// What the machine computes with.
std::string cpu_features();

}  // namespace starvation
