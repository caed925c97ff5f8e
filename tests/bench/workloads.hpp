// The workloads that tests/bench/compare measures: their sizes, their inputs, and what every
// contender can do with them.
//
//   W1  one causal head on 5 tokens, loss sum(o^2), forward and backward
//   W2  one causal head, output projection, cross entropy, Adam: a training step
//   W3  Transformer language model (pre-norm, GELU, tied head), AdamW: a training step
//   W4  causal attention of 8 heads from a given upstream gradient, forward and backward
//   W5  a chain of scalar products and sums, forward and backward; a unit is one op
//   W6  one head without mask, mean squared error, SGD: a training step
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace bench {

struct Sizes {
  std::int64_t batch = 1;   ///< sequences
  std::int64_t tokens = 1;  ///< of a sequence
  std::int64_t width = 1;   ///< of a token; W4: of a head
  std::int64_t head = 1;    ///< width of a head's queries, keys and values
  std::int64_t heads = 1;
  std::int64_t layers = 1;
  std::int64_t classes = 1;
  bool composed = false;  ///< softtape keeps the attention weights instead of fusing
};

inline Sizes sizes_of(const std::string& workload) {
  if (workload == "W1") return {.tokens = 5, .width = 8, .head = 4};
  if (workload == "W2") return {.batch = 32, .tokens = 32, .width = 64, .head = 64, .classes = 64};
  if (workload == "W3") {
    return {
        .batch = 16, .tokens = 64, .width = 64, .head = 16, .heads = 4, .layers = 2, .classes = 96};
  }
  if (workload == "W4") return {.tokens = 2048, .width = 64, .head = 64, .heads = 8};
  if (workload == "W5") return {};
  return {.tokens = 128, .width = 64, .head = 64};  // W6
}

constexpr double kAdamRate = 1e-3;
constexpr double kSgdRate = 0.1;
constexpr double kDecay = 1e-2;  // AdamW's
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEps = 1e-8;
constexpr double kNormEps = 1e-5;

// W5: x = x factor; x = x + shift.
constexpr int kPairs = 500;
constexpr int kOps = 2 * kPairs;
constexpr float kStart = 0.5f;
constexpr float kFactor = 0.999f;
constexpr float kShift = 0.001f;

/// Uniform on [-scale, scale), the same for every contender: weights have the seeds 1, 2, ... in
/// the order in which results() lists their gradients, inputs 100 and up.
inline std::vector<float> uniform(unsigned seed, std::int64_t count, float scale) {
  std::mt19937 bits(seed);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& number : x) number = scale * (static_cast<float>(bits() >> 8) * 0x1p-23f - 1);
  return x;
}

inline std::vector<std::int64_t> labels(unsigned seed, std::int64_t count, std::int64_t classes) {
  std::mt19937 bits(seed);
  std::vector<std::int64_t> x(static_cast<std::size_t>(count));
  for (std::int64_t& label : x) label = static_cast<std::int64_t>(bits()) % classes;
  return x;
}

class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  /// The work that is timed; W5: all its ops.
  virtual void run() = 0;
  /// What the last run computed: the loss (W4: the output), then the gradients of the weights.
  virtual std::vector<float> results() const = 0;
};

/// The programs one would write with Eigen and no engine (hand*.cpp).
std::unique_ptr<Workload> by_hand(const std::string& workload, const Sizes& sizes, int threads);
std::unique_ptr<Workload> with_softtape(const std::string& workload, const Sizes& sizes);

/// Runs both three times; the largest difference of what the last run computed, relative to its
/// largest number.
double disagreement(const std::string& workload, const Sizes& sizes, int threads);

}  // namespace bench
