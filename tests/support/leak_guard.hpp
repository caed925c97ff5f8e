// A test that ends with more or fewer live nodes or bytes than it began with fails.
#pragma once

#include <doctest/doctest.h>

#include "softtape/graph/grad.hpp"

namespace test_support {

/// First local of a test case: everything made after it must be gone when it is.
class LeakGuard {
 public:
  LeakGuard() : before_(softtape::graph_stats()) {}
  ~LeakGuard() {
    const softtape::GraphStats after = softtape::graph_stats();
    CHECK(after.live_nodes == before_.live_nodes);
    CHECK(after.live_bytes == before_.live_bytes);
  }
  LeakGuard(const LeakGuard&) = delete;
  LeakGuard& operator=(const LeakGuard&) = delete;

 private:
  softtape::GraphStats before_;
};

}  // namespace test_support
