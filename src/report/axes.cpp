// Ranges from the data, ticks, and the commands that set them.
#include "report/axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace softtape::detail {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// A little air around the data, and an interval of some length whatever the data.
Range with_air(Range range, const Axis& axis, bool from_zero) {
  if (range.empty()) range = {axis.log ? 0.1 : 0.0, 1.0, axis.log};
  if (axis.log) {
    const double factor = range.low == range.high ? 2 : std::pow(range.high / range.low, 0.05);
    range.low /= factor;
    range.high *= factor;
  } else {
    const double step = range.low == range.high ? std::max(std::abs(range.low) * 0.1, 1e-300)
                                                : (range.high - range.low) * 0.05;
    if (!(from_zero && range.low >= 0)) range.low -= step;
    range.high += step;
  }
  // gnuplot's own arithmetic must not overflow either.
  constexpr double most = 1e300;
  range.low = std::clamp(range.low, axis.log ? 1 / most : -most, most / 2);
  range.high = std::clamp(range.high, axis.log ? 2 / most : -most / 2, most);
  if (std::isfinite(axis.low) && !(axis.log && axis.low <= 0)) range.low = axis.low;
  if (std::isfinite(axis.high) && axis.high > range.low) range.high = axis.high;
  return range;
}

// Tick labels are formats to gnuplot.
std::string quoted_tick(std::string_view text) {
  std::string doubled;
  for (const char c : text) {
    if (c == '%') doubled += '%';
    doubled += c;
  }
  return quoted(doubled);
}

// 1000 as it is, 1e-06 as a power of ten with raised digits.
std::string decade(int exponent) {
  if (exponent >= -3 && exponent <= 4) return fmt::format("{:g}", std::pow(10.0, exponent));
  static constexpr const char* raised[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out = exponent < 0 ? "10⁻" : "10";
  for (const char c : fmt::format("{}", std::abs(exponent))) out += raised[c - '0'];
  return out;
}

std::string ticks(const Axis& axis, const Range& range) {
  std::vector<std::pair<double, std::string>> list = axis.ticks;
  if (list.empty() && axis.log) {
    const int first = static_cast<int>(std::floor(std::log10(range.low)));
    const int last = static_cast<int>(std::ceil(std::log10(range.high)));
    const int every = std::max(1, (last - first + 5) / 6);
    const bool between = last - first <= 2;
    for (int k = first; k <= last; ++k) {
      if (k % every != 0) continue;
      list.emplace_back(std::pow(10.0, k), decade(k));
      for (const int m : {2, 5}) {
        const double x = m * std::pow(10.0, k);
        if (between) list.emplace_back(x, fmt::format("{:g}", x));
      }
    }
  }
  if (list.empty()) return "autofreq";
  std::string out;
  for (const auto& [at, label] : list) {
    out += fmt::format("{}{} {}", out.empty() ? "(" : ", ", quoted_tick(label), at);
  }
  return out + ')';
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '\'';
}

Ranges ranges_of(const Panel& panel) {
  Range x{kNone, kNone, panel.x.log}, y{kNone, kNone, panel.y.log};
  bool bars = false;
  for (const Series& one : panel.series) {
    const double half = one.mark == Mark::bars ? one.bar_width / 2 : 0;
    if (one.mark == Mark::bars) bars = true;
    for (std::size_t i = 0; i < one.x.size(); ++i) {
      const double at = panel.x.log ? one.x[i] * (1 + one.shift) : one.x[i] + one.shift;
      x.add(at - half);
      x.add(at + half);
      y.add(one.y[i]);
      if (!one.low.empty()) {
        y.add(one.low[i]);
        y.add(one.high[i]);
      }
    }
  }
  Ranges out;
  out.empty = x.empty() || y.empty();
  for (const ReferenceLine& line : panel.references) (line.vertical ? x : y).add(line.at);
  if (bars) y.add(0);
  out.x = with_air(x, panel.x, false);
  out.y = with_air(y, panel.y, bars);
  return out;
}

std::string axis_commands(char name, const Axis& axis, const Range& range) {
  std::string out =
      axis.log ? fmt::format("set logscale {}\n", name) : fmt::format("unset logscale {}\n", name);
  out += fmt::format("set {}range [{}:{}]\n", name, range.low, range.high);
  return out + fmt::format("set {}tics {}{}\n", name, ticks(axis, range),
                           name == 'x' ? " offset 0,0.3" : "");
}

}  // namespace softtape::detail
