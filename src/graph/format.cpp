// The layout and the digits of a printed tensor: NumPy's rules, so that a lesson looks the same
// here.
#include "softtape/graph/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

namespace softtape {

namespace {

// A number in parts: "-12" "5" "" is -12.5, "1" "5" "+02" is 1.5e+02. Whole is nan or inf for
// those.
struct Parts {
  std::string whole;
  std::string fraction;
  std::string exponent;  // its sign and at least two digits
  bool finite = true;
};

// |x| as d.ddde+xx or as ddd.ddd with `precision` digits after the point, rounded from all of x.
template <class T>
Parts rounded_parts(T x, bool powers, int precision) {
  char text[512];
  const auto format = powers ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(text, text + sizeof text, std::abs(x), format, precision).ptr;
  const std::string_view all(text, static_cast<std::size_t>(end - text));
  const std::size_t e = std::min(all.find('e'), all.size());
  const std::size_t point = std::min(all.find('.'), e);
  Parts parts;
  parts.whole = all.substr(0, point);
  if (point < e) parts.fraction = all.substr(point + 1, e - point - 1);
  if (e < all.size()) parts.exponent = all.substr(e + 1);
  return parts;
}

// As few digits as name the number among its neighbours, but at most `precision` after the point;
// -1: as many as it takes.
template <class T>
Parts parts_of(T x, bool powers, int precision) {
  if (std::isnan(x)) return {"nan", "", "", false};
  if (std::isinf(x)) return {x < 0 ? "-inf" : "inf", "", "", false};
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof text, std::abs(x), std::chars_format::scientific).ptr;
  const std::string_view all(text, static_cast<std::size_t>(end - text));  // d.ddde+xx
  const std::size_t e = all.find('e');
  std::string digits(1, all[0]);
  if (e > 1) digits.append(all, 2, e - 2);

  Parts parts;
  bool rounds = false;
  if (powers) {
    parts = {digits.substr(0, 1), digits.substr(1), std::string(all.substr(e + 1))};
  } else {
    int exponent = 0;
    std::from_chars(text + e + 2, end, exponent);
    const auto places = static_cast<std::size_t>(exponent);
    if (all[e + 1] == '-') {
      parts = {"0", std::string(places - 1, '0') + digits, ""};
    } else {
      rounds = digits.size() <= places;
      if (rounds) digits.resize(places + 1, '0');
      parts = {digits.substr(0, places + 1), digits.substr(places + 1), ""};
    }
  }
  // Too many digits after the point or too few before it: those of the number itself, rounded.
  if (precision >= 0 && (rounds || parts.fraction.size() > static_cast<std::size_t>(precision))) {
    parts = rounded_parts(x, powers, precision);
  }
  parts.fraction.erase(parts.fraction.find_last_not_of('0') + 1);
  if (std::signbit(x)) parts.whole.insert(0, 1, '-');
  return parts;
}

// NumPy's rule for when an array goes to powers of ten.
template <class T>
bool needs_powers(const std::vector<T>& shown) {
  T largest = 0;
  T smallest = std::numeric_limits<T>::infinity();
  for (const T x : shown) {
    if (x == 0 || !std::isfinite(x)) continue;
    largest = std::max(largest, std::abs(x));
    smallest = std::min(smallest, std::abs(x));
  }
  if (largest == 0) return false;
  return largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000;
}

// One word per number, all of one width.
template <class T>
std::vector<std::string> float_words(const std::vector<T>& shown, int precision) {
  const bool powers = needs_powers(shown);
  std::vector<Parts> parts;
  parts.reserve(shown.size());
  std::size_t whole = 0;
  std::size_t fraction = 0;
  std::size_t exponent = 0;
  std::size_t odd = 0;  // nan and inf
  for (const T x : shown) {
    parts.push_back(parts_of(x, powers, precision));
    if (!parts.back().finite) {
      odd = std::max(odd, parts.back().whole.size());
      continue;
    }
    whole = std::max(whole, parts.back().whole.size());
    fraction = std::max(fraction, parts.back().fraction.size());
    exponent = std::max(exponent, parts.back().exponent.size());
  }
  const std::size_t right = 1 + fraction + (powers ? exponent + 1 : 0);
  const std::size_t width = std::max(whole + right, odd);
  std::vector<std::string> words;
  words.reserve(parts.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    Parts& p = parts[i];
    if (p.finite && powers) {
      // All get the digits that one of them needs: true ones, not zeros.
      p = rounded_parts(shown[i], true, static_cast<int>(fraction));
      if (std::signbit(shown[i])) p.whole.insert(0, 1, '-');
      p.exponent.insert(1, exponent - std::min(exponent, p.exponent.size()), '0');
      p.exponent.insert(0, 1, 'e');
    }
    if (p.finite) p.whole += "." + p.fraction + std::string(fraction - p.fraction.size(), ' ');
    words.push_back(fmt::format("{:>{}}", p.whole + p.exponent, width));
  }
  return words;
}

std::vector<std::string> words_of(const std::vector<bool>& shown) {
  std::vector<std::string> words;
  for (const bool x : shown) words.emplace_back(x ? " True" : "False");
  return words;
}
std::vector<std::string> words_of(const std::vector<std::int64_t>& shown) {
  std::vector<std::string> words;
  std::size_t width = 0;
  for (const std::int64_t x : shown) {
    words.push_back(fmt::format("{}", x));
    width = std::max(width, words.back().size());
  }
  for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  return words;
}

// A lone number shows all its digits.
template <class T>
std::string scalar_word(T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return x ? "True" : "False";
  } else if constexpr (std::is_integral_v<T>) {
    return fmt::format("{}", x);
  } else {
    const bool powers = x != 0 && !(std::abs(x) >= 1e-4 && std::abs(x) < 1e16);
    const Parts p = parts_of(x, powers, -1);
    if (!p.finite) return p.whole;
    if (!powers) return p.whole + "." + (p.fraction.empty() ? "0" : p.fraction);
    return p.whole + (p.fraction.empty() ? "" : "." + p.fraction) + "e" + p.exponent;
  }
}

