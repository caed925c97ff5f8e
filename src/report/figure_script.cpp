// The gnuplot script of a figure. Every place is computed here in pixels, so that panels line up
// and nothing depends on what gnuplot knows of fonts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>

#include "report/axes.hpp"
#include "report/draw.hpp"

namespace softtape {
namespace {

using detail::quoted;
using detail::Range;
using detail::Ranges;

constexpr double kKeyRow = 23;
constexpr std::string_view kNext = ", \\\n     ";  // between the parts of a plot command

struct Look {
  const char* colour;
  const char* dash;
  int point;
  double fill;  // of bars: the second kind is pale, for prints without colour
};

Look look_of(const Series& series, std::size_t place) {
  static constexpr std::array<const char*, 8> dashes{"solid", "(9,4)",  "(2,3)", "(10,3,2,3)",
                                                     "(5,2)", "(14,4)", "(4,6)", "(10,2,2,2,2,2)"};
  static constexpr std::array<int, 8> points{7, 9, 5, 13, 11, 15, 6, 4};
  const std::size_t at = (series.look < 0 ? place : static_cast<std::size_t>(series.look)) % 8;
  return {detail::palette[at].light, dashes[at], points[at], at % 2 == 0 ? 0.9 : 0.4};
}

// Pixels; y grows upwards, as gnuplot's screen coordinates do.
struct Layout {
  int columns, rows;
  double width, height, left, right, top, bottom, plot_width, plot_height, key_height;
};

// One entry of the key per name.
std::vector<std::pair<const Series*, Look>> key_entries(const Figure& figure) {
  std::vector<std::pair<const Series*, Look>> entries;
  std::set<std::string> seen;
  for (const Panel& panel : figure.panels) {
    for (std::size_t i = 0; i < panel.series.size(); ++i) {
      const Series& one = panel.series[i];
      if (!one.name.empty() && seen.insert(one.name).second) {
        entries.emplace_back(&one, look_of(one, i));
      }
    }
  }
  return entries;
}

// A guess at the width of a text; too much is better than too little.
double letters(std::string_view text) { return static_cast<double>(text.size()) * 7.8; }

// How many entries fit side by side, with 70 pixels for a sample.
int key_columns(const Figure& figure, double width) {
  double widest = 0;
  for (const auto& entry : key_entries(figure)) {
    widest = std::max(widest, letters(entry.first->name) + 70);
  }
  return widest == 0 ? 0 : std::max(1, static_cast<int>((width - 40) / widest));
}

Layout layout_of(const Figure& figure) {
  const int panels = static_cast<int>(figure.panels.size());
  Layout at{};
  at.columns = figure.columns > 0 ? std::min(figure.columns, panels) : panels;
  at.rows = (panels + at.columns - 1) / at.columns;
  at.width = at.columns == 1 ? 720 : at.columns == 2 ? 920 : 1080;
  at.left = 80;
  at.right = 18;
  at.top = 14;
  at.bottom = 32;
  bool map = false;
  for (const Panel& panel : figure.panels) {
    if (!panel.title.empty()) at.top = 36;
    if (!panel.x.label.empty()) at.bottom = 58;
    if (panel.heat_map.rows > 0) map = true;
    for (const ReferenceLine& line : panel.references) {
      if (!line.vertical) at.right = std::max(at.right, 14 + letters(line.name));
    }
  }
  if (map) at.right = 92;
  at.plot_width = at.width / at.columns - at.left - at.right;
  at.plot_height = map ? at.plot_width : figure.panel_height;
  const int across = key_columns(figure, at.width);
  const int entries = static_cast<int>(key_entries(figure).size());
  at.key_height = across == 0 ? 0 : kKeyRow * ((entries + across - 1) / across) + 8;
  at.height = at.rows * (at.top + at.plot_height + at.bottom) + at.key_height;
  return at;
}

// Title and labels, at places of ours: gnuplot would put them where its guess of the widths of tick
// labels ends, which may be outside.
std::string text_commands(const Panel& panel, const Layout& at, double left, double top) {
  const auto text = [&](const std::string& words, double x, double y, const char* how) {
    return words.empty() ? std::string()
                         : fmt::format("set label {} at screen {:.5f},{:.5f} {}\n", quoted(words),
                                       x / at.width, y / at.height, how);
  };
  const double middle = top - at.plot_height / 2;
  return text(panel.title, left, top + 17, "left font 'sans-serif,14'") +
         text(panel.x.label, left + at.plot_width / 2, top - at.plot_height - 41, "center") +
         text(panel.y.label, left - 64, middle, "center rotate") +
         text(panel.heat_map.label, left + at.plot_width + 76, middle, "center rotate");
}

std::string reference_commands(const Panel& panel, const Ranges& ranges) {
  std::string out;
  for (const ReferenceLine& line : panel.references) {
    const Range& range = line.vertical ? ranges.x : ranges.y;
    if (!std::isfinite(line.at) || (range.log && line.at <= 0)) continue;
    const std::string from = line.vertical ? fmt::format("first {}, graph 0", line.at)
                                           : fmt::format("graph 0, first {}", line.at);
    const std::string to = line.vertical ? fmt::format("first {}, graph 1", line.at)
                                         : fmt::format("graph 1, first {}", line.at);
    out += fmt::format("set arrow from {} to {} nohead front lc rgb '{}' lw 1 dt (3,3)\n", from, to,
                       detail::ink.light);
    const std::string place = line.vertical
                                  ? fmt::format("first {}, graph 0.97 left offset 0.5,0", line.at)
                                  : fmt::format("graph 1, first {} left offset 0.7,0", line.at);
    out += fmt::format("set label {} at {} front\n", quoted(line.name), place);
  }
  return out;
}

// How a series is drawn; the same in the plot and in the key.
std::string style_of(const Series& series, const Look& look) {
  if (series.mark == Mark::bars) {
    return fmt::format("boxes lc rgb '{0}' fs transparent solid {1} border lc rgb '{0}'",
                       look.colour, look.fill);
  }
  const std::string line = fmt::format("lw 2 dt {}", look.dash);
  const std::string points = fmt::format("pt {} ps 0.6", look.point);
  const std::string colour = fmt::format("lc rgb '{}' ", look.colour);
  if (series.mark == Mark::line) return "lines " + colour + line;
  if (series.mark == Mark::points) return "points " + colour + points;
  return "linespoints " + colour + line + ' ' + points;
}

std::string series_commands(const Panel& panel, const std::string& file, int& block) {
  // Bands lie under all lines.
  std::string bands, lines;
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const Series& one = panel.series[i];
    if (one.x.empty()) continue;
    const Look look = look_of(one, i);
    const std::string data = fmt::format("{} index {} using ", file, block++);
    const std::string x = one.shift == 0 ? "1"
                          : panel.x.log  ? fmt::format("($1*{})", 1 + one.shift)
                                         : fmt::format("($1+{})", one.shift);
    const std::string width = one.mark == Mark::bars ? fmt::format(":({})", one.bar_width) : "";
    if (!one.low.empty()) {
      bands += fmt::format(
          "{}{}:3:4 with filledcurves fc rgb '{}' fs transparent solid 0.16 noborder notitle{}",
          data, x, look.colour, kNext);
    }
    lines += fmt::format("{}{}:2{} with {} notitle{}", data, x, width, style_of(one, look), kNext);
  }
  const std::string all = bands + lines;
  return all.substr(0, all.size() - kNext.size());
}

// The cells of cividis (Nuñez, Anderton and Renslow 2018), even in lightness for every eye; and a
// blue to brown whose middle is a near-white zero.
std::string palette_commands(const HeatMap& map) {
  const bool sequential = map.colours == HeatMap::Colours::sequential;
  return std::string("set palette maxcolors 64 defined ") +
         (sequential ? "(0 '#00224e', 1 '#123570', 2 '#3b496c', 3 '#575d6d', 4 '#707173', "
                       "5 '#8a8678', 6 '#a59c74', 7 '#c3b369', 8 '#e1cc55', 9 '#fee838')\n"
                     : "(0 '#0b4f8a', 1 '#5fa3d3', 2 '#f6f6f4', 3 '#e39a4c', 4 '#8a4300')\n");
}

Range colours_of(const HeatMap& map) {
  Range range;
  for (std::size_t i = 0; i < map.values.size(); ++i) {
    if (map.hidden.empty() || !map.hidden[i]) range.add(map.values[i]);
  }
  if (range.empty()) range = {0, 1};
  if (std::isfinite(map.low)) range.low = map.low;
  if (std::isfinite(map.high)) range.high = map.high;
  if (map.colours == HeatMap::Colours::diverging) {
    range.high = std::max(std::abs(range.low), std::abs(range.high));
    if (range.high == 0) range.high = 1;
    range.low = -range.high;
  }
  if (!(range.low < range.high)) range.high = range.low + 1;
  return range;
}

// Two strokes per hidden cell, as inline data of the script.
std::string hatching(const HeatMap& map, int panel) {
  std::string out = fmt::format("$hatch{} << END\n", panel);
  for (std::size_t i = 0; i < map.hidden.size(); ++i) {
    if (!map.hidden[i]) continue;
    const double x = static_cast<double>(i % static_cast<std::size_t>(map.columns)) - 0.5;
    const double y = static_cast<double>(i / static_cast<std::size_t>(map.columns)) - 0.5;
    out +=
        fmt::format("{} {}\n{} {}\n\n{} {}\n{} {}\n\n", x, y + 0.5, x + 0.5, y, x, y + 1, x + 1, y);
    out += fmt::format("{} {}\n{} {}\n\n", x + 0.5, y + 1, x + 1, y + 0.5);
  }
  return out + "END\n";
}

std::string heat_map_commands(const HeatMap& map, const std::string& file, int panel, int& block) {
  const Range colours = colours_of(map);
  std::string out = palette_commands(map);
  out += fmt::format("set cbrange [{}:{}]\n", colours.low, colours.high);
  const bool hatched = std::find(map.hidden.begin(), map.hidden.end(), true) != map.hidden.end();
  if (hatched) out += hatching(map, panel);
  out += "unset grid\nset tics out nomirror\n";
  out += fmt::format("plot {} index {} using 1:2:3 with image pixels notitle", file, block++);
  if (hatched) {
    out += fmt::format(", \\\n     $hatch{} with lines lc rgb '{}' lw 0.8 notitle", panel,
                       detail::frame.light);
  }
  return out + '\n';
}

std::string key_commands(const Figure& figure, const Layout& at) {
  if (at.key_height == 0) return "";
  std::string out = "\n# The key\nunset label\nunset arrow\nunset border\nunset tics\nunset grid\n";
  out += "unset logscale\nset xrange [0:1]\nset yrange [0:1]\n";
  out += fmt::format(
      "set lmargin at screen 0\nset rmargin at screen 1\nset bmargin at screen 0\n"
      "set tmargin at screen {:.5f}\n",
      at.key_height / at.height);
  out += fmt::format(
      "set key center center horizontal maxcols {} Left reverse samplen 3 "
      "width 2 spacing 1.15 textcolor rgb '{}'\n",
      key_columns(figure, at.width), detail::ink.light);
  out += "plot 2 with lines notitle";
  for (const auto& [series, look] : key_entries(figure)) {
    out += std::string(kNext) + "keyentry with " + style_of(*series, look);
    out += " title " + quoted(series->name);
  }
  return out + '\n';
}

}  // namespace

