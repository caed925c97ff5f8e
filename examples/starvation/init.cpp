// Part 2: before the first step. What starves is measured per key and per row; the norms of the
// weight gradients stand beside it, because they say the opposite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jobs.hpp"
#include "output.hpp"
#include "parts.hpp"
#include "recall.hpp"
#include "statistics.hpp"

namespace starvation {

using softtape::Table;

namespace {

struct Start {
  RecallSetting setting;
  std::uint64_t seed;
  RecallStart found;
};

std::vector<RecallSetting> default_settings(bool full) {
  std::vector<RecallSetting> out;
  const auto add = [&](std::int64_t dk, std::int64_t T, const char* scale, double gain) {
    RecallSetting s;
    s.dk = dk;
    s.T = T;
    s.scale = scale;
    s.init_gain = gain;
    out.push_back(s);
  };
  for (const char* scale : {"inv_sqrt_dk", "none"}) {
    for (const std::int64_t dk : {4, 16, 64, 256, 1024}) add(dk, 16, scale, 1);
    for (const std::int64_t dk : {16, 64, 256}) add(dk, 4, scale, 1);
    if (full) {
      for (const std::int64_t dk : {4, 16, 64, 256}) {
        add(dk, 2, scale, 1);
        add(dk, 32, scale, 1);
      }
    }
  }
  for (const std::int64_t dk : {16, 64, 256}) {
    for (const char* scale : {"inv_dk", "dk_quarter"}) add(dk, 16, scale, 1);
    add(dk, 16, "none", std::pow(static_cast<double>(dk), -0.25));
  }
  add(256, 16, "inv_sqrt_dk", 4);
  return out;
}

std::vector<RecallSetting> settings_of(const Options& o) {
  if (!o.own_grid()) return default_settings(o.full);
  std::vector<RecallSetting> out;
  for (const auto dk : o.dk.empty() ? std::vector<std::int64_t>{16, 64, 256} : o.dk) {
    for (const auto T : o.T.empty() ? std::vector<std::int64_t>{16} : o.T) {
      for (const auto& scale :
           o.scales.empty() ? std::vector<std::string>{"inv_sqrt_dk", "none"} : o.scales) {
        for (const double gain : o.init_gains.empty() ? std::vector<double>{1} : o.init_gains) {
          RecallSetting s;
          s.dk = dk;
          s.T = T;
          s.keys = o.keys;
          s.values = o.values;
          s.scale = scale;
          s.init_gain = gain;
          out.push_back(s);
        }
      }
    }
  }
  return out;
}

void add_rows(const Start& start, Results& results) {
  const RecallSetting& s = start.setting;
  const RecallStart& f = start.found;
  const auto seed = static_cast<std::int64_t>(start.seed);
  results.init.add({s.dk, s.T, s.scale, s.init_gain, seed, f.entropy, f.max_p, f.effective_keys,
                    f.jacobian_mean, f.jacobian_median, f.row_ds_median, f.target_ds_median,
                    f.target_starved, f.dead_keys, f.dead_keys_relative, f.noise_scale, f.grad_wq,
                    f.grad_wk, f.grad_wv});
  const double product = f.factor * f.jacobian_rms * f.key_norm * f.upstream;
  results.attribution.add({s.dk, s.T, s.scale, s.init_gain, seed, f.factor, f.jacobian_rms,
                           f.key_norm, f.upstream, product, f.grad_wq, f.score_std});
}

// The mean over seeds of one number of each start of a setting.
double mean_over(const std::vector<Start>& starts, const RecallSetting& setting,
                 double RecallStart::*number) {
  double total = 0;
  int count = 0;
  for (const Start& start : starts) {
    if (!(start.setting == setting) || std::isnan(start.found.*number)) continue;
    total += start.found.*number;
    ++count;
  }
  return count == 0 ? std::nan("") : total / count;
}

void say_table(const std::vector<RecallSetting>& settings, const std::vector<Start>& starts) {
  Table table({"dk", "T", "scale", "gain", "std(s)", "entropy", "max p", "|J| mean", "predicted",
               "|J| median", "|ds| row med", "|ds| target med", "target<1e-6", "dead keys",
               "dead rel", "noise", "|dWq|", "|dWk|", "|dWv|"});
  for (const RecallSetting& s : settings) {
    const auto of = [&](double RecallStart::*number) { return mean_over(starts, s, number); };
    const auto dk = static_cast<double>(s.dk), T = static_cast<double>(s.T);
    std::string predicted = "-";
    if (s.scale == "none" && s.init_gain == 1 && limit_holds(dk, T)) {
      predicted = fmt::format("{:.4g}", top_gap_density(T) / std::sqrt(dk));
    }
    table.add({s.dk, s.T, s.scale, s.init_gain, of(&RecallStart::score_std),
               of(&RecallStart::entropy), of(&RecallStart::max_p), of(&RecallStart::jacobian_mean),
               predicted, of(&RecallStart::jacobian_median), of(&RecallStart::row_ds_median),
               of(&RecallStart::target_ds_median), of(&RecallStart::target_starved),
               of(&RecallStart::dead_keys), of(&RecallStart::dead_keys_relative),
               of(&RecallStart::noise_scale), of(&RecallStart::grad_wq), of(&RecallStart::grad_wk),
               of(&RecallStart::grad_wv)});
  }
  fmt::print("{}", table.text());
  fmt::print(
      "\nMeans over seeds; gain: factor on Wq, Wk; s: scores; p: weights; |J|: norm of the softmax "
      "Jacobian, predicted f_T/sqrt(dk)\nwhere that holds; |ds|: dL/ds, of a row and at the right "
      "key; dead: |dL/ds| < 1e-6, L summed per sample; rel: below 1e-6 "
      "of the row's upstream.\nnoise: tr Cov / |E G|^2 of dL/d(Wq Wk^T), over seeds where the "
      "signal does "
      "not drown in it.\n");
}

// Why ||dL/dWq|| grows, in the factors of dq = c J g k.
void say_attribution(const std::vector<RecallSetting>& settings, const std::vector<Start>& starts) {
  for (const RecallSetting& scaled : settings) {
    if (scaled.scale != "inv_sqrt_dk" || scaled.init_gain != 1 || scaled.T < 3) continue;
    RecallSetting unscaled = scaled;
    unscaled.scale = "none";
    if (std::find(settings.begin(), settings.end(), unscaled) == settings.end()) continue;
    const auto ratio = [&](double RecallStart::*number) {
      return mean_over(starts, unscaled, number) / mean_over(starts, scaled, number);
    };
    fmt::print(
        "dk {:4}, T {:2}: |dL/dWq| is {:.3g} times {} without the scale: factor x{:.3g}, Jacobian "
        "(rms) x{:.2g}, keys x{:.2g}, upstream x{:.2g}\n",
        scaled.dk, scaled.T, ratio(&RecallStart::grad_wq),
        ratio(&RecallStart::grad_wq) > 1 ? "LARGER" : "as large", ratio(&RecallStart::factor),
        ratio(&RecallStart::jacobian_rms), ratio(&RecallStart::key_norm),
        ratio(&RecallStart::upstream));
  }
  fmt::print(
      "The factor 1 instead of 1/sqrt(dk) outweighs what softmax takes away on average: a few "
      "nearly tied rows carry\nthe whole gradient, while most keys, and most targets, get none. So "
      "the norm of dL/dWq does not show starvation.\n");
}

}  // namespace

bool run_init(const Options& options, Results& results, bool say) {
  const std::vector<RecallSetting> settings = settings_of(options);
  std::vector<Start> starts;
  for (const RecallSetting& setting : settings) {
    for (const std::uint64_t seed : options.seeds_or(options.full ? 10 : 5)) {
      starts.push_back({setting, seed, {}});
      starts.back().setting.dtype = options.dtype;
    }
  }
  std::vector<char> done(starts.size(), 0);
  // The widest first, so that no thread is left alone with one at the end.
  std::vector<std::size_t> order(starts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return starts[a].setting.dk * starts[a].setting.T > starts[b].setting.dk * starts[b].setting.T;
  });
  const bool whole =
      run_jobs(starts.size(), {"init", options.threads, options.progress}, [&](std::size_t i) {
        Start& start = starts[order[i]];
        start.found = recall_start(start.setting, start.seed);
        done[order[i]] = 1;
      });
  std::vector<Start> finished;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (!done[i]) continue;
    starts[i].setting.dtype = RecallSetting{}.dtype;  // one table holds one type
    finished.push_back(starts[i]);
    add_rows(starts[i], results);
  }
  if (say && !finished.empty()) {
    say_heading("Before the first step: what starves, and what does not");
    say_table(settings, finished);
    fmt::print("\n");
    say_attribution(settings, finished);
  }
  return whole;
}

}  // namespace starvation
