// Batches: a new epoch begins with the first batch after the last one, so the state after an
// epoch's last batch still holds its order.
#include "softtape/train/batches.hpp"

#include <algorithm>
#include <numeric>

#include "graph/node.hpp"
#include "nn/state_reader.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/index.hpp"
#include "train/checks.hpp"

namespace softtape {
namespace {

bool is_permutation_of_all(std::vector<std::int64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

Batches::Batches(const Tensor& features, const Tensor& targets, BatchesOptions options, Rng& rng)
    : options_(options), stream_(rng) {
  detail::check_defined("Batches", "features", features);
  detail::check_defined("Batches", "targets", targets);
  if (features.rank() == 0 || targets.rank() == 0 || features.dim(0) != targets.dim(0)) {
    throw ShapeError(fmt::format("[Batches] features and targets need equally many rows: {} and {}",
                                 to_string(features.shape()), to_string(targets.shape())));
  }
  if (features.dim(0) == 0) {
    throw ValueError(
        fmt::format("[Batches] there is no data: features is {}", to_string(features.shape())));
  }
  detail::require_size("Batches", "size", options.size);
  if (options.drop_last && features.dim(0) < options.size) {
    throw ValueError(fmt::format(
        "[Batches] drop_last would leave out all rows: size = {}, features is {}; make the batch "
        "smaller",
        options.size, to_string(features.shape())));
  }
  features_ = features.detach();
  targets_ = targets.detach();
  stream_ = rng.spawn(1).front();
  begin_epoch();
}

std::int64_t Batches::end() const {
  return options_.drop_last ? size() / options_.size * options_.size : size();
}

std::int64_t Batches::batches_per_epoch() const {
  return (end() + options_.size - 1) / options_.size;
}

void Batches::begin_epoch() {
  if (options_.shuffle) {
    order_ = stream_.permutation(size());
  } else if (order_.empty()) {
    order_.resize(static_cast<std::size_t>(size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
  position_ = 0;
}

Batch Batches::next() {
  if (position_ == end()) {
    begin_epoch();
    ++epoch_;
  }
  const std::int64_t count = std::min(options_.size, end() - position_);
  const auto rows = std::span(order_).subspan(static_cast<std::size_t>(position_),
                                              static_cast<std::size_t>(count));
  const NoGrad guard;
  const Tensor index = tensor(rows);
  Batch batch{index_select(features_, 0, index), index_select(targets_, 0, index)};
  position_ += count;
  return batch;
}

State Batches::state() const {
  return {{"stream", rng_to_tensor(stream_)},
          {"order", tensor(order_)},
          {"position", scalar(position_)},
          {"epoch", scalar(epoch_)}};
}

void Batches::load_state(const State& state) {
  detail::StateReader in("Batches", state);
  Rng stream = rng_from_tensor(in.tensor("stream"));
  auto order = in.column<std::int64_t>("order");
  const auto position = in.number<std::int64_t>("position");
  const auto epoch = in.number<std::int64_t>("epoch");
  in.finish();
  if (order.size() != order_.size()) {
    in.refuse(fmt::format("it is of {} rows, the data set has {}", order.size(), size()));
  }
  if (!is_permutation_of_all(order)) in.refuse("order holds a row twice");
  const bool at_batch = position == end() || position % options_.size == 0;
  if (position < 0 || position > end() || !at_batch) {
    in.refuse(fmt::format("no batch of {} begins at position {}", options_.size, position));
  }
  if (epoch < 0) in.refuse(fmt::format("epochs are counted from 0: {}", epoch));
  stream_ = std::move(stream);
  order_ = std::move(order);
  position_ = position;
  epoch_ = epoch;
}

}  // namespace softtape
