// The number of threads inside ops, changed for a scope.
#pragma once

#include "softtape/base/parallel.hpp"

namespace test_support {

class ThreadCount {
 public:
  explicit ThreadCount(int n) : before_(softtape::num_threads()) { softtape::set_num_threads(n); }
  ~ThreadCount() { softtape::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace test_support
