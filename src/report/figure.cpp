// Checks of a figure, its numbers as a data file and as tables, and its files.
#include "softtape/report/figure.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "report/draw.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"

namespace softtape {
namespace detail {

void check(const Figure& figure) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  bool good_name = !figure.name.empty();
  for (const char c : figure.name) good_name = good_name && c != '/' && !is_control(c);
  if (!good_name) {
    throw ValueError(
        "[Figure] a name becomes a file name: it must not be empty nor hold '/' or "
        "control characters");
  }
  if (figure.panels.empty()) {
    throw ValueError(fmt::format("[Figure] a figure needs a panel: '{}' has none", figure.name));
  }
  for (const Panel& panel : figure.panels) {
    for (const Series& one : panel.series) {
      const std::size_t n = one.x.size();
      if (one.y.size() != n || one.low.size() != one.high.size() ||
          (!one.low.empty() && one.low.size() != n)) {
        throw ShapeError(fmt::format(
            "[Figure] a series needs as many y as x, and as many low and high or none: series "
            "'{}' of '{}' has x {}, y {}, low {}, high {}",
            one.name, figure.name, n, one.y.size(), one.low.size(), one.high.size()));
      }
    }
    const HeatMap& map = panel.heat_map;
    const bool positive = map.rows >= 0 && map.columns >= 0;
    const auto cells = positive ? static_cast<std::size_t>(map.rows * map.columns) : 0;
    if (!positive || map.values.size() != cells ||
        (!map.hidden.empty() && map.hidden.size() != cells)) {
      throw ShapeError(fmt::format(
          "[Figure] a heat map needs rows x columns values, and as many hidden or none: that of "
          "'{}' has {} rows, {} columns, {} values, {} hidden",
          figure.name, map.rows, map.columns, map.values.size(), map.hidden.size()));
    }
  }
}

}  // namespace detail

namespace {

std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "NaN"; }

// In a comment of the data file, a name must stay on its line.
std::string on_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

Table heat_map_numbers(const HeatMap& map) {
  std::vector<std::string> columns{"row"};
  for (std::int64_t j = 0; j < map.columns; ++j) columns.push_back(fmt::format("{}", j));
  Table table(columns);
  for (std::int64_t i = 0; i < map.rows; ++i) {
    std::vector<Cell> row{i};
    for (std::int64_t j = 0; j < map.columns; ++j) {
      const auto at = static_cast<std::size_t>(i * map.columns + j);
      if (!map.hidden.empty() && map.hidden[at]) {
        row.emplace_back("hidden");
      } else {
        row.emplace_back(map.values[at]);
      }
    }
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

Table numbers(const Panel& panel) {
  if (panel.heat_map.rows > 0) return heat_map_numbers(panel.heat_map);
  std::set<std::string> taken;
  std::vector<std::string> columns;
  const auto add_column = [&](const std::string& name) {
    std::string free = name;
    for (int copy = 2; !taken.insert(free).second; ++copy)
      free = fmt::format("{} ({})", name, copy);
    columns.push_back(free);
  };
  add_column(panel.x.label.empty() ? "x" : panel.x.label);
  // A series may have an x more than once: entry k of the same x goes to row (x, k).
  std::map<std::pair<double, int>, std::vector<Cell>> rows;
  for (const Series& one : panel.series) {
    const std::string name = one.name.empty() ? "y" : one.name;
    const std::size_t first = columns.size() - 1;
    add_column(name);
    if (!one.low.empty()) {
      add_column(name + ", low");
      add_column(name + ", high");
    }
    std::map<double, int> seen;
    for (std::size_t i = 0; i < one.x.size(); ++i) {
      if (std::isnan(one.x[i])) continue;  // has no place among the rows
      std::vector<Cell>& row = rows[{one.x[i], seen[one.x[i]]++}];
      row.resize(columns.size() - 1, Cell(std::string()));
      row[first] = one.y[i];
      if (!one.low.empty()) {
        row[first + 1] = one.low[i];
        row[first + 2] = one.high[i];
      }
    }
  }
  Table table(columns);
  for (auto& [key, row] : rows) {
    row.resize(columns.size() - 1, Cell(std::string()));
    row.insert(row.begin(), Cell(key.first));
    table.add(std::move(row));
  }
  return table;
}

std::string figure_data(const Figure& figure) {
  detail::check(figure);
  std::string out = "# " + on_one_line(figure.description) + '\n';
  // gnuplot counts blocks, which two blank lines separate; a series without entries has none.
  int block = 0;
  const auto head = [&](const std::string& text) {
    out += fmt::format("{}# block {}: {}\n", block > 0 ? "\n\n" : "", block, on_one_line(text));
    ++block;
  };
  for (const Panel& panel : figure.panels) {
    const std::string place = panel.title.empty() ? "" : panel.title + ": ";
    for (const Series& one : panel.series) {
      if (one.x.empty()) continue;
      head(place + one.name + (one.low.empty() ? " (x y)" : " (x y low high)"));
      for (std::size_t i = 0; i < one.x.size(); ++i) {
        out += number(one.x[i]) + ' ' + number(one.y[i]);
        if (!one.low.empty()) out += ' ' + number(one.low[i]) + ' ' + number(one.high[i]);
        out += '\n';
      }
    }
    const HeatMap& map = panel.heat_map;
    if (map.values.empty()) continue;
    head(place + "cells (column row value; NaN where hidden)");
    for (std::size_t at = 0; at < map.values.size(); ++at) {
      const auto columns = static_cast<std::size_t>(map.columns);
      const bool hidden = !map.hidden.empty() && map.hidden[at];
      out += fmt::format("{} {} {}\n", at % columns, at / columns,
                         hidden ? "NaN" : number(map.values[at]));
    }
  }
  return out;
}

DrawnFigure write_figure(const Figure& figure, const std::string& folder) {
  const std::string data = figure_data(figure);
  const std::string script = figure_script(figure);
  const std::string stem = folder + '/' + figure.name;
  write_file(stem + ".dat", data);
  write_file(stem + ".gp", script);
  const detail::GnuplotRun run = detail::run_gnuplot(folder, figure.name + ".gp");
  if (!run.note.empty()) {
    std::remove((stem + ".svg").c_str());
    return {"", run.note};
  }
  DrawnFigure drawn{detail::finish_svg(run.output, figure), ""};
  write_file(stem + ".svg", drawn.svg);
  return drawn;
}

}  // namespace softtape
