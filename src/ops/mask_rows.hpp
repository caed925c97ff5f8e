// A mask resolved for one shape of scores: for every row an interval of keys, and a row of booleans
// where the mask holds a tensor. This is the form in which kernels read it.
#pragma once

#include "ops/map.hpp"
#include "softtape/ops/mask.hpp"

namespace softtape {

struct MaskAccess {
  static const Tensor& visible(const Mask& mask) { return mask.visible_; }
  static const std::vector<std::int64_t>& lengths(const Mask& mask) { return mask.lengths_; }
  static std::int64_t before(const Mask& mask) { return mask.before_; }
  static std::int64_t after(const Mask& mask) { return mask.after_; }
  static bool causal_square(const Mask& mask) { return mask.causal_square_; }
  static bool causal_upper_left(const Mask& mask) { return mask.causal_upper_left_; }
  static bool causal_lower_right(const Mask& mask) { return mask.causal_lower_right_; }
};

namespace detail {

/// Keys [begin, end) of one query; `keep`, when there is one, says which of all m keys are visible.
struct MaskRow {
  std::int64_t begin;
  std::int64_t end;
  const bool* keep;
  bool sees(std::int64_t j) const { return j >= begin && j < end && (!keep || keep[j]); }
};

/// Throws: ShapeError naming `op` when the mask does not fit the scores.
class MaskRows {
 public:
  MaskRows(const char* op, const Mask& mask, const Shape& scores);

  /// Row `i` of sequence `b`, where the leading axes of the scores are counted as one.
  MaskRow row(std::int64_t b, std::int64_t i) const {
    MaskRow row{std::clamp<std::int64_t>(i - before_start_, 0, m_), i + after_end_, nullptr};
    if (lengths_) row.end = std::min(row.end, lengths_[b / per_length_]);
    row.end = std::clamp(row.end, row.begin, m_);
    if (keep_) row.keep = keep_row(b * n_ + i);
    return row;
  }
  MaskRow row(std::int64_t flat) const {
    return flat < n_ ? row(0, flat) : row(flat / n_, flat % n_);
  }
  bool has_tensor() const { return keep_ != nullptr; }

 private:
  const bool* keep_row(std::int64_t flat) const;

  std::int64_t n_ = 1;
  std::int64_t m_ = 1;
  // Visible keys of row i: [i - before_start_, i + after_end_).
  std::int64_t before_start_;
  std::int64_t after_end_;
  const std::int64_t* lengths_ = nullptr;
  std::int64_t per_length_ = 1;
  const bool* keep_ = nullptr;
  Tensor tensor_;  // keeps keep_ alive; its last axis is m
  int lead_rank_ = 0;
  std::int64_t lead_sizes_[Shape::kMaxRank] = {};
  std::int64_t lead_strides_[Shape::kMaxRank] = {};
};

}  // namespace detail
}  // namespace softtape
