// Chapters about what is true before the first step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "figures.hpp"
#include "report_parts.hpp"

namespace starvation {

using softtape::Cell;
using softtape::Figure;
using softtape::Table;

void Report::lesson() {
  if (results_.lesson.rows().empty()) {
    missing_.push_back("the lesson's numbers");
    return;
  }
  page_.section("The lesson in numbers");
  page_.paragraph(
      "Two keys and their scores are enough to see it. The winner's and the loser's score "
      "gradients are equal and opposite, so with two keys both starve together. Shrinking the gap "
      "between the scores raises the score gradient enormously; the query's gradient also carries "
      "the scale itself, so its gain is smaller by that factor.");
  lesson_tables();
}

void Report::lesson_tables() {
  const Rows rows(results_.lesson);
  const std::size_t value = results_.lesson.column("value");
  Table whole({"quantity", "scores (winner, loser)", "value", "expected"});
  std::vector<std::string> pairs, quantities;
  std::map<std::pair<std::string, std::string>, Cell> values;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double winner = rows.number(i, "winner_score"), loser = rows.number(i, "loser_score");
    // Rows about no pair of scores have equal ones.
    const bool is_pair = winner > loser;
    const std::string pair =
        is_pair ? fmt::format("({}, {})", digits(winner), digits(loser)) : std::string();
    const std::vector<Cell>& row = results_.lesson.rows()[i];
    const std::string quantity = rows.text(i, "quantity");
    whole.add({quantity, pair, row[value], row[results_.lesson.column("expected")]});
    if (!is_pair) continue;
    values.insert_or_assign({quantity, pair}, row[value]);
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
    if (std::find(quantities.begin(), quantities.end(), quantity) == quantities.end()) {
      quantities.push_back(quantity);
    }
  }
  // Quantities against pairs, of what was computed for three pairs and more.
  std::erase_if(quantities, [&](const std::string& quantity) {
    return std::count_if(values.begin(), values.end(),
                         [&](const auto& entry) { return entry.first.first == quantity; }) < 3;
  });
  std::erase_if(pairs, [&](const std::string& pair) {
    return std::none_of(quantities.begin(), quantities.end(), [&](const std::string& quantity) {
      return values.count({quantity, pair}) > 0;
    });
  });
  if (pairs.empty()) {
    page_.table(whole, "Computed by the library, beside what is expected.", 6);
    return;
  }
  std::vector<std::string> columns{"scores (winner, loser)"};
  columns.insert(columns.end(), pairs.begin(), pairs.end());
  Table table(columns);
  for (const std::string& quantity : quantities) {
    std::vector<Cell> row{Cell(quantity)};
    for (const std::string& pair : pairs) {
      const auto found = values.find({quantity, pair});
      row.push_back(found == values.end() ? Cell(std::string()) : found->second);
    }
    table.add(std::move(row));
  }
  page_.table(table, "Two keys, computed by the library.", 6);
  page_.details("All numbers of the lesson, beside what is expected", whole, 6);
}

void Report::start() {
  if (results_.init.rows().empty()) {
    missing_.push_back("measurements at the start");
    return;
  }
  page_.section("Before the first step: which keys get a gradient");
  page_.paragraph(
      "A key is called **dead** when the gradient of its score is below 10^{−6}, the loss summed "
      "over samples and not divided by their number. Because that threshold depends on the size of "
      "the gradient that arrives, the share below 10^{−6} times the norm of the row's own upstream "
      "gradient is given too. The **target** is the key that holds the answer.");
  draw(dead_keys_figure(results_),
       "Dead keys at the start. Without the scale their share grows with d_{k} for every number of "
       "keys T, from about d_{k} = 2 ln T on, where the softmax turns from soft to picking one "
       "key. Lines are medians over seeds, bands reach from the least to the most.");
  const Rows rows = Rows(results_.init).where("init_gain", 1);
  const double T = main_T(results_);
  Table table({"d_{k}", "scale", "largest weight", "entropy", "effective keys", "dead keys",
               "dead keys, relative", "starved targets", "median |dL/ds| at the target",
               "median row norm of dL/dS", "noise scale"});
  for (const double dk : rows.where("T", T).distinct("dk")) {
    const Rows of_width = rows.where("T", T).where("dk", dk);
    for (const std::string& scale : of_width.distinct_text("scale")) {
      const Rows here = of_width.where("scale", scale);
      std::vector<Cell> row{Cell(dk), Cell(name_of(scale))};
      for (const char* column :
           {"max_p", "entropy", "effective_keys", "dead_keys", "dead_keys_relative",
            "target_starved", "target_ds_median", "row_ds_median", "noise_scale"}) {
        row.emplace_back(median(here.numbers(column)));
      }
      table.add(std::move(row));
    }
  }
  page_.table(table,
              fmt::format("At the start, T = {} keys; medians over seeds. Entropy is in "
                          "nats; the noise scale is the gradient's variance over its "
                          "squared mean, the batch below which noise rules (NaN: too noisy "
                          "to measure).",
                          T),
              3);
}

