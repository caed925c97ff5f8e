// What the parts of `starvation` leave: tables with the columns of their CSV files, and what the
// report draws besides.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "softtape/graph/tensor.hpp"
#include "softtape/io/table.hpp"

namespace starvation {

/// One check of a stated result, of the settings that ran.
struct Law {
  std::string id;        ///< "P1" to "P13"
  std::string claim;     ///< in words, with the accepted range
  std::string measured;  ///< what this run gave
  bool holds;
};

/// One sequence of the retrieval task looked at from every query, at initialisation.
struct HeatMaps {
  std::string scale;          ///< "inv_sqrt_dk" or "none"
  softtape::Tensor weights;   ///< P (T, T)
  softtape::Tensor gweights;  ///< dL/dP (T, T); hidden cells mean nothing
  softtape::Tensor gscores;   ///< dL/dS (T, T)
  softtape::Tensor hidden;    ///< boolean (T, T), true where the mask hides
};

struct Results {
  softtape::Table lesson{{"quantity", "winner_score", "loser_score", "value", "expected"}};
  softtape::Table init{{"dk", "T", "scale", "init_gain", "seed", "entropy", "max_p",
                        "effective_keys", "jacobian_mean", "jacobian_median", "row_ds_median",
                        "target_ds_median", "target_starved", "dead_keys", "dead_keys_relative",
                        "noise_scale", "grad_wq", "grad_wk", "grad_wv"}};
  softtape::Table curves{{"task", "dk", "T", "scale", "remedy", "init_gain", "optimizer", "lr",
                          "lr_qk", "seed", "step", "loss", "accuracy"}};
  softtape::Table summary{{"task", "dk", "T", "scale", "remedy", "init_gain", "optimizer", "lr",
                           "lr_qk", "seeds", "step", "reached_90", "steps_to_90_median",
                           "loss_mean", "loss_sd", "accuracy_mean"}};
  /// How often each key symbol is found at the end of training.
  softtape::Table keys{{"dk", "T", "scale", "remedy", "init_gain", "optimizer", "lr", "lr_qk",
                        "steps", "seed", "key", "queries", "found", "found_share"}};
  /// Losses on the validation windows, nats per character. A row with a `reference` ("uniform",
  /// "unigram", "bigram") is no run: its step and seed are -1.
  softtape::Table text{
      {"dk", "scale", "optimizer", "lr", "seed", "step", "loss", "entropy", "reference"}};
  /// Why ||dL/dWq|| is larger without the scale: the factors it is made of, root mean squares over
  /// rows, before the first step. product = factor jacobian_rms key_norm upstream.
  softtape::Table attribution{{"dk", "T", "scale", "init_gain", "seed", "factor", "jacobian_rms",
                               "key_norm", "upstream", "product", "grad_wq", "score_std"}};
  /// The end of training, evaluation samples split by whether the largest weight is on the right
  /// key.
  softtape::Table ends{{"dk", "T", "scale", "remedy", "init_gain", "optimizer", "lr", "lr_qk",
                        "steps", "seed", "top_key_right", "accuracy_right", "accuracy_wrong",
                        "starved_right", "starved_wrong"}};
  std::vector<HeatMaps> heat_maps;
  std::vector<Law> laws;
  /// Name and value of every option, in order; then version, processor, wall time and the like.
  std::vector<std::pair<std::string, std::string>> run;
  std::string command;  ///< reproduces this run
  bool interrupted = false;
};

}  // namespace starvation
