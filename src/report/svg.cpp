// What gnuplot's SVG still needs: a name and a description, ids of its own (a page may show many
// figures), colours in one spelling, and a style that answers to a dark page.
#include <fmt/format.h>

#include <cctype>

#include "report/draw.hpp"
#include "report/escape.hpp"

namespace softtape::detail {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// gnuplot writes "rgb(  0, 114, 178)"; the style below asks for "#0072b2".
std::string with_plain_colours(const std::string& drawn) {
  std::string out;
  std::size_t at = 0;
  for (;;) {
    const std::size_t found = drawn.find("rgb(", at);
    if (found == std::string::npos) return out + drawn.substr(at);
    const std::size_t end = drawn.find(')', found);
    int parts[3] = {0, 0, 0};
    int part = 0;
    bool good = end != std::string::npos;
    for (std::size_t i = found + 4; good && i < end; ++i) {
      const char c = drawn[i];
      if (c == ',' && part < 2) {
        ++part;
      } else if (std::isdigit(static_cast<unsigned char>(c))) {
        parts[part] = parts[part] * 10 + (c - '0');
        good = parts[part] <= 255;
      } else {
        good = c == ' ';
      }
    }
    good = good && part == 2;
    out += drawn.substr(at, found - at);
    out += good ? fmt::format("#{:02x}{:02x}{:02x}", parts[0], parts[1], parts[2]) : "rgb(";
    at = good ? end + 1 : found + 4;
  }
}

// Letters and digits of a name, unique as long as names differ.
std::string as_id(std::string_view name) {
  std::string out = "f-";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      out += c;
    } else {
      out += fmt::format("_{:02x}", byte);
    }
  }
  return out + '-';
}

// The width and height that viewBox="0 0 W H" states, as attributes.
std::string drawn_size(const std::string& head) {
  constexpr std::string_view before = "viewBox=\"0 0 ";
  const std::size_t found = head.find(before);
  if (found == std::string::npos) return "";
  const std::size_t width = found + before.size();
  const std::size_t space = head.find(' ', width), end = head.find('"', width);
  if (space == std::string::npos || end == std::string::npos || space > end) return "";
  return fmt::format(" width=\"{}\" height=\"{}\"", head.substr(width, space - width),
                     head.substr(space + 1, end - space - 1));
}

std::string style() {
  std::string out =
      "<style>.softtape-figure polygon{shape-rendering:crispEdges}"
      "@media screen and (prefers-color-scheme:dark){";
  const auto swap = [&](const Colour& colour) {
    out += fmt::format(
        ".softtape-figure [stroke=\"{0}\"]{{stroke:{1}}}"
        ".softtape-figure [fill=\"{0}\"]{{fill:{1}}}"
        ".softtape-figure [color=\"{0}\"]{{color:{1}}}",
        colour.light, colour.dark);
  };
  for (const Colour& colour : palette) swap(colour);
  for (const Colour& colour : {ink, frame, grid}) swap(colour);
  return out + fmt::format(".softtape-figure .paper{{fill:{}}}}}</style>", paper.dark);
}

}  // namespace

std::string finish_svg(const std::string& drawn, const Figure& figure) {
  std::string out = with_plain_colours(drawn.substr(drawn.find("<svg")));
  // Text and lines without a colour of their own are black to gnuplot.
  replace_all(out, "\"black\"", fmt::format("\"{}\"", ink.light));
  replace_all(out, "'black'", fmt::format("'{}'", ink.light));
  replace_all(out, "fill = ", "fill=");
  // Names of plots, which would show under the pointer.
  const std::string_view title = "<title>gnuplot_";
  for (std::size_t at = out.find(title); at != std::string::npos; at = out.find(title, at)) {
    const std::size_t end = out.find("</title>", at);
    if (end == std::string::npos) break;
    out.erase(at, end + std::string_view("</title>").size() - at);
  }
  const std::string id = as_id(figure.name);
  for (const char* before : {"id='", "id=\"", "href='#", "href=\"#", "url(#"}) {
    replace_all(out, before, before + id);
  }
  // gnuplot's own name and signature, and its empty background, make way for ours.
  const std::size_t head_end = out.find('>');
  const std::size_t canvas = out.find("<g id=");
  const std::string description = escape(figure.description);
  // Drawn at its own size where there is room.
  const std::string size = drawn_size(out.substr(0, head_end));
  const std::string head = fmt::format(
      "{3} class=\"softtape-figure\" role=\"img\" aria-label=\"{0}\">\n<desc>{0}</desc>\n{1}\n"
      "<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"{2}\"/>\n",
      description, style(), paper.light, size);
  return out.substr(0, head_end) + head + out.substr(canvas);
}

}  // namespace softtape::detail
