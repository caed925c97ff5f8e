// The parts of a page as HTML. Its look is in html_style.hpp.
#include "softtape/report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/escape.hpp"
#include "report/html_style.hpp"

namespace softtape {
namespace {

using detail::escape;

// Sets what stands between `open` and the next `close` in an element.
std::string set_marks(const std::string& text, std::string_view open, std::string_view close,
                      const char* element) {
  std::string out;
  std::size_t at = 0;
  for (;;) {
    const std::size_t begin = text.find(open, at);
    const std::size_t inside = begin + open.size();
    const std::size_t end =
        begin == std::string::npos ? std::string::npos : text.find(close, inside);
    if (end == std::string::npos) return out + text.substr(at);
    out += text.substr(at, begin - at);
    if (end == inside) {  // nothing between the marks
      out += text.substr(begin, end + close.size() - begin);
    } else {
      out += fmt::format("<{0}>{1}</{0}>", element, text.substr(inside, end - inside));
    }
    at = end + close.size();
  }
}

std::string set_all_but_code(const std::string& text) {
  std::string out = set_marks(text, "_{", "}", "sub");
  out = set_marks(out, "^{", "}", "sup");
  return set_marks(out, "**", "**", "strong");
}

std::string readable(double x, int figures) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "∞" : "−∞";
  // Whole numbers are counts and settings: 1024 is not 1.02 × 10^3.
  const bool whole = x == std::round(x) && std::abs(x) < 1e6;
  std::string digits = whole ? fmt::format("{:.0f}", x) : fmt::format("{:.{}g}", x, figures);
  const std::size_t e = digits.find('e');
  std::string power;
  if (e != std::string::npos) {
    power = fmt::format(" × 10<sup>{}</sup>", std::stoi(digits.substr(e + 1)));
    digits.resize(e);
  }
  std::string out = digits + power;
  for (std::size_t at = out.find('-'); at != std::string::npos; at = out.find('-', at)) {
    out.replace(at, 1, "−");
  }
  return out;
}

bool is_number(const Cell& cell) {
  return std::holds_alternative<double>(cell) || std::holds_alternative<std::int64_t>(cell);
}

std::string cell_html(const Cell& cell, int digits) {
  if (const std::string* text = std::get_if<std::string>(&cell)) {
    return "<td>" + escape(*text) + "</td>";
  }
  if (const bool* flag = std::get_if<bool>(&cell)) {
    return fmt::format("<td data-value=\"{}\">{}</td>", *flag, *flag ? "yes" : "no");
  }
  const double* number = std::get_if<double>(&cell);
  const std::string whole =
      number ? fmt::format("{}", *number) : fmt::format("{}", std::get<std::int64_t>(cell));
  return fmt::format("<td class=\"n\" data-value=\"{0}\" title=\"{0}\">{1}</td>", whole,
                     number ? readable(*number, digits) : whole);
}

std::string table_html(const Table& table, const std::string& caption, const std::string& label,
                       int digits = 4) {
  std::string out = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n",
      escape(label));
  if (!caption.empty()) out += "<caption>" + caption + "</caption>\n";
  out += "<thead><tr>";
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    const bool number = !table.rows().empty() && is_number(table.rows()[0][i]);
    out += fmt::format("<th scope=\"col\"{}>{}</th>", number ? " class=\"n\"" : "",
                       rich_text(table.columns()[i]));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows()) {
    out += "<tr>";
    for (const Cell& cell : row) out += cell_html(cell, digits);
    out += "</tr>\n";
  }
  if (table.rows().empty()) {
    out += fmt::format("<tr><td colspan=\"{}\">no rows</td></tr>\n", table.columns().size());
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

// For aria labels, where there are no elements.
std::string without_marks(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != '`' && c != '*' && c != '{' && c != '}') out += c;
  }
  return out;
}

}  // namespace

std::string rich_text(const std::string& text) {
  const std::string safe = escape(text);
  // Inside backticks the other marks are text.
  std::string out;
  std::size_t at = 0;
  for (;;) {
    const std::size_t begin = safe.find('`', at);
    const std::size_t end = begin == std::string::npos ? begin : safe.find('`', begin + 1);
    if (end == std::string::npos) return out + set_all_but_code(safe.substr(at));
    out += set_all_but_code(safe.substr(at, begin - at));
    out += "<code>" + safe.substr(begin + 1, end - begin - 1) + "</code>";
    at = end + 1;
  }
}