std::string figure_script(const Figure& figure) {
  detail::check(figure);
  const Layout at = layout_of(figure);
  // The leading "./" keeps gnuplot from taking a name like '<ls' for a command to run.
  const std::string file = quoted("./" + figure.name + ".dat");
  std::string out = fmt::format(
      "# Draws {0}.svg from {0}.dat: gnuplot {0}.gp > {0}.svg\n"
      "set terminal svg size {1:.0f},{2:.0f} dynamic noenhanced font 'sans-serif,13'\n"
      "set encoding utf8\nset multiplot\nset key off\nset jitter overlap 0.5 spread 0.6\nset "
      "format '%g'\nset format cb '%g'\n",
      figure.name, at.width, at.height);
  int block = 0;
  for (std::size_t i = 0; i < figure.panels.size(); ++i) {
    const Panel& panel = figure.panels[i];
    const int column = static_cast<int>(i) % at.columns, row = static_cast<int>(i) / at.columns;
    const double left = at.width / at.columns * column + at.left;
    const double top = at.height - row * (at.top + at.plot_height + at.bottom) - at.top;
    const double x0 = left / at.width, x1 = (left + at.plot_width) / at.width;
    const double y0 = (top - at.plot_height) / at.height, y1 = top / at.height;
    const bool map = panel.heat_map.rows > 0;
    Ranges ranges = detail::ranges_of(panel);
    if (map) {
      ranges.x = {-0.5, static_cast<double>(panel.heat_map.columns) - 0.5};
      ranges.y = {static_cast<double>(panel.heat_map.rows) - 0.5, -0.5};  // row 0 on top
      ranges.empty = panel.heat_map.columns == 0;
    }
    out += fmt::format("\n# Panel {}\nunset label\nunset arrow\n", i);
    out += fmt::format("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\n", x0, x1);
    out += fmt::format("set bmargin at screen {:.5f}\nset tmargin at screen {:.5f}\n", y0, y1);
    out += fmt::format("set border {} lc rgb '{}' lw 1\n", map ? 15 : 3, detail::frame.light);
    out += fmt::format("set tics out nomirror scale 0.5 textcolor rgb '{}'\n", detail::ink.light);
    out += fmt::format("set grid x y lc rgb '{}' lw 1 lt 1\n", detail::grid.light);
    out += detail::axis_commands('x', panel.x, ranges.x) +
           detail::axis_commands('y', panel.y, ranges.y);
    out += text_commands(panel, at, left, top);
    if (ranges.empty) {
      out +=
          "set label 'no numbers to show' at graph 0.5, graph 0.5 center\nplot 2 with lines lc "
          "rgb '#00000000' notitle\n";
    } else if (map) {
      out +=
          fmt::format("set colorbox user origin screen {:.5f},{:.5f} size screen {:.5f},{:.5f}\n",
                      x1 + 10 / at.width, y0, 12 / at.width, y1 - y0);
      out += heat_map_commands(panel.heat_map, file, static_cast<int>(i), block);
    } else {
      out += reference_commands(panel, ranges);
      out += "plot " + series_commands(panel, file, block) + '\n';
    }
  }
  return out + key_commands(figure, at);
}

}  // namespace softtape
