// The generated tasks. The order of draws is a promise: see tasks.hpp.
#include "softtape/train/tasks.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "softtape/ops/create.hpp"
#include "train/checks.hpp"

namespace softtape {
namespace {

using detail::require_size;

Tensor ids(const Shape& shape) { return empty(shape, {.dtype = DType::int64}); }

// Row i of a (B, T) tensor that is being filled.
std::span<std::int64_t> row(Tensor& x, std::int64_t i) {
  const auto width = static_cast<std::size_t>(x.dim(-1));
  return x.mutable_data<std::int64_t>().subspan(static_cast<std::size_t>(i) * width, width);
}

// The first numbers of a permutation of 0 ... n - 1.
void fill_distinct(std::span<std::int64_t> into, std::int64_t n, Rng& rng) {
  std::copy_n(rng.permutation(n).begin(), into.size(), into.begin());
}

}  // namespace

RecallTask::RecallTask(RecallOptions options) : options_(options) {
  require_size("RecallTask", "length", options.length);
  require_size("RecallTask", "keys", options.keys);
  require_size("RecallTask", "values", options.values);
  if (options.length > options.keys) {
    throw ValueError(fmt::format(
        "[RecallTask] the keys of a sample are distinct, so there must be as many: length = {}, "
        "keys = {}; raise keys or shorten the sample",
        options.length, options.keys));
  }
}

RecallBatch RecallTask::sample(std::int64_t batch, Rng& rng) const {
  require_size("RecallTask", "batch", batch);
  const auto& [length, n_keys, n_values] = options_;
  RecallBatch out{ids({batch, length}), ids({batch, length}), ids({batch}), ids({batch}),
                  ids({batch})};
  const auto slots = out.slot.mutable_data<std::int64_t>();
  const auto queries = out.query.mutable_data<std::int64_t>();
  const auto targets = out.target.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto keys = row(out.keys, i);
    const auto values = row(out.values, i);
    fill_distinct(keys, n_keys, rng);
    rng.integers(values, 0, n_values);
    const auto slot = static_cast<std::size_t>(rng.integers(0, length));
    const auto at = static_cast<std::size_t>(i);
    slots[at] = static_cast<std::int64_t>(slot);
    queries[at] = keys[slot];
    targets[at] = values[slot];
  }
  return out;
}

CopyTask::CopyTask(CopyOptions options) : options_(options) {
  require_size("CopyTask", "length", options.length);
  require_size("CopyTask", "vocab", options.vocab);
}

TokenBatch CopyTask::sample(std::int64_t batch, Rng& rng) const {
  require_size("CopyTask", "batch", batch);
  const auto n = static_cast<std::size_t>(options_.length);
  TokenBatch out{ids({batch, context()}), ids({batch, context()})};
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto x = row(out.x, i);
    const auto y = row(out.y, i);
    rng.integers(y.last(n), 0, options_.vocab);
    std::fill_n(y.begin(), n, kIgnore);
    std::copy_n(y.last(n).begin(), n, x.begin());
    x[n] = options_.vocab;  // the separator
    std::copy_n(y.last(n).begin(), n - 1, x.begin() + static_cast<std::ptrdiff_t>(n + 1));
  }
  return out;
}

InductionTask::InductionTask(InductionOptions options) : options_(options) {
  detail::require_least("InductionTask", "a block needs two tokens to have a successor", "length",
                        options.length, 2);
  if (options.vocab / 4 < options.length) {
    throw ValueError(fmt::format(
        "[InductionTask] vocab must be at least 4 length, or avoiding tokens seen twice pays "
        "nearly as well as copying and heads learn that: vocab = {}, length = {}",
        options.vocab, options.length));
  }
}

TokenBatch InductionTask::sample(std::int64_t batch, Rng& rng) const {
  require_size("InductionTask", "batch", batch);
  const auto n = static_cast<std::size_t>(options_.length);
  std::vector<std::int64_t> twice(2 * n);
  TokenBatch out{ids({batch, context()}), ids({batch, context()})};
  for (std::int64_t i = 0; i < batch; ++i) {
    fill_distinct(std::span(twice).first(n), options_.vocab, rng);
    std::copy_n(twice.begin(), n, twice.begin() + static_cast<std::ptrdiff_t>(n));
    std::copy_n(twice.begin(), 2 * n - 1, row(out.x, i).begin());
    const auto y = row(out.y, i);
    std::copy_n(twice.begin() + 1, 2 * n - 1, y.begin());
    std::fill_n(y.begin(), n, kIgnore);
  }
  return out;
}

}  // namespace softtape
