// Made-up numbers, shaped like those of a run: what the report is tested with. They measure
// nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "results.hpp"
#include "softtape/ops/create.hpp"

namespace made_up {

using softtape::Cell;

/// A number between 0 and 1 that depends on everything given.
inline double noise(double a, double b = 0, double c = 0) {
  const double x = std::sin(12.9898 * a + 78.233 * b + 37.719 * c) * 43758.5453;
  return x - std::floor(x);
}

struct Run {
  std::string scale = "inv_sqrt_dk", remedy = "-", optimizer = "sgd";
  double dk = 64, T = 16, gain = 1, lr = 10;
};

/// A run that learns after about `half` steps, or one that creeps when that is infinite.
inline void add_run(starvation::Results& results, const Run& run, double half, int seeds = 3) {
  constexpr std::int64_t last = 500;
  std::vector<double> losses, firsts;
  double accuracy_sum = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const double jitter = 0.8 + 0.4 * noise(seed, run.lr, run.dk);
    double first = std::numeric_limits<double>::infinity(), loss = 0, accuracy = 0;
    for (std::int64_t step = 0; step <= last; step += 20) {
      const auto s = static_cast<double>(step);
      if (std::isfinite(half)) {
        const double known = 1 / (1 + std::exp(-(s - half * jitter) / (0.2 * half)));
        accuracy = 0.0625 + 0.9375 * known;
        loss = 2.77 * (1 - known) + 0.003;
      } else {
        accuracy = 0.0625 + 0.45 * jitter * (1 - std::exp(-s / 200));
        loss = 2.77 - 0.7 * jitter * (1 - std::exp(-s / 200));
      }
      if (accuracy >= 0.9) first = std::min(first, s);
      results.curves.add({"recall", std::int64_t(run.dk), std::int64_t(run.T), run.scale,
                          run.remedy, run.gain, run.optimizer, run.lr, run.lr, std::int64_t(seed),
                          step, loss, accuracy});
    }
    losses.push_back(loss);
    firsts.push_back(first);
    accuracy_sum += accuracy;
  }
  std::sort(firsts.begin(), firsts.end());
  double mean = 0;
  for (const double loss : losses) mean += loss / seeds;
  const auto reached = std::count_if(firsts.begin(), firsts.end(),
                                     [](double first) { return std::isfinite(first); });
  results.summary.add({"recall", std::int64_t(run.dk), std::int64_t(run.T), run.scale, run.remedy,
                       run.gain, run.optimizer, run.lr, run.lr, std::int64_t(seeds), last,
                       std::int64_t(reached), firsts[firsts.size() / 2], mean, 0.01,
                       accuracy_sum / seeds});
}

inline void add_training(starvation::Results& results) {
  const double never = std::numeric_limits<double>::infinity();
  add_run(results, {.scale = "inv_sqrt_dk", .dk = 256, .gain = 4}, never, 5);
  add_run(results, {.scale = "none", .dk = 256, .gain = 0.25}, 15, 5);
  for (const double dk : {16., 64., 256.}) {
    for (const double lr : {3., 10., 30., 100.}) {
      add_run(results, {.scale = "inv_sqrt_dk", .dk = dk, .lr = lr}, 600 / lr, 5);
      add_run(results, {.scale = "none", .dk = dk, .lr = lr},
              dk == 16 && lr < 30 ? 900 / lr : never, 5);
    }
  }
  for (const double lr : {0.01, 0.03}) {
    add_run(results, {.scale = "inv_sqrt_dk", .optimizer = "adam", .lr = lr}, 1.4 / lr, 5);
    add_run(results, {.scale = "none", .optimizer = "adam", .lr = lr}, never, 5);
  }
  for (const std::string remedy : {"qk_norm", "soft_cap"}) {
    add_run(results, {.scale = "inv_sqrt_dk", .remedy = remedy, .lr = 10}, 60);
    add_run(results, {.scale = "inv_sqrt_dk", .remedy = remedy, .lr = 30}, 25);
  }
  for (const std::string scale : {"learned", "inv_dk"}) {
    add_run(results, {.scale = scale, .lr = 30}, scale == "inv_dk" ? 110 : 40);
  }
  add_run(results, {.scale = "none", .remedy = "small_init", .gain = 0.35, .lr = 3}, 60);
  for (const std::string scale : {"inv_sqrt_dk", "none"}) {
    add_run(results, {.scale = scale, .dk = 256, .T = 4}, 60);  // the two-by-two has 16 keys
  }
  add_run(results, {.scale = "inv_sqrt_dk", .dk = 4, .lr = 3}, 330);
  add_run(results, {.scale = "none", .dk = 4, .lr = 3}, 250);
}

inline void add_start(starvation::Results& results) {
  for (const double T : {2., 16., 128.}) {
    for (const double dk : {4., 16., 64., 256., 1024.}) {
      for (const std::string scale : {"inv_sqrt_dk", "none"}) {
        for (int seed = 0; seed < 3; ++seed) {
          const double jitter = 0.9 + 0.2 * noise(T, dk, seed);
          const double over = scale == "none" ? std::sqrt(dk) / std::sqrt(2 * std::log(T)) : 0.3;
          const double dead = over < 1 ? 0.0002 : jitter * (1 - 1 / over) * 0.95;
          const double mean = scale == "none" ? 1.2 * jitter / (over + 1) : 0.3 * jitter;
          const double rare = scale == "none" ? mean * std::exp(-over) : mean;
          results.init.add({std::int64_t(dk), std::int64_t(T), scale, 1.0, std::int64_t(seed),
                            2.4 / (1 + over), std::min(0.99, 0.25 * (1 + over)), 8 / (1 + over),
                            mean, rare, rare / 5, rare * rare / 50, dead, dead, dead * 0.9,
                            500 * (1 + over * over), 0.0024 * std::sqrt(scale == "none" ? dk : 1.),
                            0.0024 * std::sqrt(scale == "none" ? dk : 1.), 0.02});
          const double c = scale == "none" ? 1 : 1 / std::sqrt(dk);
          results.attribution.add({std::int64_t(dk), std::int64_t(T), scale, 1.0,
                                   std::int64_t(seed), c, mean, 2.0, 1.0, 2 * c * mean, 0.0024 * c,
                                   c * std::sqrt(dk)});
        }
      }
    }
  }
}

