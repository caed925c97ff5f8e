// Chapters about what training makes of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figures.hpp"
#include "report_parts.hpp"

namespace starvation {

using softtape::Card;
using softtape::Cell;
using softtape::Figure;
using softtape::Table;

namespace {

Cell steps_cell(double steps) {
  return std::isfinite(steps) ? Cell(steps) : Cell(std::string("not reached"));
}

std::string reached(const Outcome& one) {
  return fmt::format("{} of {}", digits(one.reached), digits(one.seeds));
}

const std::vector<std::string>& outcome_columns() {
  static const std::vector<std::string> columns{"seeds at 90 %", "steps to 90 % (median)",
                                                "loss at the end", "its sd", "accuracy"};
  return columns;
}

// The settings that distinguish the rows of one table, then how they ended.
Table outcome_table(std::vector<std::string> columns) {
  columns.insert(columns.end(), outcome_columns().begin(), outcome_columns().end());
  return Table(columns);
}

void add_outcome(Table& table, std::vector<Cell> row, const Outcome& one) {
  row.insert(row.end(), {Cell(reached(one)), steps_cell(one.steps_to_90), Cell(one.loss),
                         Cell(one.loss_sd), Cell(one.accuracy)});
  table.add(std::move(row));
}

}  // namespace

void Report::headline() {
  const Headline found = headline_of(all_);
  const Outcome* any = nullptr;
  for (const Outcome* one : found.cells()) any = any ? any : one;
  if (!any) {
    missing_.push_back("the two-by-two of scale and start");
    return;
  }
  const Setting& s = any->setting;
  page_.section("What starves is a saturated softmax");
  page_.paragraph(fmt::format(
      "A score is a dot product of d_{{k}} terms. With queries and keys of unit variance its "
      "standard deviation is √d_{{k}}: the wider the head, the wider the scores spread. Dividing "
      "by √d_{{k}} brings the spread back to 1. A softmax over T scores stays soft while they "
      "spread less than √(2 ln T), which is {:.3g} for T = {}, and beyond that it picks one key.",
      std::sqrt(2 * std::log(s.T)), s.T));
  page_.paragraph(fmt::format(
      "Is it the division that matters, or the spread it leaves? The same retrieval task was "
      "trained four ways, at d_{{k}} = {} and learning rate {}: with and without the division, "
      "each from a start whose scores spread by about 1 and one whose scores spread by about {}. "
      "The gain multiplies the initial Wq and Wk.",
      s.dk, s.lr, digits(std::sqrt(s.dk))));
  std::vector<Card> cards;
  Table table = outcome_table({"scale", "gain", "spread of scores at the start (predicted)"});
  const char* columns[] = {"scaled", "unscaled", "scaled", "unscaled"};
  bool as_stated = true;
  for (std::size_t i = 0; i < 4; ++i) {
    const Outcome* one = found.cells()[i];
    const bool narrow = i < 2;
    if (!one) {
      cards.push_back({fmt::format("{}, {} spread", columns[i], narrow ? "narrow" : "wide"),
                       "not run", "", Card::Tone::neutral});
      as_stated = false;
      continue;
    }
    const double gain = one->setting.init_gain, spread = score_std(one->setting);
    const bool all_seeds = one->reached == one->seeds, none = one->reached == 0;
    as_stated = as_stated && (narrow ? all_seeds : none);
    const std::string how = std::isfinite(one->steps_to_90)
                                ? fmt::format("after {} steps (median)", digits(one->steps_to_90))
                            : std::isfinite(one->loss)
                                ? fmt::format("loss {} at step {}", digits(one->loss), one->step)
                                : "loss no longer finite";
    cards.push_back(
        {fmt::format("{}, gain {}: spread {}", columns[i], digits(gain), digits(spread)),
         reached(*one) + " learn", how,
         all_seeds ? Card::Tone::good
         : none    ? Card::Tone::bad
                   : Card::Tone::neutral});
    add_outcome(table, {Cell(name_of(one->setting.scale)), Cell(gain), Cell(spread)}, *one);
  }
  page_.cards(cards, 2);
  page_.paragraph(
      as_stated ? "The two boxes of a row end alike, those of a column do not: **the spread of the "
                  "scores decides, not the division as such.** Dividing by √d_{k} is the way to "
                  "keep the spread at 1 for every d_{k} without touching the initialisation; a "
                  "small initialisation does so at the start only. A start whose scores spread "
                  "too far is stuck with the division too."
                : "In this run the four boxes do not fall cleanly into a row that learns and a "
                  "row that does not; read them with the number of seeds in mind.");
  draw(two_by_two_figure(results_, found),
       "The four starts. A run has learned when it answers 90 % of the evaluation samples. Lines "
       "are medians over seeds, bands reach from the worst seed to the best.");
  page_.table(table, "The two-by-two in numbers; spreads are standard deviations.");
}

void Report::sweep(const std::vector<const Outcome*>& sweep, const std::string& optimizer) {
  Table table = outcome_table({"d_{k}", "scale", "best rate"});
  std::vector<double> widths;
  for (const Outcome* one : sweep) widths.push_back(one->setting.dk);
  std::sort(widths.begin(), widths.end());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  for (const double dk : widths) {
    for (const char* scale : {"inv_sqrt_dk", "none"}) {
      std::vector<const Outcome*> rates;
      for (const Outcome* one : sweep) {
        if (one->setting.dk == dk && one->setting.scale == scale) rates.push_back(one);
      }
      if (const Outcome* one = best(rates)) {
        add_outcome(table, {Cell(dk), Cell(name_of(scale)), Cell(one->setting.lr)}, *one);
      }
    }
  }
  page_.table(table,
              fmt::format("Each scale at its best learning rate, {}: one that ends above 90 %, "
                          "then the fewest steps to get there (median over seeds), then the "
                          "smallest final loss.",
                          optimizer));
}

void Report::training() {
  const std::vector<const Outcome*> sgd = sweep_of(all_, "sgd");
  const std::vector<const Outcome*> adam = sweep_of(all_, "adam");
  if (sgd.empty() && adam.empty()) {
    missing_.push_back("training on the retrieval task");
    return;
  }
  page_.section("Training: best against best");
  page_.paragraph(
      "The task is a soft lookup table: a sequence holds keys with their values, one key is asked "
      "for, its value is the answer. Keys are drawn from a set of symbols, so every symbol has its "
      "own row of Wq and Wk and must be learned on its own. A comparison at one learning rate "
      "can be made to show anything, since the scale also sets the size of the step; so every "
      "setting ran at several rates, and each scale is shown at the best of its own.");
  if (!sgd.empty()) {
    draw(best_rate_figure(results_, sgd, "best_rate"),
         "Loss with plain gradient descent, each scale at its best learning rate (in the title: "
         "scaled, unscaled). Lines are medians over seeds, bands reach from best to worst.");
    sweep(sgd, "plain gradient descent");
    draw(rate_strip_figure(results_, sgd),
         "All rates: a point for each seed. Points at one place are spread sideways, those at the "
         "top never reached 90 %. If a scale's lowest points lie at the edge of the strip, the "
         "strip does not hold its best rate.");
  }
  if (!adam.empty()) {
    page_.heading("Adam");
    page_.paragraph(
        "Adam divides the size of the gradient out. That removes the steps, √d_{k} times larger, "
        "with which an unscaled run makes up for part of its starvation under plain gradient "
        "descent; the saturation stays.");
    draw(best_rate_figure(results_, adam, "adam"), "Loss with Adam, each scale at its best rate.");
    sweep(adam, "Adam");
  }
}

void Report::key_symbols() {
  const Figure figure = key_symbols_figure(results_);
  if (figure.panels.empty()) {
    missing_.push_back("key symbols one by one");
    return;
  }
  page_.section("What an accuracy of one half means");
  page_.paragraph(
      "An unscaled run that stops improving does not answer every question half right. It knows "
      "some symbols and does not know others: those whose scores happened to start near a tie got "
      "gradients and were learned; the rest get next to none, and wait.");
  draw(figure,
       "Key symbols by the share of their queries that are found, with the largest weight on the "
       "right key, at the end of training; mean "
       "number of symbols over seeds.");
  Table table({"d_{k}", "scale", "rate", "symbols found in 80 % and more", "in between",
               "in less than 20 %", "queries found"});
  for (const Rows& here : key_symbol_groups(results_)) {
    const auto seeds = static_cast<double>(here.distinct("seed").size());
    double good = 0, between = 0, bad = 0, found = 0, queries = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const double share = here.number(i, "found_share");
      ++(share >= 0.8 ? good : share < 0.2 ? bad : between);
      found += here.number(i, "found");
      queries += here.number(i, "queries");
    }
    table.add({here.number(0, "dk"), name_of(here.text(0, "scale")), here.number(0, "lr"),
               good / seeds, between / seeds, bad / seeds, found / queries});
  }
  page_.table(table, "Symbols by how often they are found, mean numbers over seeds.");
  ends(key_symbol_groups(results_).front().number(0, "lr"));
}

