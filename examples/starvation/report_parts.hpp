// The chapters of the report, each made from the tables that are there.
#pragma once

#include <string>
#include <vector>

#include "report_choice.hpp"
#include "results.hpp"
#include "softtape/report/figure.hpp"
#include "softtape/report/html.hpp"

namespace starvation {

/// The page while it is written: every chapter adds itself, or its name to what is missing.
class Report {
 public:
  Report(const Results& results, const std::string& folder)
      : results_(results), folder_(folder), all_(outcomes(results.summary)) {}

  void headline();
  void lesson();
  void start();
  void jacobian();
  void heat_maps();
  void weight_norms();
  void training();
  void key_symbols();
  void remedies();
  void text();
  void run();

  softtape::HtmlPage& page() { return page_; }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  /// Returns whether there was anything to draw.
  bool draw(const softtape::Figure& figure, const std::string& caption);
  void lesson_tables();
  void attribution(double T);
  void ends(double lr);
  void sweep(const std::vector<const Outcome*>& sweep, const std::string& optimizer);

  const Results& results_;
  std::string folder_;
  std::vector<Outcome> all_;
  softtape::HtmlPage page_{
      "Why attention divides its scores by √d_{k}",
      "A softmax over widely spread scores leaves most keys a gradient of almost nothing. Here is "
      "measured when that happens, what it does to learning, and where it does not matter."};
  std::vector<std::string> missing_;
};

}  // namespace starvation