inline void add_heat_maps(starvation::Results& results) {
  constexpr std::int64_t T = 16;
  for (const std::string scale : {"inv_sqrt_dk", "none"}) {
    std::vector<double> weights, gweights, gscores;
    std::vector<bool> hidden;
    for (std::int64_t i = 0; i < T; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < T; ++j) {
        const double z = std::exp((scale == "none" ? 16 : 1) * 2 * noise(double(i), double(j)));
        weights.push_back(j <= i ? z : 0);
        sum += weights.back();
        gweights.push_back(noise(double(j), double(i)) - 0.5);
        hidden.push_back(j > i);
      }
      for (std::int64_t j = 0; j < T; ++j) {
        double& p = weights[static_cast<std::size_t>(i * T + j)];
        p /= sum;
        gscores.push_back(p * (1 - p) * gweights[static_cast<std::size_t>(i * T + j)]);
      }
    }
    const softtape::TensorOptions options{.dtype = softtape::DType::float64};
    results.heat_maps.push_back({scale, softtape::tensor(weights, {T, T}, options),
                                 softtape::tensor(gweights, {T, T}, options),
                                 softtape::tensor(gscores, {T, T}, options),
                                 softtape::tensor(hidden, {T, T})});
  }
}

inline void add_keys(starvation::Results& results) {
  for (const double dk : {16., 64., 256.}) {
    for (const std::string scale : {"inv_sqrt_dk", "none"}) {
      for (int seed = 0; seed < 3; ++seed) {
        const double right = scale == "none" ? 0.5 : 1;
        results.ends.add({std::int64_t(dk), std::int64_t(16), scale, "-", 1.0, "sgd", 10.0, 10.0,
                          std::int64_t(500), std::int64_t(seed), right, 1.0,
                          right < 1 ? 0.07 : std::nan(""), 0.4, right < 1 ? 0.9 : std::nan("")});
        for (int key = 0; key < 32; ++key) {
          const double u = noise(dk, seed, key);
          const double share = scale == "none" ? (u < 0.4 ? 0.05 * u : std::min(1., u + 0.3)) : 1.0;
          results.keys.add({std::int64_t(dk), std::int64_t(16), scale, "-", 1.0, "sgd", 10.0, 10.0,
                            std::int64_t(500), std::int64_t(seed), std::int64_t(key),
                            std::int64_t(32), std::int64_t(std::lround(share * 32)), share});
        }
      }
    }
  }
}

inline void add_text(starvation::Results& results) {
  for (const std::string scale : {"inv_sqrt_dk", "none"}) {
    for (int seed = 0; seed < 3; ++seed) {
      for (std::int64_t step = 0; step <= 500; step += 50) {
        const double left = std::exp(-static_cast<double>(step) / 100);
        const double end = scale == "none" ? 2.92 : 2.72;
        results.text.add({std::int64_t(64), scale, "adam", 0.003, std::int64_t(seed), step,
                          end + (4.33 - end) * left + 0.05 * noise(seed, double(step)),
                          scale == "none" ? 0.4 * left + 0.07 : 1.25 + 0.8 * left, ""});
      }
    }
  }
  for (const auto& [name, loss] :
       {std::pair{"uniform", 4.331}, {"unigram", 3.514}, {"bigram", 2.732}}) {
    results.text.add({std::int64_t(64), "-", "-", 0.0, std::int64_t(0), std::int64_t(-1), loss, 0.0,
                      std::string(name)});
  }
}

inline starvation::Results results() {
  starvation::Results all;
  all.lesson.add({"weight of the winner", 8.0, 0.0, 0.99966464987, 0.99966464987});
  all.lesson.add({"p(1 - p)", 8.0, 0.0, 3.352376707565e-4, 3.352376707565e-4});
  all.lesson.add({"p(1 - p)", 1.0, 0.0, 0.1966119332415, 0.1966119332415});
  all.lesson.add({"p(1 - p)", 2.0, 0.0, 0.104993585404, 0.104993585404});
  all.lesson.add({"Var(q.k) / d_k", 0.0, 0.0, 1.002, 1.0});
  add_start(all);
  add_training(all);
  add_heat_maps(all);
  add_keys(all);
  add_text(all);
  all.laws.push_back({"P1", "scaled, rate 10: all seeds reach 90 %, median 50 to 100 steps",
                      "made up, measured nothing", true});
  all.laws.push_back({"P6", "|dL/dWq| unscaled / scaled between 5 and 20", "16", false});
  all.run = {{"data", "made up for a test; measures nothing"}, {"text", "<it's> & \"quoted\".txt"}};
  all.command = "starvation --text '<it'\\''s> & \"quoted\".txt'";
  return all;
}

}  // namespace made_up