HtmlPage::HtmlPage(const std::string& title, const std::string& lead)
    : title_(title), lead_(lead) {}

void HtmlPage::section(const std::string& title) {
  ++sections_;
  contents_ += fmt::format("<li><a href=\"#s{}\">{}</a></li>\n", sections_, rich_text(title));
  body_ += fmt::format("<h2 id=\"s{}\">{}</h2>\n", sections_, rich_text(title));
}

void HtmlPage::heading(const std::string& title) { body_ += "<h3>" + rich_text(title) + "</h3>\n"; }

void HtmlPage::paragraph(const std::string& text) { body_ += "<p>" + rich_text(text) + "</p>\n"; }

void HtmlPage::preface(const std::string& text) {
  preface_ += "<p class=\"note\">" + rich_text(text) + "</p>\n";
}

void HtmlPage::note(const std::string& text) {
  body_ += "<p class=\"note\">" + rich_text(text) + "</p>\n";
}

void HtmlPage::list(const std::vector<std::string>& items, bool numbered) {
  if (items.empty()) return;
  body_ += numbered ? "<ol>\n" : "<ul>\n";
  for (const std::string& item : items) body_ += "<li>" + rich_text(item) + "</li>\n";
  body_ += numbered ? "</ol>\n" : "</ul>\n";
}

void HtmlPage::code(const std::string& text) {
  body_ += "<pre tabindex=\"0\"><code>" + escape(text) + "</code></pre>\n";
}

void HtmlPage::cards(const std::vector<Card>& cards, int columns) {
  if (cards.empty()) return;
  body_ += fmt::format("<ul class=\"cards\" style=\"grid-template-columns:repeat({},1fr)\">\n",
                       std::max(1, columns));
  for (const Card& card : cards) {
    const char* tone = card.tone == Card::Tone::good  ? " class=\"good\""
                       : card.tone == Card::Tone::bad ? " class=\"bad\""
                                                      : "";
    body_ += fmt::format("<li{}><b>{}</b><strong>{}</strong><span>{}</span></li>\n", tone,
                         rich_text(card.title), rich_text(card.value), rich_text(card.text));
  }
  body_ += "</ul>\n";
}

void HtmlPage::table(const Table& table, const std::string& caption, int digits) {
  body_ += table_html(table, rich_text(caption), without_marks(caption), digits);
}

void HtmlPage::details(const std::string& summary, const Table& table, int digits) {
  body_ += "<details><summary>" + rich_text(summary) + "</summary>\n" +
           table_html(table, "", without_marks(summary), digits) + "</details>\n";
}

void HtmlPage::figure(const Figure& figure, const DrawnFigure& drawn, const std::string& caption) {
  ++figures_;
  body_ += "<figure>\n";
  if (drawn.svg.empty()) {
    body_ += fmt::format("<p class=\"note\">This figure was {}.</p>\n", escape(drawn.note));
  } else {
    // A heading of the file and not of the page, which an <?xml?> line is, has no place in HTML.
    const std::size_t begin = drawn.svg.find("<svg");
    body_ += "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Figure " +
             fmt::format("{}\">\n{}</div>\n", figures_, drawn.svg.substr(begin));
  }
  body_ += fmt::format(
      "<figcaption><p><b>Figure {0}.</b> {1}</p>\n"
      "<details{2}><summary>The numbers behind figure {0}</summary>\n",
      figures_, rich_text(caption), drawn.svg.empty() ? " open" : "");
  for (const Panel& panel : figure.panels) {
    const std::string label = panel.title.empty() ? figure.description : panel.title;
    body_ += table_html(numbers(panel), escape(panel.title), label);
  }
  body_ += "</details>\n</figcaption>\n</figure>\n";
}

std::string HtmlPage::str() const {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      // Without it a browser asks a server for an icon.
      "<link rel=\"icon\" href=\"data:,\">\n";
  out += "<title>" + escape(without_marks(title_)) + "</title>\n<style>";
  out += detail::html_style;
  out += "</style>\n</head>\n<body>\n<header>\n<h1>" + rich_text(title_) + "</h1>\n";
  if (!lead_.empty()) out += "<p>" + rich_text(lead_) + "</p>\n";
  out += preface_ + "</header>\n";
  if (sections_ > 1) out += "<nav aria-label=\"Contents\"><ol>\n" + contents_ + "</ol></nav>\n";
  return out + "<main>\n" + body_ + "</main>\n</body>\n</html>\n";
}

}  // namespace softtape
