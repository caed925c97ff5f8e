// Whether two contenders compute the same.
#include <algorithm>
#include <cmath>
#include <limits>

#include "workloads.hpp"

namespace bench {

double disagreement(const std::string& workload, const Sizes& sizes, int threads) {
  const std::unique_ptr<Workload> sides[] = {by_hand(workload, sizes, threads),
                                             with_softtape(workload, sizes)};
  for (int i = 0; i < 3; ++i) {
    for (const auto& side : sides) side->run();
  }
  const std::vector<float> a = sides[0]->results();
  const std::vector<float> b = sides[1]->results();
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    const float here = std::abs(a[i] - b[i]);
    if (!(here <= difference)) difference = here;  // a NaN stays
  }
  return static_cast<double>(difference / largest);
}

}  // namespace bench