// Which entries of each axis are shown, and the text around them.
class Layout {
 public:
  Layout(const Shape& shape, const FormatOptions& options)
      : shape_(shape),
        width_(static_cast<std::size_t>(options.line_width)),
        edge_(shape.numel() > options.threshold ? options.edge_items
                                                : std::numeric_limits<std::int64_t>::max() / 2) {}

  /// Calls f(offset) for every shown element, row-major.
  template <class F>
  void each(F f, int axis = 0, std::int64_t offset = 0) const {
    if (axis == shape_.rank()) return f(offset);
    for_shown(axis, [&](std::int64_t i) {
      if (i >= 0) each(f, axis + 1, offset * shape_[axis] + i);
    });
  }

  std::string text(const std::vector<std::string>& words) const {
    std::size_t next = 0;
    return block(words, next, 0, " ", width_);
  }

 private:
  bool cut(int axis) const { return shape_[axis] > 2 * edge_; }

  // Calls f(i) for the shown entries of an axis, f(-1) for the gap.
  template <class F>
  void for_shown(int axis, F f) const {
    const std::int64_t size = shape_[axis];
    for (std::int64_t i = 0; i < (cut(axis) ? edge_ : size); ++i) f(i);
    if (!cut(axis)) return;
    f(-1);
    for (std::int64_t i = size - edge_; i < size; ++i) f(i);
  }

  std::string block(const std::vector<std::string>& words, std::size_t& next, int axis,
                    const std::string& indent, std::size_t width) const {
    std::string lines;
    if (axis + 1 == shape_.rank()) {
      std::string line = indent;
      const auto add = [&](const std::string& word) {
        // One column stays free for the bracket.
        if (line.size() + word.size() + 1 > width && line.size() > indent.size()) {
          line.erase(line.find_last_not_of(' ') + 1);
          lines += line + "\n";
          line = indent;
        }
        line += word + " ";
      };
      for_shown(axis, [&](std::int64_t i) { add(i < 0 ? "..." : words[next++]); });
      line.pop_back();
      lines += line;
    } else {
      const std::string between(static_cast<std::size_t>(shape_.rank() - axis - 1), '\n');
      for_shown(axis, [&](std::int64_t i) {
        if (!lines.empty()) lines += between;
        lines += indent +
                 (i < 0 ? "..." : block(words, next, axis + 1, indent + " ", width - (width > 0)));
      });
    }
    return "[" + lines.substr(indent.size()) + "]";
  }

  Shape shape_;
  std::size_t width_;
  std::int64_t edge_;
};

}  // namespace

std::string to_string(const Tensor& x, const FormatOptions& options) {
  if (options.precision < 0 || options.threshold < 0 || options.edge_items < 0 ||
      options.line_width < 0) {
    throw ValueError("[to_string] options must not be negative");
  }
  if (!x.defined()) return "undefined";
  if (x.numel() == 0) return "[]";
  return visit_any(x.dtype(), [&](auto zero) -> std::string {
    using T = decltype(zero);
    const auto numbers = x.data<T>();
    if (x.rank() == 0) return scalar_word(numbers[0]);
    const Layout layout(x.shape(), options);
    std::vector<T> shown;
    layout.each(
        [&](std::int64_t offset) { shown.push_back(numbers[static_cast<std::size_t>(offset)]); });
    if constexpr (std::is_floating_point_v<T>) {
      return layout.text(float_words(shown, std::min(options.precision, 100)));
    } else {
      return layout.text(words_of(shown));
    }
  });
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

}  // namespace softtape
