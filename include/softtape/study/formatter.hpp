// How reports print through fmt: as their to_string, with <fmt/core.h> alone.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace softtape::detail {

/// Base of fmt::formatter for a type that has a to_string; takes "{}" and nothing else.
struct ReportFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Report, class Context>
  auto format(const Report& report, Context& context) const {
    const std::string text = to_string(report);
    return std::copy(text.begin(), text.end(), context.out());
  }
};

}  // namespace softtape::detail
