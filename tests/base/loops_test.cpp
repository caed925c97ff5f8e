// How loops are cut: whole, in order, in even numbers, at whole units.
#include "base/loops.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

using namespace softtape;

namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> ranges_of(std::int64_t n, std::int64_t grain) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  std::mutex mutex;
  detail::for_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace

TEST_CASE("for_ranges: every number once, in an even number of ranges") {
  for (const std::int64_t grain : {1, 2, 3, 37, 64, 1000, 1025, 32768}) {
    for (const std::int64_t more : {-1, 0, 1}) {
      for (const std::int64_t times : {0, 1, 2, 3, 4, 5, 9, 17}) {
        const std::int64_t n = std::max<std::int64_t>(0, grain * times + more);
        CAPTURE(n);
        CAPTURE(grain);
        const auto ranges = ranges_of(n, grain);
        std::int64_t at = 0;
        bool good = true;
        for (const auto& range : ranges) {
          good &= range.first == at && range.second > at;
          at = range.second;
        }
        CHECK(good);
        CHECK(at == n);
        CHECK(ranges.size() <= static_cast<std::size_t>(times + 5));
        const bool even = ranges.size() < 3 || ranges.size() % 4 == 0;
        CHECK((even || static_cast<std::int64_t>(ranges.size()) == n));
      }
    }
  }
  for (const auto& range : ranges_of(1'000'000, 32768)) CHECK(range.first % 64 == 0);
}

TEST_CASE("cut: whole units, the remainder last") {
  CHECK(detail::cut(20, 6, 2, 0) == 0);
  CHECK(detail::cut(20, 6, 2, 1) == 6);
  CHECK(detail::cut(20, 6, 2, 2) == 20);
  CHECK(detail::cut(5, 6, 1, 0) == 0);
  CHECK(detail::cut(5, 6, 1, 1) == 5);
  CHECK(detail::cut(std::int64_t{1} << 40, 64, 8, 4) == std::int64_t{1} << 39);
}
