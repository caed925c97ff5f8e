// Experiment A: associative recall learned by one attention head, step by step and as a whole run.
//
// Keys, values and the query are symbols, so X Wq is a row of Wq: q = Wq[query], k_j = Wk[key_j],
// v_j = Wv[value_j], logits = attention(q, K, V). With Wq, Wk ~ gain N(0, 1) the components of q
// and k have variance gain^2, the premise of 1/sqrt(dk).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "softtape/attention/attention.hpp"
#include "softtape/train/tasks.hpp"

namespace starvation {

/// What distinguishes one training run from another, but for its seed.
struct RecallSetting {
  std::int64_t dk = 256;
  std::int64_t T = 16;
  std::int64_t keys = 32;
  std::int64_t values = 16;
  std::int64_t batch = 32;
  std::string scale = "inv_sqrt_dk";
  std::string remedy = "-";
  double init_gain = 1;
  std::string optimizer = "sgd";
  double lr = 10;
  double lr_qk = 10;  ///< of Wq and Wk
  std::int64_t steps = 500;
  std::int64_t eval_every = 20;
  softtape::DType dtype = softtape::DType::float64;

  bool operator==(const RecallSetting&) const = default;
};

constexpr std::int64_t kEvalSamples = 1024;
constexpr double kSolved = 0.9;  ///< the accuracy of "steps to 90 %"

/// Names of Scale's forms, as in the CSV files. Throws: softtape::ValueError for an unknown one.
softtape::Scale scale_of(const std::string& name, std::int64_t dk);

/// The parameters, and the attention they make. `rng` draws Wq, Wk and Wv in this order.
class RecallModel {
 public:
  RecallModel(const RecallSetting& setting, softtape::Rng& rng);

  /// What attention sees of a batch, each a place to ask the gradient of.
  struct Looked {
    softtape::Tensor q, k, v;  ///< (B, 1, dk), (B, T, dk), (B, T, values)
    softtape::Attention attended;
    softtape::Tensor logits;  ///< (B, values)
  };
  Looked look(const softtape::RecallBatch& batch) const;

  /// The same scores from a table of all pairs of symbols, which are few: keys^2, not B T.
  softtape::Attention pairs() const;
  /// Scores, weights and logits of a batch from that table; q and k stay undefined.
  Looked look_up(const softtape::Attention& pairs, const softtape::RecallBatch& batch) const;

  struct Evaluation {
    double loss, accuracy;
    softtape::Tensor weights;  ///< (B, T)
    softtape::Tensor right;    ///< boolean (B,): the answer is right
  };
  Evaluation evaluate(const softtape::RecallBatch& batch) const;
  /// What raw scores are multiplied by at present.
  double factor_now() const;

  softtape::Tensor wq, wk, wv;
  softtape::Tensor factor;  ///< of a learned scale; undefined otherwise

 private:
  softtape::AttentionOptions options_;
};

/// How often one key symbol was asked for and found, over the evaluation samples.
struct KeyCount {
  std::int64_t queries = 0, found = 0;
};

/// Evaluation samples split by whether the largest weight lies on the right key.
struct TopKeySplit {
  double right_share = 0;
  double accuracy_right = 0, accuracy_wrong = 0;
  double starved_right = 0, starved_wrong = 0;  ///< share with |dL/ds| < 1e-6 at the target
};

struct RecallRun {
  RecallSetting setting;
  std::uint64_t seed = 0;
  struct Point {
    std::int64_t step;
    double loss, accuracy;
  };
  std::vector<Point> curve;                   ///< up to the step at which it became non-finite
  std::optional<std::int64_t> steps_to_90{};  ///< first evaluation that reached kSolved
  bool finite = true;
  std::vector<KeyCount> found;  ///< one per key symbol, at the end
  TopKeySplit split;            ///< at the end
};

/// Trains. Random streams: weights, evaluation, training = Rng(seed).spawn(3), as NumPy spawns
/// them. `stop` is asked between steps; a stopped run returns nothing.
std::optional<RecallRun> train_recall(const RecallSetting& setting, std::uint64_t seed,
                                      const std::function<bool()>& stop);

/// Statistics before the first step, over the evaluation samples; L is summed per sample.
struct RecallStart {
  double entropy, max_p, effective_keys;  ///< means over rows
  double jacobian_mean, jacobian_median;  ///< ||J||_F
  double jacobian_rms;
  double row_ds_median, target_ds_median;
  double target_starved, dead_keys, dead_keys_relative;
  double noise_scale;                ///< tr Cov / |E G|^2 of dL/d(Wq Wk^T); NaN: the signal drowns
  double grad_wq, grad_wk, grad_wv;  ///< norms of the mean gradient
  double key_norm, upstream;         ///< root mean square of ||k_j||, of ||dL/dP|| of a row
  double factor;                     ///< what raw scores are multiplied by
  double score_std;                  ///< of scaled scores, within rows
};
RecallStart recall_start(const RecallSetting& setting, std::uint64_t seed);

}  // namespace starvation
