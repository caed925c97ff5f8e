// The report of `starvation` from made-up numbers: whole, in parts, and empty.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "figures.hpp"
#include "ops/support.hpp"
#include "report.hpp"
#include "report/made_up.hpp"
#include "report/support.hpp"
#include "report_choice.hpp"
#include "softtape/io/file.hpp"
#include "statistics.hpp"

namespace {

using report_test::count;
using report_test::holds;
using report_test::OddFolder;
using report_test::OtherPath;
using report_test::tag_problem;
using starvation::Outcome;
using starvation::Results;
using starvation::Rows;

// Without drawings, which take time.
std::string report_of(const Results& results) {
  const OddFolder folder, no_gnuplot;
  const OtherPath path(no_gnuplot.path());
  starvation::write_report(results, folder / "out");
  return softtape::read_file(folder / "out/report.html");
}

TEST_CASE("report: every chapter and figure of a full run is there") {
  const OddFolder folder;
  starvation::write_report(made_up::results(), folder.path());
  const std::string html = softtape::read_file(folder / "report.html");
  CHECK(tag_problem(html) == "");
  CHECK(count(html, "<h2 ") == 11);
  CHECK(count(html, "<figure>") == 12);
  CHECK_FALSE(holds(html, "left out"));
  CHECK_FALSE(holds(html, "interrupted"));
  for (const std::string name :
       {"two_by_two", "dead_keys", "jacobian", "weights", "weights_gradient", "scores_gradient",
        "best_rate", "rate_strip", "adam", "key_symbols", "remedies", "text"}) {
    CAPTURE(name);
    CHECK(std::filesystem::exists(folder / "figures/" + name + ".dat"));
    CHECK(std::filesystem::exists(folder / "figures/" + name + ".gp"));
    CHECK(std::filesystem::exists(folder / "figures/" + name + ".svg") ==
          !holds(html, "not drawn"));
  }
  // Nothing but names of XML vocabularies looks like an address.
  CHECK(count(html, "http") == count(html, "http://www.w3.org/"));
  CHECK_FALSE(holds(html, "<script"));
  CHECK(holds(html, "starvation --text &#39;&lt;it&#39;\\&#39;&#39;s&gt; &amp; "));
  CHECK(holds(html, "<td>&lt;it&#39;s&gt; &amp; &quot;quoted&quot;.txt</td>"));
}

TEST_CASE("report: the headline shows the numbers of summary.csv") {
  const Results results = made_up::results();
  const std::string html = report_of(results);
  const std::vector<Outcome> all = starvation::outcomes(results.summary);
  const starvation::Headline headline = starvation::headline_of(all);
  for (const Outcome* one : headline.cells()) {
    REQUIRE(one);
    CHECK(one->setting.dk == 256);
    CHECK(one->setting.T == 16);
    CHECK(one->setting.lr == 10);
    CHECK(holds(html, "data-value=\"" + softtape::to_csv(one->loss) + "\""));
  }
  CHECK(headline.scaled_narrow->setting.init_gain == 1);
  CHECK(headline.scaled_wide->setting.init_gain == 4);
  CHECK(headline.unscaled_narrow->setting.init_gain == 0.25);
  CHECK(headline.unscaled_wide->setting.init_gain == 1);
  CHECK(count(html, "<strong>5 of 5 learn</strong>") == 2);
  CHECK(count(html, "<strong>0 of 5 learn</strong>") == 2);
  CHECK(holds(html, "the spread of the scores decides"));
}

TEST_CASE("report: a headline that does not come out is not called clean") {
  Results results;
  made_up::add_run(results, {.scale = "inv_sqrt_dk", .dk = 256}, 60);
  made_up::add_run(results, {.scale = "none", .dk = 256}, 60);  // learns, though spread wide
  made_up::add_run(results, {.scale = "none", .dk = 256, .gain = 0.25}, 60);
  const std::string html = report_of(results);
  CHECK(holds(html, "do not fall cleanly"));
  CHECK(holds(html, "<strong>not run</strong>"));
  CHECK_FALSE(holds(html, "the spread of the scores decides"));
}

TEST_CASE("report: what did not run is left out, and a line says so") {
  const std::vector<std::pair<std::string, std::function<void(Results&)>>> parts{
      {"the two-by-two of scale and start", made_up::add_training},
      {"measurements at the start", made_up::add_start},
      {"heat maps of a sequence", made_up::add_heat_maps},
      {"training on the retrieval task", made_up::add_training},
      {"key symbols one by one", made_up::add_keys},
      {"remedies", made_up::add_training},
      {"training on text", made_up::add_text}};
  const std::string nothing = report_of({});
  CHECK(tag_problem(nothing) == "");
  CHECK(count(nothing, "<figure>") == 0);
  CHECK(holds(nothing, "Reading it honestly"));
  for (const auto& part : parts) {
    CAPTURE(part.first);
    Results results;
    part.second(results);
    const std::string html = report_of(results);
    const auto line = [](const std::string& page) {
      const std::size_t begin = page.find("Not part of this run");
      return page.substr(begin, page.find("</p>", begin) - begin);
    };
    CHECK(holds(line(nothing), part.first));
    CHECK_FALSE(holds(line(html), part.first));
    CHECK(count(html, "<figure>") > 0);
    CHECK(tag_problem(html) == "");
  }
  Results interrupted;
  interrupted.interrupted = true;
  CHECK(holds(report_of(interrupted), "This run was interrupted."));
}

TEST_CASE("report: without gnuplot it is whole and says so at every figure") {
  Results results;
  made_up::add_start(results);
  const std::string html = report_of(results);
  CHECK(tag_problem(html) == "");
  CHECK(count(html, "This figure was not drawn: gnuplot is not installed") == 2);
  CHECK(count(html, "<svg") == 0);
}

TEST_CASE("report: runs that became non-finite are drawn as far as they went") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Results results;
  for (const std::int64_t step : {0, 20}) {
    results.curves.add({"recall", std::int64_t{64}, std::int64_t{16}, "none", "-", 1.0, "sgd", 30.0,
                        30.0, std::int64_t{0}, step, step == 0 ? 2.7 : nan, step == 0 ? 0.1 : nan});
  }
  results.summary.add({"recall", std::int64_t{64}, std::int64_t{16}, "none", "-", 1.0, "sgd", 30.0,
                       30.0, std::int64_t{1}, std::int64_t{20}, std::int64_t{0}, nan, nan, nan,
                       nan});
  const std::string html = report_of(results);
  CHECK(tag_problem(html) == "");
  CHECK(holds(html, "not reached"));
  CHECK(holds(html, ">NaN</td>"));
}

