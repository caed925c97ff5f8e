// Part 3: training on associative recall. How runs are made, summed up and printed.
// train_plan.cpp says which.
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
#include "train_plan.hpp"

namespace starvation {

using softtape::Cell;
using softtape::Table;

namespace {

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
