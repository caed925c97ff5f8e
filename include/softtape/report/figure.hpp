// Figures: line series with bands, point strips, bars and heat maps, side by side as small
// multiples. A figure leaves its numbers, the gnuplot script that draws them, and, where gnuplot is
// installed, the drawing as SVG. Read next: html.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "softtape/base/export.hpp"
#include "softtape/io/table.hpp"

namespace softtape {

/// How the entries of a series are drawn.
enum class Mark { line, line_points, points, bars };  // points at one place spread sideways

/// Points (x, y) in order. A number that is not finite leaves a gap.
struct Series {
  std::string name{};  ///< in the key and the tables; series of one name share one entry of the key
  std::vector<double> x{};
  std::vector<double> y{};
  std::vector<double> low{};   ///< with `high`: a band behind the line; empty for none
  std::vector<double> high{};  ///< as long as x
  Mark mark = Mark::line;
  int look = -1;         ///< colour, dash and point of 8 kinds; -1: its place in the panel
  double bar_width = 1;  ///< in units of x
  double shift = 0;      ///< drawn this far to the right; on a log axis 0.1 is a tenth of x
};

/// A straight line across a panel, named at its end.
struct ReferenceLine {
  std::string name;
  double at;
  bool vertical = false;
};

struct Axis {
  std::string label{};
  bool log = false;  ///< numbers that are not positive are then left out
  double low = std::numeric_limits<double>::quiet_NaN();   ///< NaN: from the data
  double high = std::numeric_limits<double>::quiet_NaN();  ///< NaN: from the data
  std::vector<std::pair<double, std::string>> ticks{};     ///< empty: gnuplot's choice
};

/// A matrix as colours, row 0 on top. Hidden cells are hatched, non-finite ones left blank.
struct HeatMap {
  enum class Colours { sequential, diverging };
  std::int64_t rows = 0;  ///< 0: no heat map
  std::int64_t columns = 0;
  std::vector<double> values{};  ///< row-major
  std::vector<bool> hidden{};    ///< empty: none
  std::string label{};           ///< of the colour bar
  Colours colours = Colours::sequential;
  double low = std::numeric_limits<double>::quiet_NaN();   ///< NaN: from the data
  double high = std::numeric_limits<double>::quiet_NaN();  ///< diverging: low is -high
};

/// One plot. Without a single number to show it says so.
struct Panel {
  std::string title{};
  Axis x{};
  Axis y{};
  std::vector<Series> series{};
  std::vector<ReferenceLine> references{};
  HeatMap heat_map{};
};

struct Figure {
  std::string name{};         ///< of its files, without an ending
  std::string description{};  ///< what it shows, in words, for those who cannot see it
  std::vector<Panel> panels{};
  int columns = 0;            ///< panels in a row; 0: all of them
  double panel_height = 250;  ///< of the plot itself, in pixels; heat maps are square
};

/// What became of a figure.
struct DrawnFigure {
  std::string svg;   ///< empty where it was not drawn
  std::string note;  ///< why not, in one line
};

/// The numbers of a panel: a row per x and columns per series; of a heat map, the matrix.
SOFTTAPE_API Table numbers(const Panel& panel);

/// NAME.dat: what NAME.gp reads, a block per series.
/// Throws: as write_figure.
SOFTTAPE_API std::string figure_data(const Figure& figure);

/// NAME.gp: `gnuplot NAME.gp > NAME.svg`, run in the folder of NAME.dat, draws the figure.
/// Throws: as write_figure.
SOFTTAPE_API std::string figure_script(const Figure& figure);

/// Writes NAME.dat, NAME.gp and, when gnuplot is on the PATH and succeeds, NAME.svg into a folder
/// that exists; an older NAME.svg does not stay beside newer numbers. The drawing is the same byte
/// for byte on every run, loads nothing, and follows the reader's light or dark setting.
/// Throws: ShapeError for x, y, low, high, values or hidden of unequal length; ValueError for no
/// panel, or a name that is empty or holds '/' or a control character; IoError. Nothing is written
/// before the checks.
SOFTTAPE_API DrawnFigure write_figure(const Figure& figure, const std::string& folder);

}  // namespace softtape
