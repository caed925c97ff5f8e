// Table: rows under named columns, the form in which measurements leave softtape.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "softtape/base/export.hpp"

namespace softtape {

/// One entry of a table.
using Cell = std::variant<std::int64_t, double, bool, std::string>;

/// Rows of equal length under named columns. Numbers are written shortest round trip, the same in
/// every locale. A number that is not finite is the word "NaN", "Inf" or "-Inf" in quotes in CSV,
/// and null in JSON, where the row gets the entry "status": "non-finite" unless the table has a
/// column of that name. Text is UTF-8; a byte that is not becomes U+FFFD in JSON.
class SOFTTAPE_API Table {
 public:
  /// Throws: ValueError for no columns, an empty name or a name twice.
  explicit Table(std::vector<std::string> columns);

  /// Throws: ShapeError unless there is one cell per column.
  void add(std::vector<Cell> row);

  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }
  /// Place of a column. Throws: ValueError when there is none of that name.
  std::size_t column(const std::string& name) const;

  /// Comma separated, a header line first (RFC 4180, lines end in \n).
  std::string csv() const;
  /// One JSON object per line.
  std::string jsonl() const;
  /// The same objects as one JSON array, each on a line of its own between lines with the brackets;
  /// "[]" without rows.
  std::string json() const;
  /// For people: columns aligned, numbers to 4 digits.
  std::string text() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// A cell as CSV has it, quoted where needed; and as JSON has it.
SOFTTAPE_API std::string to_csv(const Cell& cell);
SOFTTAPE_API std::string to_json(const Cell& cell);

}  // namespace softtape
