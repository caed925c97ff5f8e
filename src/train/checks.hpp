// Checks that the training floor's files share.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "softtape/base/error.hpp"

namespace softtape::detail {

/// Throws: ValueError "[op] rule: name = value" unless value >= least.
inline void require_least(const char* op, const char* rule, const char* name, std::int64_t value,
                          std::int64_t least) {
  if (value < least) throw ValueError(fmt::format("[{}] {}: {} = {}", op, rule, name, value));
}

/// Throws: ValueError for a size below 1.
inline void require_size(const char* op, const char* name, std::int64_t value) {
  require_least(op, "a size must be at least 1", name, value, 1);
}

}  // namespace softtape::detail
