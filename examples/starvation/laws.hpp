// The results this program checks about itself: P1 to P13, with the ranges they must lie in.
#pragma once

#include <vector>

#include "recall.hpp"
#include "results.hpp"

namespace starvation {

/// P3 to P6, from the rows of `results.init`.
void check_start_laws(Results& results);
/// P1, P2, P7 to P11 and P13, each when the runs it speaks of are there in full.
void check_training_laws(const std::vector<RecallRun>& runs, Results& results);

/// Which of P1 to P13 are not among `results.laws`, in words.
std::string unchecked_laws(const Results& results);

/// Steps to 90 %, infinite where a run did not get there.
double steps_or_infinity(const RecallRun& run);

}  // namespace starvation
