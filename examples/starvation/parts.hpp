// The four parts of the program. Each adds its rows to the results and, when `say` is set, prints
// what a reader should see on stdout. They return false when a signal came; rows of runs that were
// finished by then are there.
#pragma once

#include "options.hpp"
#include "results.hpp"
#include "softtape/train/char_text.hpp"

namespace starvation {

/// The lesson's numbers, recomputed.
bool run_lesson(const Options& options, Results& results, bool say);
/// What starves before the first step, and what does not.
bool run_init(const Options& options, Results& results, bool say);
/// Weights and gradients of one sequence, scaled and unscaled.
void add_heat_maps(Results& results);
/// Training on associative recall: the two-by-two, the sweep, controls and remedies.
bool run_train(const Options& options, Results& results, bool say);
/// The text of the text part; an empty path means the one that Debian installs.
/// Throws: softtape::IoError or ValueError for a text that cannot be used.
softtape::CharText open_text(const std::string& path);
/// A character model on real text.
bool run_text(const Options& options, const softtape::CharText& text, Results& results, bool say);

}  // namespace starvation
