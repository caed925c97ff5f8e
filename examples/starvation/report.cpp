// The chapters of the report, in the order of the page. Every number in them comes from the tables
// of the run.
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "figures.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"

namespace starvation {

using softtape::Card;
using softtape::Cell;
using softtape::Figure;
using softtape::HtmlPage;
using softtape::Table;

namespace {

class Report {
 public:
  Report(const Results& results, const std::string& folder)
      : results_(results), folder_(folder), all_(outcomes(results.summary)) {}

  void headline();
  void lesson();
  void start();
  void jacobian();
  void heat_maps();
  void weight_norms();
  void training();
  void key_symbols();
  void remedies();
  void text();
  void run();

  HtmlPage& page() { return page_; }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  /// Returns whether there was anything to draw.
  bool draw(const Figure& figure, const std::string& caption);
  void sweep(const std::vector<const Outcome*>& sweep, const std::string& optimizer);

  const Results& results_;
  std::string folder_;
  std::vector<Outcome> all_;
  HtmlPage page_{
      "Why attention divides its scores by √d_{k}",
      "A softmax over widely spread scores leaves most keys a gradient of almost nothing. Here is "
      "measured when that happens, what it does to learning, and where it does not matter."};
  std::vector<std::string> missing_;
};

std::string ratio(double x) { return digits(x) + " times"; }

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

bool Report::draw(const Figure& figure, const std::string& caption) {
  if (figure.panels.empty()) return false;
  page_.figure(figure, softtape::write_figure(figure, folder_ + "/figures"), caption);
  return true;
}

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
                                : fmt::format("loss {} at step {}", digits(one->loss), one->step);
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
      as_stated ? "Each row of boxes ends alike and each column does not: **the spread of the "
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
  page_.table(results_.lesson, "Computed by the library, beside what is expected.");
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
  const double T = most_common(rows, "T");
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
  page_.table(table, fmt::format("At the start, T = {} keys; medians over seeds. Entropy is in "
                                 "nats; the noise scale is the gradient's variance over its "
                                 "squared mean, the batch below which noise rules (NaN: too noisy "
                                 "to measure).",
                                 T));
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

void Report::weight_norms() {
  const Rows all = Rows(results_.init).where("init_gain", 1);
  const Rows rows = all.where("T", most_common(all, "T"));
  Table table({"d_{k}", "|dL/dWq| scaled", "unscaled", "unscaled / scaled",
               "of which the scale (√d_{k})", "of which all else", "|dL/dWk| unscaled / scaled",
               "|dL/dWv| unscaled / scaled"});
  double least = std::numeric_limits<double>::infinity(), dk_last = 0, all_else = 0, last = 0;
  for (const double dk : rows.distinct("dk")) {
    const Rows here = rows.where("dk", dk);
    const auto norm = [&](const char* scale, const char* column) {
      return median(here.where("scale", scale).numbers(column));
    };
    const auto quotient = [&](const char* column) {
      return norm("none", column) / norm("inv_sqrt_dk", column);
    };
    const double q = quotient("grad_wq");
    if (std::isnan(q)) continue;
    least = std::min(least, q);
    dk_last = dk, last = q, all_else = q / std::sqrt(dk);
    table.add({dk, norm("inv_sqrt_dk", "grad_wq"), norm("none", "grad_wq"), q, std::sqrt(dk),
               all_else, quotient("grad_wk"), quotient("grad_wv")});
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
  page_.paragraph(fmt::format(
      "The reason is in dL/dWq = Σ x^{{T}} (c · J g · K), a product of four factors: the scale c, "
      "the "
      "Jacobian J of the softmax, the upstream gradient g and the keys K. Both runs start from the "
      "same weights, so the keys are the same numbers. The scale is √d_{{k}} times larger in the "
      "unscaled run, which is {} at d_{{k}} = {}; the norm is {} larger, so Jacobian and upstream "
      "together give back a factor of only {}. A norm adds squares: the few rows near a tie, whose "
      "gradient is large, make up for the many that have none. The median row above shows what the "
      "norm hides. And dL/dWv does not pass the softmax at all: the values never starve as a "
      "whole.",
      ratio(std::sqrt(dk_last)), dk_last, ratio(last), digits(all_else)));
  page_.table(table, "Norms of the weights' gradients at the start, medians over seeds.");
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
  page_.table(table, fmt::format("Each scale at its best learning rate, {}: fewest steps to 90 % "
                                 "(median over seeds), then the smaller final loss.",
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
      "gradients and were learned, the rest were never touched.");
  draw(figure,
       "Key symbols by the share of their queries that are answered at the end of training, mean "
       "number of symbols over seeds.");
}

void Report::remedies() {
  const std::vector<const Outcome*> found = remedies_of(all_);
  if (found.empty()) {
    missing_.push_back("remedies");
  } else {
    page_.section("Remedies");
    page_.paragraph(
        "Whatever keeps the scores from spreading helps, and each wants its own learning rate. "
        "Dividing by d_{k} starts near uniform attention: gradients are small but all alike, and a "
        "higher rate makes up for it. That is slowness, not starvation. d_{k}^{−1/4} lies between "
        "scaled and unscaled.");
    draw(remedies_figure(results_, found), "Each remedy at its best learning rate; medians.");
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
      "One causal attention head, and nothing else, predicts the next character of a text. Here "
      "the effect is real but modest: a model that knows only which letter follows which, the "
      "bigram line, is already good, and reaching it takes little attention.");
  draw(figure,
       "Held-out loss and attention entropy, each scale at its best optimiser and rate. Dotted: "
       "what uniform guessing, letter frequencies and letter-pair frequencies achieve on the same "
       "windows. Lines are medians over seeds, bands reach from best to worst.");
}

void Report::run() {
  page_.section("This run");
  if (!results_.command.empty()) {
    page_.paragraph("The command that makes it again, number for number:");
    page_.code(results_.command);
  }
  page_.paragraph(
      "Beside this page lie the tables as CSV (`lesson`, `init`, `curves`, `summary`, `keys`, "
      "`text`), `run.json`, and in `figures` each figure's numbers, its gnuplot script and the "
      "drawing.");
  Table options({"option", "value"});
  for (const auto& [name, value] : results_.run) options.add({Cell(name), Cell(value)});
  if (!options.rows().empty()) page_.details("Every option, and where it ran", options);
}

}  // namespace

void write_report(const Results& results, const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder + "/figures", problem);
  if (problem) {
    throw softtape::IoError(
        fmt::format("[write_report] '{}/figures': {}", folder, problem.message()));
  }
  Report report(results, folder);
  report.headline();
  report.lesson();
  report.start();
  report.jacobian();
  report.heat_maps();
  report.weight_norms();
  report.training();
  report.key_symbols();
  report.remedies();
  report.text();
  add_caveats(report.page());
  add_laws(report.page(), results);
  report.run();

  if (results.interrupted) {
    report.page().preface(
        "**This run was interrupted.** What follows is what had finished by then.");
  }
  if (!report.missing().empty()) {
    std::string list;
    for (const std::string& part : report.missing()) list += (list.empty() ? "" : ", ") + part;
    report.page().preface("Not part of this run, and left out: " + list + ".");
  }
  softtape::write_file(folder + "/report.html", report.page().str());
}

}  // namespace starvation