TEST_CASE("report: the norm of the gradient of Wq is called larger only where it is") {
  Results results;
  made_up::add_start(results);
  CHECK(holds(report_of(results), "<strong>The gradient of Wq is larger without the scale"));
  Results smaller;
  for (const std::string scale : {"inv_sqrt_dk", "none"}) {
    std::vector<softtape::Cell> row(smaller.init.columns().size(), softtape::Cell(0.5));
    row[0] = std::int64_t{64}, row[1] = std::int64_t{16}, row[2] = scale;
    row[3] = 1.0, row[4] = std::int64_t{0};
    row[smaller.init.column("grad_wq")] = scale == "none" ? 0.1 : 0.2;
    smaller.init.add(row);
  }
  const std::string html = report_of(smaller);
  CHECK_FALSE(holds(html, "The gradient of Wq is larger without the scale"));
  CHECK(holds(html, "data-value=\"0.5\""));  // the quotient
}

TEST_CASE("report: the norm's factors and the split of the answers are in tables") {
  const std::string html = report_of(made_up::results());
  CHECK(holds(
      html, "In numbers, at d<sub>k</sub> = 1024: leaving the division out multiplies c by 32, "));
  CHECK(holds(html, "largest weight on the right key"));
  CHECK(holds(html, "data-value=\"0.07\""));
  Results without;
  made_up::add_start(without);
  without.attribution = softtape::Table(without.attribution.columns());
  CHECK_FALSE(holds(report_of(without), "In numbers"));
}

