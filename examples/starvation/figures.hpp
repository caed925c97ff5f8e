// The figures of the report, each made from the tables that are there. A figure without panels has
// nothing to show.
#pragma once

#include <vector>

#include "report_choice.hpp"
#include "results.hpp"
#include "softtape/report/figure.hpp"

namespace starvation {

softtape::Figure two_by_two_figure(const Results& results, const Headline& headline);
softtape::Figure dead_keys_figure(const Results& results);
softtape::Figure jacobian_figure(const Results& results);
/// Of P, dL/dP and dL/dS in this order.
std::vector<softtape::Figure> heat_map_figures(const Results& results);
softtape::Figure best_rate_figure(const Results& results, const std::vector<const Outcome*>& sweep,
                                  const std::string& name);
softtape::Figure rate_strip_figure(const Results& results,
                                   const std::vector<const Outcome*>& sweep);
softtape::Figure key_symbols_figure(const Results& results);
softtape::Figure remedies_figure(const Results& results,
                                 const std::vector<const Outcome*>& remedies);
softtape::Figure text_figure(const Results& results);

}  // namespace starvation
