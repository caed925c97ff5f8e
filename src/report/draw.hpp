// Between a figure and its SVG: checks, colours, running gnuplot, finishing what it drew.
#pragma once

#include <array>
#include <string>

#include "softtape/report/figure.hpp"

namespace softtape::detail {

/// Throws: as write_figure.
void check(const Figure& figure);

/// A colour as gnuplot draws it, and what it becomes on a dark page.
struct Colour {
  const char* light;
  const char* dark;
};

inline constexpr Colour ink{"#1f2430", "#e7e9f0"};    // text
inline constexpr Colour frame{"#8a90a0", "#8b92a5"};  // axes, hatching
inline constexpr Colour grid{"#dfe2e9", "#363b49"};
inline constexpr Colour paper{"#ffffff", "#15181f"};

/// The palette of Okabe and Ito (2008), told apart with every common colour blindness; its black
/// and yellow, which one of the two pages would swallow, are a grey and a darker yellow here.
inline constexpr std::array<Colour, 8> palette{{
    {"#0072b2", "#4aa8e8"},
    {"#d55e00", "#ff8a3c"},
    {"#009e73", "#2fc99b"},
    {"#cc79a7", "#e59cc5"},
    {"#e69f00", "#ffc247"},
    {"#56b4e9", "#a3d8fb"},
    {"#6b7080", "#b4b9c7"},
    {"#a89a00", "#f0e442"},
}};

struct GnuplotRun {
  std::string output;
  std::string note;  ///< empty when it went well
};

/// Runs gnuplot in a folder on a script there, without a shell.
GnuplotRun run_gnuplot(const std::string& folder, const std::string& script);

/// Names what gnuplot drew, makes its ids unique to the figure, and adds paper and dark colours.
std::string finish_svg(const std::string& drawn, const Figure& figure);

}  // namespace softtape::detail