TEST_CASE("report: laws that failed show, laws that were not checked are named") {
  Results results;
  results.laws = {{"P1", "a < b", "1", true}, {"P6", "c", "2", false}};
  const std::string html = report_of(results);
  CHECK(holds(html, "<td>a &lt; b</td><td>1</td><td data-value=\"true\">yes</td>"));
  CHECK(holds(html, "<td>c</td><td>2</td><td data-value=\"false\">no</td>"));
  CHECK(holds(html, "P2, P3, P4, P5, P7, P8, P9, P10, P11, P12, P13."));
}

TEST_CASE("report: a folder that cannot be made is an error with its name") {
  const OddFolder folder;
  softtape::write_file(folder / "file", "");
  CHECK(holds(ops_test::refusal<softtape::IoError>(
                  [&] { starvation::write_report({}, folder / "file/out"); }),
              "file/out/figures': Not a directory"));
}

TEST_CASE("report: the best learning rate is the fastest, then the lowest loss") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto outcome = [](double steps, double loss) {
    Outcome one;
    one.steps_to_90 = steps;
    one.loss = loss;
    return one;
  };
  const Outcome slow = outcome(100, 0.1), fast = outcome(20, 0.2), better = outcome(20, 0.1),
                never = outcome(inf, 1), nowhere = outcome(inf, nan);
  CHECK(starvation::best({&slow, &fast, &never}) == &fast);
  CHECK(starvation::best({&fast, &better}) == &better);
  CHECK(starvation::best({&nowhere, &never}) == &never);
  CHECK(starvation::best({&nowhere}) == &nowhere);
  CHECK(starvation::best({}) == nullptr);
}

TEST_CASE("report: the last row of a setting counts, and a control is no sweep") {
  Results results;
  const auto add = [&](double dk, double lr, std::int64_t step, double loss) {
    results.summary.add({"recall", std::int64_t(dk), std::int64_t{16}, "none", "-", 1.0, "sgd", lr,
                         lr, std::int64_t{3}, step, std::int64_t{0}, "-", loss, 0.0, 0.5});
  };
  add(64, 3, 20, 2);
  add(64, 3, 500, 1);
  add(64, 10, 500, 1);
  add(4, 3, 500, 1);
  const std::vector<Outcome> all = starvation::outcomes(results.summary);
  REQUIRE(all.size() == 3);
  CHECK(all[0].loss == 1);
  CHECK(std::isinf(all[0].steps_to_90));
  const auto sweep = starvation::sweep_of(all, "sgd");
  REQUIRE(sweep.size() == 2);
  CHECK(sweep[0]->setting.dk == 64);
  CHECK(starvation::sweep_of(all, "adam").empty());
  CHECK(starvation::remedies_of(all).empty());
}

TEST_CASE("report: the lesson's numbers stand pair by pair, and all of them on demand") {
  Results results = made_up::results();
  std::string html = report_of(results);
  CHECK(holds(html, "<th scope=\"col\" class=\"n\">(8, 0)</th>"));
  CHECK(holds(html, "<tr><td>p(1 - p)</td><td class=\"n\" data-value=\"0.0003352376707565\""));
  CHECK(holds(html, "<td>Var(q.k) / d_k</td><td></td>"));
  CHECK(holds(html, ">0.999665</td>"));
  results.lesson = softtape::Table(results.lesson.columns());
  results.lesson.add({"p(1 - p)", 8.0, 0.0, 3.352376707565e-4, 3.352376707565e-4});
  html = report_of(results);  // too few for a table of pairs
  CHECK(holds(html, "<td>p(1 - p)</td><td>(8, 0)</td>"));
}

