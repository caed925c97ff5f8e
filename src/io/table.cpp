// Tables as CSV, JSON lines and text. Text goes through fmt, which knows no locale.
#include "softtape/io/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "io/utf8.hpp"
#include "softtape/base/error.hpp"

namespace softtape {
namespace {

bool is_finite(const Cell& cell) {
  const double* number = std::get_if<double>(&cell);
  return !number || std::isfinite(*number);
}

std::string non_finite_name(double x) {
  if (std::isnan(x)) return "NaN";
  return x > 0 ? "Inf" : "-Inf";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = detail::utf8_length(text);
    if (length != 1) {
      // JSON is UTF-8: a stray byte becomes the replacement character.
      out += length == 0 ? "\xef\xbf\xbd" : text.substr(0, length);
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out + '"';
}

std::string csv_string(const std::string& text) {
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// 4 significant digits are what a person compares.
std::string readable(const Cell& cell) {
  if (const double* number = std::get_if<double>(&cell)) {
    return is_finite(cell) ? fmt::format("{:.4g}", *number) : non_finite_name(*number);
  }
  if (const std::string* text = std::get_if<std::string>(&cell)) return *text;
  return to_json(cell);
}

}  // namespace

std::string to_csv(const Cell& cell) {
  if (const std::string* text = std::get_if<std::string>(&cell)) return csv_string(*text);
  if (!is_finite(cell)) return '"' + non_finite_name(std::get<double>(cell)) + '"';
  return to_json(cell);
}

std::string to_json(const Cell& cell) {
  if (const std::string* text = std::get_if<std::string>(&cell)) return json_string(*text);
  if (const bool* flag = std::get_if<bool>(&cell)) return *flag ? "true" : "false";
  if (const double* number = std::get_if<double>(&cell)) {
    if (!std::isfinite(*number)) return "null";
    // Readers take "-0" for a whole number, which has no sign.
    return *number == 0 && std::signbit(*number) ? "-0.0" : fmt::format("{}", *number);
  }
  return fmt::format("{}", std::get<std::int64_t>(cell));
}

Table::Table(std::vector<std::string> columns) : columns_(std::move(columns)) {
  if (columns_.empty()) throw ValueError("[Table] a table needs a column: got none");
  std::set<std::string_view> seen;
  for (const std::string& name : columns_) {
    if (name.empty() || !seen.insert(name).second) {
      throw ValueError(fmt::format(
          "[Table] columns must have names of their own: '{}' is empty or there twice", name));
    }
  }
}

void Table::add(std::vector<Cell> row) {
  if (row.size() != columns_.size()) {
    throw ShapeError(fmt::format("[Table] a row needs a cell per column: {} cells, {} columns",
                                 row.size(), columns_.size()));
  }
  rows_.push_back(std::move(row));
}

std::size_t Table::column(const std::string& name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) {
    throw ValueError(fmt::format("[Table] no column has this name: '{}'", name));
  }
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string Table::csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) out += ',';
    out += csv_string(columns_[i]);
  }
  out += '\n';
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += ',';
      out += to_csv(row[i]);
    }
    out += '\n';
  }
  return out;
}

std::string Table::jsonl() const {
  const bool has_status = std::count(columns_.begin(), columns_.end(), "status") > 0;
  std::string out;
  for (const auto& row : rows_) {
    out += '{';
    bool finite = true;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += ", ";
      out += json_string(columns_[i]) + ": " + to_json(row[i]);
      finite = finite && is_finite(row[i]);
    }
    if (!finite && !has_status) out += ", \"status\": \"non-finite\"";
    out += "}\n";
  }
  return out;
}

std::string Table::json() const {
  if (rows_.empty()) return "[]\n";
  std::string lines = jsonl();
  lines.pop_back();
  std::string out = "[\n";
  for (const char c : lines) {  // text has no line ends of its own: JSON escapes them
    if (c == '\n') out += ',';
    out += c;
  }
  return out + "\n]\n";
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& name : columns_) widths.push_back(name.size());
  std::vector<std::vector<std::string>> lines;
  for (const auto& row : rows_) {
    std::vector<std::string>& line = lines.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.push_back(readable(row[i]));
      widths[i] = std::max(widths[i], line.back().size());
    }
  }
  lines.insert(lines.begin(), columns_);
  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool words = !rows_.empty() && std::holds_alternative<std::string>(rows_[0][i]);
      if (i > 0) out += "  ";
      out += words ? fmt::format("{:<{}}", line[i], widths[i])
                   : fmt::format("{:>{}}", line[i], widths[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace softtape
