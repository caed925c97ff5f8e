// One self-contained HTML page: no script, no network, readable in light and dark, on a phone and
// on paper.
#pragma once

#include <string>
#include <vector>

#include "softtape/base/export.hpp"
#include "softtape/io/table.hpp"
#include "softtape/report/figure.hpp"

namespace softtape {

/// A few words in a box of their own; several stand side by side.
struct Card {
  enum class Tone { neutral, good, bad };
  std::string title;
  std::string value;  ///< large
  std::string text;
  Tone tone = Tone::neutral;
};

/// Collects a page from the top down. All text is escaped; in titles, paragraphs, captions and
/// column names, `code` in backticks, **bold**, x_{sub} and x^{sup} are set as such. Names of files
/// and whatever else a user chose belong into cells and code(), which take text as it is.
class SOFTTAPE_API HtmlPage {
 public:
  HtmlPage(const std::string& title, const std::string& lead);

  /// A heading with an entry in the contents.
  void section(const std::string& title);
  void heading(const std::string& title);
  void paragraph(const std::string& text);
  /// A remark in a box above the contents, wherever the page has got to.
  void preface(const std::string& text);
  /// A remark in a box.
  void note(const std::string& text);
  void list(const std::vector<std::string>& items, bool numbered = false);
  /// Text to copy, as it is.
  void code(const std::string& text);
  /// `columns` side by side, on a phone too.
  void cards(const std::vector<Card>& cards, int columns);
  /// Numbers show so many digits; the whole number is in `title` and `data-value`.
  void table(const Table& table, const std::string& caption, int digits = 4);
  /// The drawing, or why there is none, with its numbers in tables that open on demand.
  void figure(const Figure& figure, const DrawnFigure& drawn, const std::string& caption);
  /// A table that opens on demand.
  void details(const std::string& summary, const Table& table, int digits = 4);

  /// The whole page.
  std::string str() const;

 private:
  std::string title_;
  std::string lead_;
  std::string preface_;
  std::string contents_;
  std::string body_;
  int sections_ = 0;
  int figures_ = 0;
};

/// Text as HTML: escaped, with the marks of HtmlPage set. An unpaired mark stays as it is.
SOFTTAPE_API std::string rich_text(const std::string& text);

}  // namespace softtape
