// The report of a run: one page that can be handed to a class, and the figures in it.
#pragma once

#include <string>

#include "results.hpp"
#include "softtape/report/html.hpp"

namespace starvation {

/// Writes FOLDER/report.html and FOLDER/figures/ (data, scripts, drawings), making the folders.
/// What did not run is left out, and a line at the top names it.
/// Throws: softtape::IoError.
void write_report(const Results& results, const std::string& folder);

/// The closing chapters: which numbers to trust, what the experiment does not show, and what was
/// checked.
void add_caveats(softtape::HtmlPage& page);
void add_laws(softtape::HtmlPage& page, const Results& results);

}  // namespace starvation
