// Batches: rows of two tensors, a few at a time, in a new order every epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "softtape/base/random.hpp"
#include "softtape/nn/state.hpp"

namespace softtape {

struct BatchesOptions {
  std::int64_t size = 32;  ///< rows of a batch
  bool shuffle = true;     ///< a permutation for each epoch; else the order of the rows
  bool drop_last = false;  ///< leave out the rows at the end of an epoch that fill no batch
};

struct Batch {
  Tensor x;
  Tensor y;
};

/// An endless stream of batches over the rows (axis 0) of features and targets of any dtype. The
/// last batch of an epoch is smaller where it must be, unless dropped.
///
///     Batches batches(features, targets, {.size = 32}, rng);
///     auto [x, y] = batches.next();
///
/// Draws one permutation per epoch from a stream of its own, spawned from `rng` (whose own draws do
/// not change). Its state is that stream, the order and the place in it, so that a resumed run sees
/// the same batches.
class SOFTTAPE_API Batches final : public Stateful {
 public:
  /// Throws: GraphError for undefined tensors, ShapeError unless both have equally many rows,
  /// ValueError for no rows, a size below 1, or `drop_last` with fewer rows than one batch.
  Batches(const Tensor& features, const Tensor& targets, BatchesOptions options, Rng& rng);

  Batch next();
  /// Epochs before the present one, and batches of the present one taken so far.
  std::int64_t epoch() const { return epoch_; }
  std::int64_t position() const { return (position_ + options_.size - 1) / options_.size; }
  std::int64_t batches_per_epoch() const;
  /// Rows.
  std::int64_t size() const { return features_.dim(0); }

  State state() const override;
  /// Throws also: ValueError for the state of a data set of another size.
  void load_state(const State& state) override;

 private:
  void begin_epoch();
  std::int64_t end() const;  // where in the order an epoch ends

  Tensor features_;
  Tensor targets_;
  BatchesOptions options_;
  Rng stream_;
  std::vector<std::int64_t> order_;
  std::int64_t position_ = 0;  // of the next row in the order
  std::int64_t epoch_ = 0;
};

}  // namespace softtape
