// What the command line of `train_attention` says.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace train_attention {

struct Options {
  // Data.
  std::string task = "recall";  ///< recall, copy, induction or text
  std::string text;             ///< a UTF-8 file
  std::int64_t length = 8;      ///< of a sample of a generated task
  std::int64_t keys = 32;
  std::int64_t values = 16;
  std::int64_t vocab = 32;
  std::int64_t context = 32;  ///< characters of a text window
  double validation = 0.1;

  // Model.
  std::int64_t layers = 1;
  std::int64_t heads = 1;
  std::int64_t d_model = 64;
  std::int64_t dk = 0;  ///< of a head; 0: d_model / heads
  std::int64_t dv = 0;
  std::int64_t mlp = 0;  ///< hidden width; 0: 4 d_model
  std::string scale = "inv_sqrt_dk";
  std::string mask = "causal";
  std::int64_t window = 8;
  std::string positions = "learned";
  std::string norm = "pre";
  double dropout = 0;

  // Training.
  std::string optimizer = "adamw";
  double lr = 3e-3;
  double momentum = 0;
  double weight_decay = 0;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double clip = std::numeric_limits<double>::infinity();
  std::int64_t batch = 32;
  std::int64_t steps = 500;
  std::int64_t accumulate = 1;
  std::int64_t eval_every = 50;
  std::int64_t eval_samples = 256;
  std::int64_t probe_every = 0;  ///< 0: no probes
  std::int64_t patience = 0;
  std::int64_t checkpoint_every = 0;
  std::uint64_t seed = 0;
  std::string dtype = "float32";
  int threads = 0;  ///< 0: as many as the machine has
  std::string resume;

  // Text from the model.
  std::int64_t generate = 0;
  std::string prompt;
  double temperature = 1;
  std::int64_t top_k = 0;

  // Output.
  std::string out = "out/train_attention";
  bool force = false;
  std::string format = "text";
  bool quiet = false;
  bool progress = true;
  bool figures = true;
};

struct Parsed {
  Options options;
  std::string text;  ///< every option and its value, as a configuration file
  int exit = -1;     ///< what to end with at once; -1: go on
};

/// Prints help, version or one line on what is wrong itself.
Parsed parse(int argc, char** argv);

}  // namespace train_attention