void Report::ends(double lr) {
  const Rows all(results_.ends);
  const Rows plain = all.where("remedy", "-").where("init_gain", 1).where("optimizer", "sgd");
  const Rows rows =
      plain.where("lr", lr).where("T", most_common(plain, "T")).first_of({"dk", "scale", "seed"});
  Table table({"d_{k}", "scale", "largest weight on the right key", "answers right where it is",
               "answers right elsewhere", "targets starved where it is",
               "targets starved elsewhere"});
  for (const double dk : rows.distinct("dk")) {
    for (const char* scale : {"inv_sqrt_dk", "none"}) {
      const Rows here = rows.where("dk", dk).where("scale", scale);
      if (here.empty()) continue;
      std::vector<Cell> row{Cell(dk), Cell(name_of(scale))};
      for (const char* column : {"top_key_right", "accuracy_right", "accuracy_wrong",
                                 "starved_right", "starved_wrong"}) {
        row.emplace_back(median(here.numbers(column)));
      }
      table.add(std::move(row));
    }
  }
  if (table.rows().empty()) return;
  page_.paragraph(
      "The same seen question by question: where the largest weight lies on the right key, the "
      "answer is right; elsewhere it is hardly better than a guess. Gradients at the end of "
      "training need this split too. A weight near 1 on the right key makes its gradient vanish as "
      "surely as a weight near 0 does, so a starved target may be a lost one or one that is done.");
  page_.table(table, fmt::format("Evaluation samples at the end of training, learning rate {}, as "
                                 "shares; medians over seeds. NaN: there were none.",
                                 lr));
}

