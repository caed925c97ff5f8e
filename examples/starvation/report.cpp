// Puts the chapters in order. What this run measured comes from its tables.
#include "report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "report_parts.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"

namespace starvation {

using softtape::Cell;
using softtape::Figure;
using softtape::Table;

bool Report::draw(const Figure& figure, const std::string& caption) {
  if (figure.panels.empty()) return false;
  page_.figure(figure, softtape::write_figure(figure, folder_ + "/figures"), caption);
  return true;
}

void Report::run() {
  page_.section("This run");
  if (!results_.command.empty()) {
    page_.paragraph("The command that makes it again, number for number:");
    page_.code(results_.command);
  }
  page_.paragraph(
      "Beside this page lie the tables as CSV (`lesson`, `init`, `attribution`, `curves`, "
      "`summary`, `keys`, `ends`, `text`), `run.json`, and in `figures` each figure's numbers, its "
      "gnuplot script and the "
      "drawing.");
  Table options({"option", "value"});
  for (const auto& [name, value] : results_.run) options.add({Cell(name), Cell(value)});
  if (!options.rows().empty()) page_.details("Every option, and where it ran", options);
}

void write_report(const Results& results, const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder + "/figures", problem);
  if (problem) {
    throw softtape::IoError(
        fmt::format("[write_report] '{}/figures': {}", folder, problem.message()));
  }
  Report report(results, folder);
  report.headline();
  report.lesson();
  report.start();
  report.jacobian();
  report.heat_maps();
  report.weight_norms();
  report.training();
  report.key_symbols();
  report.remedies();
  report.text();
  add_caveats(report.page());
  add_laws(report.page(), results);
  report.run();

  if (results.interrupted) {
    report.page().preface(
        "**This run was interrupted.** What follows is what had finished by then.");
  }
  if (!report.missing().empty()) {
    std::string list;
    for (const std::string& part : report.missing()) list += (list.empty() ? "" : ", ") + part;
    report.page().preface("Not part of this run, and left out: " + list + ".");
  }
  softtape::write_file(folder + "/report.html", report.page().str());
}

}  // namespace starvation
