// A 2-layer character model under the Trainer, on CharText, against PyTorch: same text, weights
// and batches (golden/charlm_golden.py). The loop by hand is in nn/golden_test.cpp.
#include <doctest/doctest.h>

#include <string>

#include "golden/charlm_golden.hpp"
#include "softtape/nn/embedding.hpp"
#include "softtape/nn/norm.hpp"
#include "softtape/nn/positions.hpp"
#include "softtape/nn/transformer_block.hpp"
#include "softtape/train/char_text.hpp"
#include "support/leak_guard.hpp"
#include "train/support.hpp"

using namespace softtape;

TEST_CASE("golden: the Trainer's loss curve of a 2-layer character model equals PyTorch's") {
  const test_support::LeakGuard leaks;
  const DefaultDtype guard(DType::float64);
  constexpr std::int64_t kVocab = 11, kWidth = 8, kContext = 6;
  Rng rng(2024);
  std::string letters;
  for (const auto id : randint(rng, 0, kVocab, {200}).to_vector<std::int64_t>()) {
    letters += static_cast<char>('a' + id);
  }
  const auto text = CharText::from_string(letters, {.context = kContext, .validation = 0});
  REQUIRE(text.vocab() == kVocab);

  const TransformerBlockOptions causal{.attention = {.mask = Mask::causal()}};
  Sequential model;
  Rng start(0);
  model.emplace<Embedding>(kVocab, kWidth, start);
  model.emplace<LearnedPositions>(kContext, kWidth, start);
  model.emplace<TransformerBlock>(kWidth, 2, causal, start);
  model.emplace<TransformerBlock>(kWidth, 2, causal, start);
  model.emplace<LayerNorm>(kWidth);
  model.emplace<Linear>(kWidth, kVocab, start);
  {
    const NoGrad constant;
    for (auto [name, parameter] : model.named_parameters()) {
      parameter.copy_(normal(rng, 0, 0.3, parameter.shape()));
    }
  }

  AdamW optimizer(model, {.lr = 1e-2, .weight_decay = 0.1});
  Trainer trainer(
      optimizer,
      [&](std::int64_t) {
        auto [x, y] = text.batch(4, rng);
        return cross_entropy(model(x), y);
      },
      {.steps = 20, .parts = {{"model", model}, {"rng", rng}}, .progress = {.enabled = false}});
  trainer.run();
  const auto losses = trainer.history().values("loss");
  REQUIRE(losses.size() == golden::charlm::losses.size());
  CHECK_NUMBERS(tensor(losses), tensor(golden::charlm::losses), 1e-10);
}