TEST_CASE("report: a shorter copy of a run does not count its symbols twice") {
  Results results;
  made_up::add_keys(results);
  const auto sizes = [](const Results& of) {
    std::vector<std::size_t> out;
    for (const Rows& group : starvation::key_symbol_groups(of)) out.push_back(group.size());
    return out;
  };
  const std::vector<std::size_t> once = sizes(results);
  CHECK(once == std::vector<std::size_t>(6, 96));
  made_up::add_keys(results);
  CHECK(sizes(results) == once);
}

TEST_CASE("report: names for people") {
  CHECK(starvation::name_of("inv_sqrt_dk") == "scaled");
  CHECK(starvation::name_of("none", "small_init", 0.25) == "small init, unscaled, gain 0.25");
  CHECK(starvation::name_of("inv_dk", "inv_dk") == "1/d_k");
  CHECK(starvation::name_of("learned", "learned") == "learned scale");
  CHECK(starvation::name_of("none", "qk_norm") == "QK-norm, unscaled");
}

TEST_CASE("report: medians and bands over seeds leave out what is not finite") {
  CHECK(starvation::median({3, 1, 2}) == 2);
  CHECK(starvation::median({4, 1, 2, 3}) == 2.5);
  CHECK(starvation::median({1, std::nan(""), 3}) == 2);
  CHECK(std::isnan(starvation::median({})));
  softtape::Table table({"step", "seed", "loss"});
  table.add({std::int64_t{0}, std::int64_t{0}, 1.0});
  table.add({std::int64_t{0}, std::int64_t{1}, 3.0});
  table.add({std::int64_t{20}, std::int64_t{0}, std::nan("")});
  const softtape::Series series = starvation::over_seeds(Rows(table), "step", "loss", "s", 0);
  CHECK(series.x == std::vector<double>{0, 20});
  CHECK(series.y[0] == 2);
  CHECK(series.low[0] == 1);
  CHECK(series.high[0] == 3);
  CHECK(std::isnan(series.y[1]));
}

TEST_CASE("report: the prediction is that of the two largest of T normals, where it holds") {
  // 1/sqrt(pi) exactly for two; the others by quadrature elsewhere.
  CHECK(std::abs(starvation::top_gap_density(2) - 1 / std::sqrt(std::acos(-1.0))) < 1e-12);
  CHECK(std::abs(starvation::top_gap_density(16) - 1.765991) < 1e-6);
  CHECK(std::abs(starvation::top_gap_density(128) - 2.594597) < 1e-6);
  CHECK(starvation::limit_holds(64, 2));
  CHECK_FALSE(starvation::limit_holds(64, 16));
  CHECK(starvation::limit_holds(256, 16));
  CHECK_FALSE(starvation::limit_holds(64, 128));
  CHECK(starvation::limit_holds(256, 128));
  Results results;
  made_up::add_start(results);
  const softtape::Figure figure = starvation::jacobian_figure(results);
  REQUIRE(figure.panels.size() == 3);
  const softtape::Series& predicted = figure.panels[1].series.back();
  CHECK(predicted.x == std::vector<double>{256, 1024});
  CHECK(std::abs(predicted.y[0] - 1.765991 / 16) < 1e-6);
}

TEST_CASE("report: the spread of the scores follows scale and gain") {
  const auto spread = [](const char* scale, double dk, double gain, const char* remedy = "-") {
    return starvation::score_std(
        {.scale = scale, .remedy = remedy, .dk = dk, .T = 16, .init_gain = gain});
  };
  CHECK(spread("inv_sqrt_dk", 256, 1) == 1);
  CHECK(spread("inv_sqrt_dk", 256, 4) == 16);
  CHECK(spread("none", 256, 1) == 16);
  CHECK(spread("none", 256, 0.25) == 1);
  CHECK(spread("inv_dk", 256, 1) == 1.0 / 16);
  CHECK(spread("dk_quarter", 256, 1) == 4);
  CHECK(std::isnan(spread("learned", 256, 1)));
  CHECK(std::isnan(spread("none", 256, 1, "qk_norm")));
}

}  // namespace
