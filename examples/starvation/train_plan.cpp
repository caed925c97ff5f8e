// The grids of the training part: the two-by-two, the sweeps, controls, remedies, longer runs.
#include "train_plan.hpp"

#include <cmath>
#include <utility>

namespace starvation {
namespace {

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

}  // namespace

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

}  // namespace starvation
