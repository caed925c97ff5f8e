// Figures: the files they leave, with gnuplot, without it and with one that fails.
#include "softtape/report/figure.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "ops/support.hpp"
#include "report/support.hpp"
#include "softtape/io/file.hpp"
#include "support/constants.hpp"

namespace {

using ops_test::refusal;
using report_test::count;
using report_test::holds;
using report_test::OddFolder;
using report_test::OtherPath;
using report_test::tag_problem;
using softtape::DrawnFigure;
using softtape::Figure;
using softtape::HeatMap;
using softtape::Mark;
using softtape::Panel;
using softtape::Series;
using test_support::kInf;
using test_support::kNaN;

Figure line_figure(const std::string& name) {
  Panel panel{.title = "d_k = 64"};
  panel.x.label = "step";
  panel.y = {.label = "loss", .log = true};
  panel.series = {{.name = "scaled", .x = {0, 20, 40}, .y = {2.5, 0.25, 0.025}},
                  {.name = "unscaled",
                   .x = {0, 20, 40},
                   .y = {2.5, 2.25, 2},
                   .low = {2.25, 2, 1.5},
                   .high = {2.75, 2.5, 2.25}}};
  panel.references = {{"chance", 2.7726}};
  return {.name = name, .description = "A test.", .panels = {panel}};
}

// A gnuplot of ours in a folder of its own.
void install_fake(const std::string& folder, const std::string& script) {
  softtape::write_file(folder + "/gnuplot", "#!/bin/sh\n" + script);
  REQUIRE(::chmod((folder + "/gnuplot").c_str(), 0755) == 0);
}

bool drawn_or_not_installed(const DrawnFigure& drawn) {
  if (drawn.note.empty()) return true;
  MESSAGE(drawn.note);
  CHECK(holds(drawn.note, "not installed"));
  return false;
}

TEST_CASE("figure: the data file holds every number, a block for each series") {
  const std::string data = softtape::figure_data(line_figure("a"));
  CHECK(data ==
        "# A test.\n"
        "# block 0: d_k = 64: scaled (x y)\n0 2.5\n20 0.25\n40 0.025\n"
        "\n\n# block 1: d_k = 64: unscaled (x y low high)\n"
        "0 2.5 2.25 2.75\n20 2.25 2 2.5\n40 2 1.5 2.25\n");
}

TEST_CASE("figure: numbers that are not finite become gaps, empty series take no block") {
  Figure figure = line_figure("a");
  figure.panels[0].series[0].y = {kNaN, kInf, -kInf};
  figure.panels[0].series.insert(figure.panels[0].series.begin(), Series{.name = "empty"});
  const std::string data = softtape::figure_data(figure);
  CHECK(holds(data, "# block 0: d_k = 64: scaled (x y)\n0 NaN\n20 NaN\n40 NaN\n"));
  CHECK_FALSE(holds(data, "empty"));
  const std::string script = softtape::figure_script(figure);
  CHECK_FALSE(holds(script, "nan"));
  CHECK_FALSE(holds(script, "inf"));
  // The look of a series is its place in the panel, the block is its place in the file.
  CHECK(holds(script, "index 0 using 1:2 with lines lc rgb '#d55e00'"));
  CHECK(holds(script, "title 'empty'"));
}

TEST_CASE("figure: text in the script is quoted, and no name can become a command") {
  Figure figure = line_figure("<it's \"a\" `b` $(c)");
  figure.panels[0].title = "it's\n100 %";
  figure.panels[0].x.ticks = {{0, "0 %"}, {40, "it's"}};
  const std::string script = softtape::figure_script(figure);
  CHECK(holds(script, "'./<it''s \"a\" `b` $(c).dat' index 0"));
  CHECK(holds(script, "set label 'it''s 100 %' at"));
  CHECK(holds(script, "set xtics ('0 %%' 0, 'it''s' 40)"));
}

TEST_CASE("figure: bands, bars, points, shifts, references and log axes reach the script") {
  Figure figure = line_figure("a");
  Series bars{.name = "bars", .x = {1, 2}, .y = {3, 4}, .mark = Mark::bars, .bar_width = 0.5};
  bars.shift = 0.25;
  Series points{.name = "points", .x = {1, 10}, .y = {3, 4}, .mark = Mark::points, .look = 9};
  points.shift = 0.1;
  Panel log_x{.series = {points}};
  log_x.x.log = true;
  log_x.references = {{"here", 5, true}, {"nowhere", kNaN}, {"left out", -1, true}};
  figure.panels.push_back(Panel{.series = {bars}});
  figure.panels.push_back(log_x);
  const std::string script = softtape::figure_script(figure);
  CHECK(holds(script, "using 1:3:4 with filledcurves fc rgb '#d55e00'"));
  CHECK(holds(script, "using ($1+0.25):2:(0.5) with boxes"));
  CHECK(holds(script, "using ($1*1.1):2 with points lc rgb '#d55e00'"));  // look 9 is look 1
  CHECK(holds(script, "set logscale x"));
  CHECK(holds(script, "set label 'chance' at graph 1, first 2.7726"));
  CHECK(holds(script, "set label 'here' at first 5"));
  CHECK_FALSE(holds(script, "nowhere"));
  CHECK_FALSE(holds(script, "left out"));
  // Bars stand on zero.
  CHECK(holds(script, "set yrange [0:4.2]"));
}

TEST_CASE("figure: ranges have a length whatever the data") {
  for (const bool log : {false, true}) {
    for (const std::vector<double>& y : {std::vector<double>{},
                                         {7},
                                         {0},
                                         {-1, -2},
                                         {kNaN},
                                         {5e-324},
                                         {1e300, 1e300},
                                         {-1.7e308, 1.7e308}}) {
      Panel panel{.series = {{.name = "s", .x = y, .y = y}}};
      panel.x.log = panel.y.log = log;
      const std::string script =
          softtape::figure_script({.name = "a", .description = "", .panels = {panel}});
      CHECK_FALSE(holds(script, "nan"));
      CHECK_FALSE(holds(script, "inf"));
      const std::size_t begin = script.find("set yrange [") + 12;
      double low = 0, high = 0;
      REQUIRE(std::sscanf(script.c_str() + begin, "%lf:%lf", &low, &high) == 2);
      CHECK(low < high);
    }
  }
}

TEST_CASE("figure: heat maps hatch what is hidden and leave its number out") {
  Panel panel;
  panel.heat_map = {.rows = 2,
                    .columns = 2,
                    .values = {1, 123456, -2, kNaN},
                    .hidden = {false, true, false, false},
                    .label = "dL/dP",
                    .colours = HeatMap::Colours::diverging};
  const Figure figure{.name = "map", .description = "A map.", .panels = {panel}};
  const std::string data = softtape::figure_data(figure);
  CHECK(holds(data, "0 0 1\n1 0 NaN\n0 1 -2\n1 1 NaN\n"));
  const std::string script = softtape::figure_script(figure);
  CHECK(holds(script, "set cbrange [-2:2]"));  // even about zero, without the hidden number
  CHECK(holds(script, "$hatch0"));
  CHECK_FALSE(holds(script, "123456"));
  const softtape::Table table = softtape::numbers(panel);
  CHECK(table.csv() == "row,0,1\n0,1,hidden\n1,-2,\"NaN\"\n");

  panel.heat_map.hidden.clear();
  CHECK_FALSE(holds(softtape::figure_script({.name = "map", .description = "", .panels = {panel}}),
                    "$hatch"));
}

TEST_CASE("figure: the table of a panel has a row for each x, again for an x that comes again") {
  Panel panel{.series = {{.name = "a", .x = {2, 1, 2}, .y = {20, 10, 21}},
                         {.name = "a", .x = {1}, .y = {5}, .low = {4}, .high = {6}},
                         {.name = "", .x = {kNaN}, .y = {1}}}};
  panel.x.label = "step";
  CHECK(softtape::numbers(panel).csv() ==
        "step,a,a (2),\"a, low\",\"a, high\",y\n"
        "1,10,5,4,6,\"\"\n2,20,\"\",\"\",\"\",\"\"\n2,21,\"\",\"\",\"\",\"\"\n");
  CHECK(softtape::numbers(Panel{}).rows().empty());
}

TEST_CASE("figure: wrong lengths and names are refused before anything is written") {
  const OddFolder folder;
  const auto refused = [&](const Figure& figure) {
    return refusal<softtape::ShapeError>([&] { softtape::write_figure(figure, folder.path()); });
  };
  Figure figure = line_figure("a");
  figure.panels[0].series[0].y.pop_back();
  CHECK(holds(refused(figure), "series 'scaled' of 'a' has x 3, y 2"));
  figure = line_figure("a");
  figure.panels[0].series[1].low.pop_back();
  CHECK(holds(refused(figure), "low 2, high 3"));
  figure = line_figure("a");
  figure.panels[0].heat_map = {.rows = 2, .columns = 3, .values = {1}};
  CHECK(holds(refused(figure), "2 rows, 3 columns, 1 values"));
  figure.panels[0].heat_map = {.rows = -1, .columns = -1, .values = {1}};
  CHECK(holds(refused(figure), "-1 rows"));
  for (const std::string name : {"", "a/b", "a\nb"}) {
    CHECK(holds(refusal<softtape::ValueError>(
                    [&] { softtape::write_figure(line_figure(name), folder.path()); }),
                "becomes a file name"));
  }
  CHECK(holds(
      refusal<softtape::ValueError>([&] { softtape::write_figure({.name = "a"}, folder.path()); }),
      "needs a panel: 'a' has none"));
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(holds(refusal<softtape::IoError>(
                  [&] { softtape::write_figure(line_figure("a"), folder / "nowhere"); }),
              "nowhere/a.dat"));
}

TEST_CASE("figure: without gnuplot the numbers and the script are there, and a line says so") {
  const OddFolder folder, empty;
  const OtherPath path(empty.path());
  softtape::write_file(folder / "a.svg", "older");
  const DrawnFigure drawn = softtape::write_figure(line_figure("a"), folder.path());
  CHECK(drawn.svg.empty());
  CHECK(drawn.note == "not drawn: gnuplot is not installed (Debian: gnuplot-nox)");
  CHECK(std::filesystem::exists(folder / "a.dat"));
  CHECK(std::filesystem::exists(folder / "a.gp"));
  CHECK_FALSE(std::filesystem::exists(folder / "a.svg"));
}

TEST_CASE("figure: a gnuplot that fails is quoted, its half a drawing is not kept") {
  const OddFolder folder, bin;
  const OtherPath path(bin.path() + ":/usr/bin:/bin");
  install_fake(bin.path(), "echo '<svg>'; echo; echo 'line 3: bad day' >&2; exit 1\n");
  DrawnFigure drawn = softtape::write_figure(line_figure("a"), folder.path());
  CHECK(drawn.note == "not drawn: gnuplot failed: line 3: bad day");
  install_fake(bin.path(), "echo '<svg>'\n");
  drawn = softtape::write_figure(line_figure("a"), folder.path());
  CHECK(drawn.note == "not drawn: gnuplot failed: no reason given");
  install_fake(bin.path(), "kill -9 $$\n");
  drawn = softtape::write_figure(line_figure("a"), folder.path());
  CHECK(holds(drawn.note, "gnuplot failed"));
  CHECK_FALSE(std::filesystem::exists(folder / "a.svg"));
}

TEST_CASE("figure: gnuplot gets the script by name, in its folder, and more output than a pipe") {
  const OddFolder folder, bin;
  const OtherPath path(bin.path() + ":/usr/bin:/bin");
  // What it was given, then a drawing of a megabyte, and as much complaint.
  install_fake(bin.path(),
               "printf '%s|' \"$#\" \"$@\" \"$(ls \"$2\")\" >given.txt\n"
               "echo '<svg viewBox=\"0 0 30 20\"><g id=\"gnuplot_canvas\" stroke=\"rgb(  0, 114, "
               "178)\" color=\"black\" fill=\"rgb(1,2)\">'\n"
               "head -c 1000000 /dev/zero | tr '\\0' ' '\n"
               "head -c 1000000 /dev/zero | tr '\\0' ' ' >&2\n"
               "echo '</g></svg>'\n");
  const std::string name = "-it's \"a\" $(touch owned)";
  const DrawnFigure drawn = softtape::write_figure(line_figure(name), folder.path());
  CHECK(drawn.note == "");
  CHECK(drawn.svg.size() > 1000000);
  CHECK(softtape::read_file(folder / "given.txt") == "2|-d|./" + name + ".gp|./" + name + ".gp|");
  CHECK_FALSE(std::filesystem::exists(folder / "owned"));
  CHECK(holds(drawn.svg, " width=\"30\" height=\"20\" class=\"softtape-figure\""));
  CHECK(holds(drawn.svg, "stroke=\"#0072b2\" color=\"#1f2430\" fill=\"rgb(1,2)\""));
  CHECK(softtape::read_file(folder.path() + "/" + name + ".svg") == drawn.svg);
}

TEST_CASE("figure: the drawing is well-formed, named, the same every time, and loads nothing") {
  const OddFolder folder;
  Figure figure = line_figure("<-it's \"a\" & b");
  figure.description = "Loss < 3 & \"falling\"";
  figure.panels[0].series[0].name = "a < b & c";
  figure.panels[0].series[0].y[1] = kNaN;
  Panel map{.title = "map"};
  map.heat_map = {
      .rows = 2, .columns = 2, .values = {1, 2, 3, kNaN}, .hidden = {false, true, false, false}};
  figure.panels.push_back(map);
  figure.panels.push_back(Panel{.title = "empty"});
  Panel all_nan{.series = {{.name = "gone", .x = {1, 2}, .y = {kNaN, kNaN}}}};
  figure.panels.push_back(all_nan);
  figure.columns = 2;
  const DrawnFigure drawn = softtape::write_figure(figure, folder.path());
  if (!drawn_or_not_installed(drawn)) return;
  CHECK(tag_problem(drawn.svg) == "");
  CHECK(holds(drawn.svg, "aria-label=\"Loss &lt; 3 &amp; &quot;falling&quot;\""));
  CHECK(holds(drawn.svg, "a &lt; b &amp; c"));
  CHECK(count(drawn.svg, "no numbers to show") == 2);
  CHECK(holds(drawn.svg, "prefers-color-scheme:dark"));
  CHECK_FALSE(holds(drawn.svg, "\"black\""));
  CHECK_FALSE(holds(drawn.svg, "nan"));
  CHECK_FALSE(holds(drawn.svg, "<image"));
  CHECK_FALSE(holds(drawn.svg, "<title>gnuplot"));
  CHECK(count(drawn.svg, "http") == count(drawn.svg, "http://www.w3.org/"));
  CHECK(softtape::write_figure(figure, folder.path()).svg == drawn.svg);
}

}  // namespace
