// Part 3: training on associative recall. What is run, how it is summed up, what is printed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "jobs.hpp"
#include "laws.hpp"
#include "output.hpp"
#include "parts.hpp"
#include "recall.hpp"
#include "softtape/train/interrupt.hpp"
#include "statistics.hpp"

namespace starvation {

using softtape::Cell;
using softtape::Table;

namespace {

// Settings under a heading; each runs with every seed.
struct Group {
  std::string heading;
  std::vector<RecallSetting> settings;
  std::uint64_t seeds;
  bool best = false;  // whether each line's best rate is looked for
};

RecallSetting setting(std::int64_t dk, const char* scale, double lr) {
  RecallSetting s;
  s.dk = dk;
  s.scale = scale;
  s.lr = s.lr_qk = lr;
  return s;
}

// A remedy for unscaled scores, or the scale itself.
RecallSetting remedied(const std::string& remedy, std::int64_t dk, double lr) {
  RecallSetting s = setting(dk, "none", lr);
  s.remedy = remedy;
  if (remedy == "qk_norm") s.scale = "inv_sqrt_dk";
  if (remedy == "inv_dk") s.scale = "inv_dk";
  if (remedy == "learned") s.scale = "learned";
  if (remedy == "small_init") s.init_gain = std::pow(static_cast<double>(dk), -0.25);
  return s;
}

const std::vector<std::string> kRemedies{"qk_norm", "soft_cap", "learned", "inv_dk", "small_init"};

Group two_by_two(const Options& o) {
  Group g{"Two by two: the scale and the size of the start (dk 256, lr 10)", {}, 5};
  for (const auto& [scale, gain] :
       {std::pair{"inv_sqrt_dk", 1.0}, {"none", 0.25}, {"inv_sqrt_dk", 4.0}, {"none", 1.0}}) {
    RecallSetting s = setting(256, scale, 10);
    s.init_gain = gain;
    g.settings.push_back(s);
  }
  if (o.full) g.seeds = 10;
  return g;
}

Group sweep(const Options& o) {
  Group g{"Sweep: SGD", {}, 5, true};
  std::vector<std::int64_t> dks{16, 64, 256};
  std::vector<double> rates{3, 10, 30, 100};
  if (o.full) {
    g.seeds = 10;
    dks = {16, 64, 256, 1024};
    rates = {1, 3, 10, 30, 60, 100};
  }
  for (const std::int64_t dk : dks) {
    for (const char* scale : {"inv_sqrt_dk", "none"}) {
      for (const double lr : rates) g.settings.push_back(setting(dk, scale, lr));
    }
  }
  return g;
}

Group adam(const Options& o) {
  Group g{"Sweep: Adam", {}, 5, true};
  std::vector<std::int64_t> dks{64};
  std::vector<double> rates{0.01, 0.03};
  if (o.full) {
    g.seeds = 10;
    dks = {16, 64, 256};
    rates = {0.003, 0.01, 0.03, 0.1};
  }
  for (const std::int64_t dk : dks) {
    for (const char* scale : {"inv_sqrt_dk", "none"}) {
      for (const double lr : rates) {
        RecallSetting s = setting(dk, scale, lr);
        s.optimizer = "adam";
        s.steps = 1000;
        g.settings.push_back(s);
      }
    }
  }
  return g;
}

Group controls(const Options& o) {
  Group g{"Controls: small start, the exact equivalence, dk 4, T 4", {}, o.full ? 10u : 3u};
  RecallSetting small = setting(256, "none", 1);
  small.init_gain = 0.25;
  g.settings.push_back(small);
  RecallSetting scaled = setting(64, "inv_sqrt_dk", 10);
  RecallSetting same = scaled;
  same.scale = "none";
  same.init_gain = std::pow(64.0, -0.25);
  same.lr_qk = same.lr / 8;
  g.settings.insert(g.settings.end(), {scaled, same});
  for (const char* scale : {"inv_sqrt_dk", "none"}) {
    g.settings.push_back(setting(4, scale, 3));
    RecallSetting few = setting(256, scale, 10);
    few.T = 4;
    g.settings.push_back(few);
  }
  if (o.full) {
    for (const std::int64_t dk : {64, 256}) {
      g.settings.push_back(setting(dk, "dk_quarter", 10));
      for (const double lr : {10.0, 30.0, 100.0}) g.settings.push_back(setting(dk, "inv_dk", lr));
    }
  }
  return g;
}

Group remedies(const Options& o) {
  Group g{"Remedies, each at its best rate (dk 64)", {}, 3, true};
  std::vector<double> rates{3, 10, 30, 100};
  if (o.full) {
    g.seeds = 10;
    rates = {1, 3, 10, 30, 100};
  }
  for (const std::string& remedy : kRemedies) {
    for (const double lr : rates) {
      RecallSetting s = remedied(remedy, 64, lr);
      g.settings.push_back(s);
    }
  }
  return g;
}

// What more steps, or smaller ones, change: `--full` alone.
Group long_runs() {
  Group g{"Longer runs: dk 4, small rates, thousands of steps", {}, 5};
  const auto add = [&](std::int64_t dk, const char* scale, double lr, std::int64_t steps) {
    g.settings.push_back(setting(dk, scale, lr));
    g.settings.back().steps = steps;
  };
  for (const char* scale : {"inv_sqrt_dk", "none"}) {
    for (const double lr : {1.0, 3.0, 10.0}) add(4, scale, lr, 2000);
    for (const double lr : {0.1, 0.3}) add(256, scale, lr, 2000);
    add(64, scale, 10, 500);
    g.settings.back().T = 4;
  }
  add(64, "none", 3, 4000);
  for (const double lr : {3.0, 10.0}) add(256, "none", lr, 4000);
  return g;
}

// The user's own grid: the product of what was given, defaults elsewhere.
Group own(const Options& o) {
  Group g{"Your grid", {}, 5, true};
  const auto or_else = [](const auto& given, auto fallback) {
    return given.empty() ? std::move(fallback) : given;
  };
  using Words = std::vector<std::string>;
  using Numbers = std::vector<double>;
  using Sizes = std::vector<std::int64_t>;
  Words variants{""};  // "" is no remedy
  for (const std::string& remedy : o.remedies) variants.push_back(remedy);
  for (const std::int64_t dk : or_else(o.dk, Sizes{64})) {
    for (const std::int64_t T : or_else(o.T, Sizes{16})) {
      for (const std::string& optimizer : or_else(o.optimizers, Words{"sgd"})) {
        for (const std::string& remedy : variants) {
          // A remedy brings its own scale and start.
          const Words scales =
              remedy.empty() ? or_else(o.scales, Words{"inv_sqrt_dk", "none"}) : Words{""};
          for (const std::string& scale : scales) {
            for (const double gain : or_else(o.init_gains, Numbers{1})) {
              for (const double lr :
                   or_else(o.lr, optimizer == "sgd" ? Numbers{10} : Numbers{0.01})) {
                for (const double lr_qk : or_else(o.lr_qk, Numbers{lr})) {
                  RecallSetting s =
                      remedy.empty() ? setting(dk, scale.c_str(), lr) : remedied(remedy, dk, lr);
                  s.T = T;
                  s.keys = o.keys;
                  s.values = o.values;
                  s.batch = o.batch;
                  s.init_gain *= gain;
                  s.optimizer = optimizer;
                  s.lr_qk = lr_qk;
                  g.settings.push_back(s);
                }
              }
            }
          }
        }
      }
    }
  }
  return g;
}

std::vector<Group> plan(const Options& o) {
  std::vector<Group> groups;
  if (o.own_grid()) {
    groups = {own(o)};
  } else {
    groups = {two_by_two(o), sweep(o), adam(o), controls(o), remedies(o)};
    if (o.full) groups.push_back(long_runs());
  }
  for (Group& group : groups) {
    for (RecallSetting& s : group.settings) {
      if (o.steps > 0) s.steps = o.steps;
      s.eval_every = o.eval_every > 0 ? o.eval_every : (o.full ? 10 : 20);
      s.dtype = o.dtype;
    }
  }
  return groups;
}

// ---------------------------------------------------------------- rows

std::vector<Cell> named(const RecallSetting& s, const std::string& task) {
  return {task, s.dk, s.T, s.scale, s.remedy, s.init_gain, s.optimizer, s.lr, s.lr_qk};
}

void add_run(const RecallRun& run, Results& results) {
  const RecallSetting& s = run.setting;
  const auto seed = static_cast<std::int64_t>(run.seed);
  for (const RecallRun::Point& point : run.curve) {
    std::vector<Cell> row = named(s, "recall");
    row.insert(row.end(), {seed, point.step, point.loss, point.accuracy});
    results.curves.add(std::move(row));
  }
  for (std::size_t key = 0; key < run.found.size(); ++key) {
    const KeyCount& count = run.found[key];
    results.keys.add({s.dk, s.T, s.scale, s.remedy, s.init_gain, s.optimizer, s.lr, s.lr_qk,
                      s.steps, seed, static_cast<std::int64_t>(key), count.queries, count.found,
                      static_cast<double>(count.found) / static_cast<double>(count.queries)});
  }
  if (run.finite) {
    const TopKeySplit& split = run.split;
    results.ends.add({s.dk, s.T, s.scale, s.remedy, s.init_gain, s.optimizer, s.lr, s.lr_qk,
                      s.steps, seed, split.right_share, split.accuracy_right, split.accuracy_wrong,
                      split.starved_right, split.starved_wrong});
  }
}

// What the runs of one setting amount to.
struct Line {
  RecallSetting setting;
  std::vector<const RecallRun*> runs;