void Report::remedies() {
  const std::vector<const Outcome*> found = remedies_of(all_);
  if (found.empty()) {
    missing_.push_back("remedies");
  } else {
    page_.section("Remedies");
    page_.paragraph(
        "What can help is what keeps the scores from spreading from the first step on, and each "
        "remedy wants its own learning rate. QK-norm gives every query and key the same length, a "
        "small start makes them short. A soft cap bounds the scores, but passes little gradient "
        "to those near the cap: it learns more slowly. A learned factor that starts at 1 starts "
        "unscaled, and would have to "
        "learn its way out by the very gradients that are missing. Dividing by d_{k} starts near "
        "uniform attention: gradients are small but all alike, and a higher rate makes up for it; "
        "that is slowness, not starvation.");
    draw(remedies_figure(results_, found),
         "Each remedy at its best learning rate; medians over seeds. A line ends where its runs "
         "did.");
    Table table = outcome_table({"d_{k}", "remedy", "best rate"});
    for (const Outcome* one : found) {
      const Setting& s = one->setting;
      add_outcome(table, {Cell(s.dk), Cell(name_of(s.scale, s.remedy, s.init_gain)), Cell(s.lr)},
                  *one);
    }
    page_.table(table, "Each remedy at its best learning rate.");
  }
  Table every = outcome_table(
      {"optimizer", "d_{k}", "T", "scale and remedy", "rate", "rate of Wq, Wk", "seeds"});
  for (const Outcome& one : all_) {
    const Setting& s = one.setting;
    if (s.task != "recall") continue;
    add_outcome(
        every,
        {Cell(s.optimizer), Cell(s.dk), Cell(s.T), Cell(name_of(s.scale, s.remedy, s.init_gain)),
         Cell(s.lr), Cell(s.lr_qk), Cell(one.seeds)},
        one);
  }
  if (!every.rows().empty()) {
    page_.details("Every setting of the retrieval task that ran, controls included", every);
  }
}

void Report::text() {
  const Figure figure = text_figure(results_);
  if (figure.panels.empty()) {
    missing_.push_back("training on text");
    return;
  }
  page_.section("Real text");
  page_.paragraph(
      "One causal attention head, and nothing else, predicts the next character of a text. A model "
      "that knows only which character follows which, the bigram line, is good already: read the "
      "distance between the scales against the distance to that line.");
  draw(figure,
       "Held-out loss and attention entropy, each scale at its best optimiser and rate. Dotted: "
       "what uniform guessing, letter frequencies and letter-pair frequencies achieve on the same "
       "windows. Lines are medians over seeds, bands reach from best to worst.");
  Table table({"d_{k}", "scale", "best optimiser", "rate", "seeds", "held-out loss (median)",
               "lowest", "highest", "attention entropy"});
  for (const TextRuns& run : best_text_runs(results_)) {
    const Rows last = run.rows.where("step", run.rows.distinct("step").back());
    const softtape::Series loss = over_seeds(last, "step", "loss", "", 0);
    table.add({run.dk, name_of(run.scale), run.optimizer, run.lr,
               static_cast<std::int64_t>(last.distinct("seed").size()), loss.y.front(),
               loss.low.front(), loss.high.front(), median(last.numbers("entropy"))});
  }
  page_.table(table, "Text at the last step; losses and entropies in nats.");
}

}  // namespace starvation
