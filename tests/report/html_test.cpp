// Pages: escaping, marks, tables whose whole numbers can be read back, and tags that balance.
#include "softtape/report/html.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "report/support.hpp"

namespace {

using report_test::count;
using report_test::holds;
using report_test::tag_problem;
using softtape::Card;
using softtape::DrawnFigure;
using softtape::Figure;
using softtape::HtmlPage;
using softtape::rich_text;
using softtape::Table;

TEST_CASE("html: the tag checker of these tests finds what is wrong") {
  CHECK(tag_problem("<!doctype html>\n<p id=\"a\">1 &lt; 2<br></p><svg><g/></svg>") == "");
  CHECK(tag_problem("<p><b></p></b>") == "closes p inside b");
  CHECK(tag_problem("<p>") == "never closed: p");
  CHECK(tag_problem("</p>") == "closes p inside nothing");
  CHECK(tag_problem("<p title=\"a>b") == "never ends: p");
  CHECK(tag_problem("<p title=\"a>b</p>") == "a < inside the tag p");
  CHECK(holds(tag_problem("1 < 2"), "a bare <"));
  CHECK(tag_problem("<i id='x'></i><b id=\"x\"></b>") == "an id twice: x");
}

TEST_CASE("html: text is escaped, marks are set, unpaired marks stay") {
  CHECK(rich_text("a < b & \"c\" > 'd'") == "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  CHECK(rich_text("√d_{k} and 10^{−6}") == "√d<sub>k</sub> and 10<sup>−6</sup>");
  CHECK(rich_text("**bold** and `a_{b} ** < c`") ==
        "<strong>bold</strong> and <code>a_{b} ** &lt; c</code>");
  for (const std::string plain : {"", "`", "a ` b", "**", "a ** b", "****", "d_{k", "x^{", "_{}"}) {
    CHECK(rich_text(plain) == plain);
  }
  CHECK(rich_text("<script>`</code><script>`") ==
        "&lt;script&gt;<code>&lt;/code&gt;&lt;script&gt;</code>");
  CHECK(rich_text(std::string("a\0b\x01", 4)) == "a b ");
}

TEST_CASE("html: cells show a few digits and carry the whole number") {
  Table table({"name", "x_{k}", "n", "ok"});
  table.add({"<b>", 0.1234567890123, std::int64_t{12}, true});
  table.add({"a**b**", -2.5e-7, std::int64_t{-3}, false});
  table.add({"", std::numeric_limits<double>::quiet_NaN(), std::int64_t{0}, true});
  table.add({"", -std::numeric_limits<double>::infinity(), std::int64_t{0}, true});
  HtmlPage page("t", "");
  page.table(table, "Numbers of **all** kinds");
  const std::string html = page.str();
  CHECK(holds(html, "<th scope=\"col\" class=\"n\">x<sub>k</sub></th>"));
  CHECK(holds(html,
              "<td>&lt;b&gt;</td><td class=\"n\" data-value=\"0.1234567890123\" "
              "title=\"0.1234567890123\">0.1235</td>"));
  CHECK(holds(html, "data-value=\"-2.5e-07\" title=\"-2.5e-07\">−2.5 × 10<sup>−7</sup></td>"));
  CHECK(holds(html, "<td>a**b**</td>"));
  CHECK(holds(html, ">NaN</td>"));
  CHECK(holds(html, ">−∞</td>"));
  CHECK(holds(html, "<td data-value=\"false\">no</td>"));
  CHECK(holds(html, "<caption>Numbers of <strong>all</strong> kinds</caption>"));
  CHECK(holds(html, "aria-label=\"Numbers of all kinds\""));
  CHECK(tag_problem(html) == "");

  Table whole({"x"});
  whole.add({65536.0});
  whole.add({-0.0});
  whole.add({1e15});
  HtmlPage counts("t", "");
  counts.table(whole, "", 3);
  CHECK(holds(counts.str(), ">65536</td>"));
  CHECK(holds(counts.str(), ">1 × 10<sup>15</sup></td>"));

  HtmlPage six("t", "");
  six.table(table, "", 6);
  CHECK(holds(six.str(), ">0.123457</td>"));
  CHECK_FALSE(holds(six.str(), "<caption>"));
}

TEST_CASE("html: a page of everything is whole, and asks nothing of anybody") {
  HtmlPage page("A <title> with d_{k}", "A lead & more");
  page.section("One < two");
  page.heading("Heading");
  page.paragraph("Paragraph with <tags> & \"quotes\"");
  page.note("Note");
  page.list({"a", "<b>"});
  page.list({"a"}, true);
  page.list({});
  page.code("starvation --text '<a> & **b**'");
  page.cards({{"t", "<v>", "x", Card::Tone::good}, {"u", "w", "y"}}, 2);
  page.cards({}, 2);
  page.table(Table({"nothing"}), "An empty table");
  page.details("More", Table({"nothing"}));
  page.section("Two");
  page.preface("Said last, shown first");
  const std::string html = page.str();
  CHECK(tag_problem(html) == "");
  CHECK(html.rfind("<!doctype html>\n<html lang=\"en\">", 0) == 0);
  CHECK(holds(html, "<title>A &lt;title&gt; with d_k</title>"));
  CHECK(holds(html, "<h1>A &lt;title&gt; with d<sub>k</sub></h1>"));
  CHECK(holds(html, "<a href=\"#s1\">One &lt; two</a>"));
  CHECK(holds(html, "<h2 id=\"s2\">Two</h2>"));
  CHECK(holds(html, "<code>starvation --text &#39;&lt;a&gt; &amp; **b**&#39;</code>"));
  CHECK(holds(html, "repeat(2,1fr)"));
  CHECK(count(html, "no rows") == 2);
  CHECK(html.find("Said last") < html.find("<nav"));
  for (const char* part : {"<script", "src=", "http", "@import", "url("}) {
    CAPTURE(part);
    CHECK_FALSE(holds(html, part));
  }
}

TEST_CASE("html: a figure is shown with its numbers, or with the reason why not") {
  Figure figure{.name = "f", .description = "What it shows", .panels = {{.title = "a < b"}}};
  figure.panels[0].x.label = "step";
  figure.panels[0].series = {{.name = "loss", .x = {1}, .y = {0.1234567}}};
  HtmlPage page("t", "");
  page.figure(figure, {"<?xml version=\"1.0\"?>\n<svg><g/></svg>", ""}, "Caption one");
  page.figure(figure, {"", "not drawn: gnuplot is <gone>"}, "Caption two");
  const std::string html = page.str();
  CHECK(tag_problem(html) == "");
  CHECK_FALSE(holds(html, "<?xml"));
  CHECK(holds(html, "<svg><g/></svg>"));
  CHECK(holds(html, "<b>Figure 1.</b> Caption one"));
  CHECK(count(html, "</figcaption>\n</figure>") == 2);  // HTML wants the caption first or last
  CHECK(holds(html, "This figure was not drawn: gnuplot is &lt;gone&gt;."));
  CHECK(holds(html, "<details open><summary>The numbers behind figure 2"));
  CHECK(count(html, "data-value=\"0.1234567\"") == 2);
  CHECK(count(html, "<caption>a &lt; b</caption>") == 2);
}

}  // namespace