void Report::jacobian() {
  const Figure figure = jacobian_figure(results_);
  if (figure.panels.empty()) return;
  page_.heading("The Jacobian of the softmax");
  page_.paragraph(
      "Every score gradient passes the Jacobian diag(p) − p p^{T}. Without the scale only rows "
      "whose two best keys nearly tie let a gradient through; their share falls like 1/√d_{k}, "
      "and so does the mean norm, f_{T}/√d_{k}. The median row falls exponentially. The mean is "
      "therefore the kinder number: with many keys it can be larger without the scale than with "
      "it, up to quite large d_{k}, while most keys are dead already.");
  draw(figure,
       "Frobenius norm of the Jacobian at the start. The prediction is drawn only where it holds, "
       "√d_{k} at least five times √(2 ln T).");
}

void Report::heat_maps() {
  const std::vector<Figure> figures = heat_map_figures(results_);
  if (figures.empty()) {
    missing_.push_back("heat maps of a sequence");
    return;
  }
  page_.heading("One sequence, seen from every query");
  page_.paragraph(
      "The same sequence with and without the scale, before the first step. Both sides of a figure "
      "share their colours.");
  draw(figures[0], "Attention weights. Masked cells are hatched.");
  draw(figures[1],
       "The gradient that reaches the weights, dL/dP. The softmax has not been passed yet, so "
       "nothing starves here. In masked cells, hatched, it is not zero; it means nothing.");
  draw(figures[2],
       "The gradient that is left for the scores, |dL/dS|, as a power of ten; what is smaller than "
       "10^{−12} has the darkest colour. Below −6 a key counts as dead.");
}

void Report::attribution(double T) {
  const Rows all = Rows(results_.attribution).where("init_gain", 1).where("T", T);
  const std::vector<std::pair<const char*, const char*>> factors{
      {"factor", "scale c"},  {"jacobian_rms", "Jacobian J"}, {"upstream", "upstream g"},
      {"key_norm", "keys K"}, {"product", "all four"},        {"grad_wq", "measured dL/dWq"}};
  std::vector<std::string> columns{"d_{k}"};
  for (const auto& factor : factors) columns.push_back(factor.second);
  Table table(columns);
  std::vector<double> last;
  for (const double dk : all.distinct("dk")) {
    const Rows here = all.where("dk", dk);
    const Rows scaled = here.where("scale", "inv_sqrt_dk"), unscaled = here.where("scale", "none");
    if (scaled.empty() || unscaled.empty()) continue;
    std::vector<Cell> row{Cell(dk)};
    last = {dk};
    for (const auto& factor : factors) {
      last.push_back(median(unscaled.numbers(factor.first)) / median(scaled.numbers(factor.first)));
      row.emplace_back(last.back());
    }
    table.add(std::move(row));
  }
  if (table.rows().empty()) return;
  page_.paragraph(fmt::format(
      "In numbers, at d_{{k}} = {}: leaving the division out multiplies c by {}, the Jacobian by "
      "{}, the upstream gradient by {} and the keys by {}, together by {}. Measured is {}. The "
      "Jacobian shrinks, but as a root mean square over rows: a few rows near a tie, whose "
      "Jacobian is large, outweigh the many that have none. The median row in the table above "
      "shows what this hides.",
      last[0], digits(last[1]), digits(last[2]), digits(last[3]), digits(last[4]), digits(last[5]),
      digits(last[6])));
  page_.table(table,
              "Unscaled over scaled, factor by factor: root mean squares over rows, medians "
              "over seeds. The product is an estimate; the measured norm also knows how rows "
              "add up.");
}

void Report::weight_norms() {
  const double T = main_T(results_);
  const Rows rows = Rows(results_.init).where("init_gain", 1).where("T", T);
  Table table({"d_{k}", "|dL/dWq| scaled", "|dL/dWq| unscaled", "unscaled / scaled",
               "|dL/dWk| unscaled / scaled", "|dL/dWv| unscaled / scaled"});
  double least = std::numeric_limits<double>::infinity();
  for (const double dk : rows.distinct("dk")) {
    const Rows here = rows.where("dk", dk);
    const auto norm = [&](const char* scale, const char* column) {
      return median(here.where("scale", scale).numbers(column));
    };
    const auto quotient = [&](const char* column) {
      return norm("none", column) / norm("inv_sqrt_dk", column);
    };
    const double of_wq = quotient("grad_wq");
    if (std::isnan(of_wq)) continue;
    least = std::min(least, of_wq);
    table.add({dk, norm("inv_sqrt_dk", "grad_wq"), norm("none", "grad_wq"), of_wq,
               quotient("grad_wk"), quotient("grad_wv")});
  }
  if (table.rows().empty()) {
    if (!results_.init.rows().empty()) missing_.push_back("norms of the weight gradients");
    return;
  }
  page_.section("What does not starve: the norm of dL/dWq");
  page_.paragraph(
      least > 1
          ? "**The gradient of Wq is larger without the scale, at every d_{k} measured here.** "
            "Whoever reports its norm as a measure of starvation shows the opposite of the claim."
          : "The norm of the gradient of Wq is not a measure of starvation: without the scale it "
            "is mostly larger.");
  page_.table(table, "Norms of the weights' gradients at the start, medians over seeds.");
  page_.paragraph(
      "The reason: dL/dWq is a sum over rows of x^{T} (c · J g · K), with four factors. The scale "
      "c "
      "is √d_{k} times larger without the division. The Jacobian J shrinks as d_{k} grows, but "
      "more slowly. The keys K are the "
      "same numbers, since both runs start from the same weights, and the upstream gradient g is "
      "much the same. dL/dWv does not pass the Jacobian at all: the values never starve as a "
      "whole.");
  attribution(T);
}

}  // namespace starvation