  // Steps to 90 % of each run, infinite where it was not there by step `last`.
  std::vector<double> steps(double last = HUGE_VAL) const {
    std::vector<double> out;
    for (const RecallRun* run : runs) {
      const double first = steps_or_infinity(*run);
      out.push_back(first <= last ? first : HUGE_VAL);
    }
    return out;
  }
  std::int64_t reached(double last = HUGE_VAL) const {
    return std::ranges::count_if(steps(last), [](double first) { return std::isfinite(first); });
  }
  double median_steps(double last = HUGE_VAL) const { return median_of(steps(last)); }
  // Mean and standard deviation over seeds of the loss at a place of the curve, and mean accuracy.
  struct At {
    double loss_mean, loss_sd, accuracy_mean;
  };
  At at(std::size_t place) const {
    std::vector<double> losses, accuracies;
    for (const RecallRun* run : runs) {
      // A run that became non-finite stays so.
      const bool there = place < run->curve.size();
      losses.push_back(there ? run->curve[place].loss : std::nan(""));
      accuracies.push_back(there ? run->curve[place].accuracy : 0);
    }
    return {mean_of(losses), sd_of(losses), mean_of(accuracies)};
  }
  // Places of the curve that the summary reports: step 100 and the end.
  std::vector<std::size_t> reported() const {
    std::vector<std::size_t> places;
    const auto& longest = (*std::ranges::max_element(runs, {}, [](const RecallRun* run) {
                            return run->curve.size();
                          }))->curve;
    for (std::size_t i = 0; i + 1 < longest.size(); ++i) {
      if (longest[i].step == 100) places.push_back(i);
    }
    places.push_back(longest.size() - 1);
    return places;
  }
};

void add_summary(const Line& line, Results& results) {
  const RecallRun& longest = **std::ranges::max_element(
      line.runs, {}, [](const RecallRun* run) { return run->curve.size(); });
  for (const std::size_t place : line.reported()) {
    const Line::At at = line.at(place);
    std::vector<Cell> row = named(line.setting, "recall");
    const std::int64_t step = longest.curve[place].step;
    const auto last = static_cast<double>(step);
    row.insert(row.end(), {static_cast<std::int64_t>(line.runs.size()), step, line.reached(last),
                           line.median_steps(last), at.loss_mean, at.loss_sd, at.accuracy_mean});
    results.summary.add(std::move(row));
  }
}

// ---------------------------------------------------------------- print

// Lines that are compared at their best rate agree in all but the rate.
bool same_line(RecallSetting a, const RecallSetting& b) {
  a.lr = b.lr;
  a.lr_qk = b.lr_qk;
  return a == b;
}

// What ends above 90 % before what does not (a rate can be fast and unstable), then the fewest
// steps to get there, then the smallest loss at the end.
bool better(const Line& a, const Line& b) {
  const auto rank = [](const Line& line) {
    const Line::At end = line.at(line.reported().back());
    return std::tuple(end.accuracy_mean < kSolved, line.median_steps(),
                      std::isnan(end.loss_mean) ? HUGE_VAL : end.loss_mean);
  };
  return rank(a) < rank(b);
}

bool is_best(const Line& line, const std::vector<Line>& among) {
  return std::ranges::none_of(among, [&](const Line& other) {
    return same_line(line.setting, other.setting) && better(other, line);
  });
}

void say_group(const Group& group, const std::vector<Line>& lines) {
  say_heading(group.heading);
  Table table({"dk", "T", "scale", "remedy", "gain", "opt", "lr", "lr Wq Wk", "reached 90 %",
               "steps (median)", "loss at 100", "loss at end", "sd", "accuracy", "best"});
  for (const Line& line : lines) {
    const RecallSetting& s = line.setting;
    const std::vector<std::size_t> places = line.reported();
    const Line::At end = line.at(places.back());
    const double steps = line.median_steps();
    table.add({s.dk, s.T, s.scale, s.remedy, s.init_gain, s.optimizer, s.lr, s.lr_qk,
               fmt::format("{}/{}", line.reached(), line.runs.size()),
               std::isfinite(steps) ? fmt::format("{}", steps) : std::string("-"),
               places.size() > 1 ? line.at(places.front()).loss_mean : std::nan(""), end.loss_mean,
               end.loss_sd, end.accuracy_mean,
               std::string(group.best && is_best(line, lines) ? "*" : "")});
  }
  fmt::print("{}", table.text());
  if (group.best) {
    fmt::print(
        "* best rate of its line: ends above 90 %, then fewest steps, then smallest loss. -: not "
        "in "
        "these steps; sd: over seeds.\n");
  }
}

// At the end of unscaled training: where the largest weight is, and what that does.
void say_ends(const Results& results) {
  if (results.ends.rows().empty()) return;
  const Table& t = results.ends;
  Table shown({"dk", "scale", "lr", "seed", "top key right", "accuracy if right",
               "accuracy if wrong", "target starved if right", "if wrong"});
  for (const auto& row : t.rows()) {
    const auto cell = [&](const char* name) { return row[t.column(name)]; };
    if (cell("dk") != Cell(std::int64_t{256}) || cell("T") != Cell(std::int64_t{16}) ||
        cell("remedy") != Cell(std::string("-")) || cell("init_gain") != Cell(1.0) ||
        cell("optimizer") != Cell(std::string("sgd")) || cell("lr") != Cell(10.0)) {
      continue;
    }
    shown.add({cell("dk"), cell("scale"), cell("lr"), cell("seed"), cell("top_key_right"),
               cell("accuracy_right"), cell("accuracy_wrong"), cell("starved_right"),
               cell("starved_wrong")});
  }
  if (shown.rows().empty()) return;
  say_heading("After training: answers by whether the largest weight is on the right key");
  fmt::print("{}NaN: there were no such samples.\n", shown.text());
}

}  // namespace

bool run_train(const Options& options, Results& results, bool say) {
  const std::vector<Group> groups = plan(options);
  // A run that two groups want is made once.
  std::vector<std::pair<RecallSetting, std::uint64_t>> jobs;
  for (const Group& group : groups) {
    for (const RecallSetting& s : group.settings) {
      for (const std::uint64_t seed : options.seeds_or(group.seeds)) {
        const std::pair job{s, seed};
        if (std::ranges::find(jobs, job) == jobs.end()) jobs.push_back(job);
      }
    }
  }
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) {
    const RecallSetting& s = jobs[i].first;
    return static_cast<double>(s.dk) * static_cast<double>(s.T) * static_cast<double>(s.steps);
  });
  std::vector<std::optional<RecallRun>> made(jobs.size());
  const bool whole =
      run_jobs(jobs.size(), {"train", options.threads, options.progress}, [&](std::size_t i) {
        const auto& job = jobs[order[i]];
        made[order[i]] = train_recall(job.first, job.second, softtape::InterruptGuard::requested);
      });

  std::vector<RecallRun> runs;
  for (std::optional<RecallRun>& run : made) {
    if (run) runs.push_back(std::move(*run));
  }
  for (const RecallRun& run : runs) add_run(run, results);
  std::vector<RecallSetting> summed;
  for (const Group& group : groups) {
    std::vector<Line> lines;
    for (const RecallSetting& s : group.settings) {
      Line line{s, {}};
      const std::vector<std::uint64_t> seeds = options.seeds_or(group.seeds);
      for (const RecallRun& run : runs) {
        if (run.setting == s && std::ranges::find(seeds, run.seed) != seeds.end()) {
          line.runs.push_back(&run);
        }
      }
      if (line.runs.empty()) continue;
      lines.push_back(line);
      if (std::ranges::find(summed, s) != summed.end()) continue;
      summed.push_back(s);
      add_summary(line, results);
    }
    if (say && !lines.empty()) say_group(group, lines);
  }
  if (say) say_ends(results);
  check_training_laws(runs, results);
  return whole;
}

}  // namespace starvation
