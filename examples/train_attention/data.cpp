// The tasks as sequences of tokens. Recall needs an embedding of its own: a token is a pair.
#include "data.hpp"

#include <algorithm>
#include <cmath>

#include "softtape/nn/embedding.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"

namespace train_attention {

using namespace softtape;

namespace {

constexpr double kEmbeddingStd = 0.5;

std::function<std::unique_ptr<Layer>(std::int64_t, Rng&)> plain_embedding(std::int64_t vocab) {
  return [vocab](std::int64_t d, Rng& rng) {
    return std::make_unique<Embedding>(vocab, d, EmbeddingOptions{.std = kEmbeddingStd}, rng);
  };
}

// A token is key * (values + 1) + value, where value = values means "none": the question. Its
// vector is the key's plus the value's.
class PairEmbedding final : public Layer {
 public:
  PairEmbedding(std::int64_t keys, std::int64_t values, std::int64_t d, Rng& rng)
      : values_(values),
        key_(keys, d, {.std = kEmbeddingStd}, rng),
        value_(values + 1, d, {.std = kEmbeddingStd}, rng) {
    register_module("key", key_);
    register_module("value", value_);
  }
  Tensor operator()(TensorArg ids) const override {
    auto keys = ids->to_vector<std::int64_t>();
    auto values = keys;
    for (std::int64_t& id : keys) id /= values_ + 1;
    for (std::int64_t& id : values) id %= values_ + 1;
    return hooked(add(key_(tensor(keys, ids->shape())), value_(tensor(values, ids->shape()))));
  }

 private:
  std::int64_t values_;
  Embedding key_;
  Embedding value_;
};

// T pairs, then the question; the answer is wanted there alone.
TokenBatch recall_tokens(const RecallTask& task, std::int64_t batch, Rng& rng) {
  const RecallBatch sample = task.sample(batch, rng);
  const std::int64_t length = task.options().length;
  const std::int64_t none = task.options().values;
  const auto keys = sample.keys.data<std::int64_t>();
  const auto values = sample.values.data<std::int64_t>();
  std::vector<std::int64_t> x, y;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch); ++i) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(length); ++j) {
      const std::size_t at = i * static_cast<std::size_t>(length) + j;
      x.push_back(keys[at] * (none + 1) + values[at]);
      y.push_back(kIgnore);
    }
    x.push_back(sample.query.data<std::int64_t>()[i] * (none + 1) + none);
    y.push_back(sample.target.data<std::int64_t>()[i]);
  }
  const Shape shape{batch, length + 1};
  return {tensor(x, shape), tensor(y, shape)};
}

Data recall_data(const Options& o) {
  const RecallTask task({.length = o.length, .keys = o.keys, .values = o.values});
  Data data;
  data.sample = [task](std::int64_t batch, Rng& rng) { return recall_tokens(task, batch, rng); };
  data.embedding = [keys = o.keys, values = o.values](std::int64_t d, Rng& rng) {
    return std::make_unique<PairEmbedding>(keys, values, d, rng);
  };
  data.classes = o.values;
  data.context = o.length + 1;
  return data;
}

// CopyTask and InductionTask.
template <class Task>
Data token_data(const Task& task) {
  Data data;
  data.sample = [task](std::int64_t batch, Rng& rng) { return task.sample(batch, rng); };
  data.embedding = plain_embedding(task.vocab());
  data.classes = task.vocab();
  data.context = task.context();
  return data;
}

Data text_data(const Options& o) {
  Data data;
  const auto text = CharText::from_file(o.text, {.context = o.context, .validation = o.validation});
  data.sample = [text](std::int64_t batch, Rng& rng) { return text.batch(batch, rng); };
  data.embedding = plain_embedding(text.vocab());
  data.classes = text.vocab();
  data.context = text.context();
  const std::int64_t windows = text.size() - text.train_size() - text.context();
  data.held_out = text.validation(std::clamp<std::int64_t>(windows, 1, o.eval_samples));
  data.references = {{"unigram", text.unigram_loss(data.held_out)},
                     {"bigram", text.bigram_loss(data.held_out)}};
  data.text = text;
  return data;
}

}  // namespace

Data make_data(const Options& o, Rng& evaluation) {
  Data data = o.task == "text"     ? text_data(o)
              : o.task == "recall" ? recall_data(o)
              : o.task == "copy"
                  ? token_data(CopyTask({.length = o.length, .vocab = o.vocab}))
                  : token_data(InductionTask({.length = o.length, .vocab = o.vocab}));
  if (!data.held_out.x.defined()) data.held_out = data.sample(o.eval_samples, evaluation);
  data.references.insert(data.references.begin(),
                         {"uniform", std::log(static_cast<double>(data.classes))});
  return data;
}

}  // namespace train_attention
