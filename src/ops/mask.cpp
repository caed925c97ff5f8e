// Masks: combination, and their resolution for one shape of scores.
#include "softtape/ops/mask.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ops/mask_rows.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

Mask Mask::keep(const Tensor& visible) {
  detail::check_boolean("mask", "the mask", visible);
  Mask mask;
  mask.visible_ = visible.clone();  // what happens to the caller's tensor later is not ours
  return mask;
}

Mask Mask::masked_out(const Tensor& hidden) {
  detail::check_boolean("mask", "the mask", hidden);
  Mask mask;
  mask.visible_ = logical_not(hidden);
  return mask;
}

Mask Mask::causal() {
  Mask mask;
  mask.causal_square_ = true;
  return mask;
}

Mask Mask::causal(Align align) {
  Mask mask;
  (align == Align::upper_left ? mask.causal_upper_left_ : mask.causal_lower_right_) = true;
  return mask;
}

Mask Mask::sliding_window(std::int64_t before, std::int64_t after) {
  if (before < 0 || after < 0) {
    throw ValueError(fmt::format("[mask] a window must not be negative: got {} before, {} after",
                                 before, after));
  }
  Mask mask;
  mask.before_ = before;
  mask.after_ = after;
  return mask;
}

Mask Mask::key_padding(std::vector<std::int64_t> lengths) {
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0) {
      throw ValueError(
          fmt::format("[mask] lengths must not be negative: lengths[{}] is {}", b, lengths[b]));
    }
  }
  if (lengths.empty()) throw ValueError("[mask] key_padding needs at least one length");
  Mask mask;
  mask.lengths_ = std::move(lengths);
  return mask;
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask both = a;
  both.causal_square_ |= b.causal_square_;
  both.causal_upper_left_ |= b.causal_upper_left_;
  both.causal_lower_right_ |= b.causal_lower_right_;
  both.before_ = std::min(a.before_, b.before_);
  both.after_ = std::min(a.after_, b.after_);
  if (!b.lengths_.empty()) {
    if (a.lengths_.empty()) {
      both.lengths_ = b.lengths_;
    } else if (a.lengths_.size() != b.lengths_.size()) {
      throw ShapeError(fmt::format("[mask] paddings must have one number of lengths: got {} and {}",
                                   a.lengths_.size(), b.lengths_.size()));
    } else {
      for (std::size_t i = 0; i < b.lengths_.size(); ++i) {
        both.lengths_[i] = std::min(a.lengths_[i], b.lengths_[i]);
      }
    }
  }
  if (b.visible_.defined()) {
    both.visible_ = a.visible_.defined() ? logical_and(a.visible_, b.visible_) : b.visible_;
  }
  return both;
}

bool Mask::empty() const {
  return !causal_square_ && !causal_upper_left_ && !causal_lower_right_ && before_ == kUnbounded &&
         after_ == kUnbounded && lengths_.empty() && !visible_.defined();
}

Tensor Mask::visible(const Shape& scores) const {
  const detail::MaskRows rows("mask", *this, scores);
  Tensor y = detail::make_tensor(scores, DType::boolean);
  const std::int64_t m = scores.dim(-1);
  bool* out = detail::fresh_numbers<bool>(y);
  for (std::int64_t row = 0; m > 0 && row < scores.numel() / m; ++row) {
    const detail::MaskRow visible = rows.row(row);
    for (std::int64_t j = 0; j < m; ++j) out[row * m + j] = visible.sees(j);
  }
  return y;
}

std::string Mask::to_string(const Shape& scores) const {
  const Tensor shown = visible(scores);
  const std::int64_t m = scores.dim(-1);
  const std::int64_t n = scores.rank() > 1 ? scores.dim(-2) : 1;
  std::string text;
  for (std::int64_t row = 0; m > 0 && row < scores.numel() / m; ++row) {
    if (row > 0 && row % n == 0) text += '\n';  // a blank line between sequences
    for (std::int64_t j = 0; j < m; ++j) {
      if (j > 0) text += ' ';
      text += detail::numbers<bool>(shown)[row * m + j] ? '#' : '.';
    }
    text += '\n';
  }
  return text;
}

namespace detail {

MaskRows::MaskRows(const char* op, const Mask& mask, const Shape& scores) {
  if (scores.rank() < 1) {
    throw ShapeError(
        fmt::format("[{}] a mask needs scores of rank 1 or more: got {}", op, to_string(scores)));
  }
  m_ = scores.dim(-1);
  n_ = scores.rank() > 1 ? scores.dim(-2) : 1;
  const std::int64_t lower_right = m_ - n_;
  if (MaskAccess::causal_square(mask) && n_ != m_) {
    throw ShapeError(fmt::format(
        "[{}] Mask::causal() needs as many queries as keys: scores are {}, {} != {}; name "
        "Mask::causal(Align::upper_left) or Mask::causal(Align::lower_right)",
        op, to_string(scores), n_, m_));
  }
  std::int64_t last = Shape::kMaxRank + m_ + n_;  // no bound: beyond every key of every row
  if (MaskAccess::causal_square(mask) || MaskAccess::causal_upper_left(mask)) last = 0;
  if (MaskAccess::causal_lower_right(mask)) last = std::min(last, lower_right);
  const std::int64_t before = MaskAccess::before(mask);
  const std::int64_t after = MaskAccess::after(mask);
  if (after < m_ + n_) last = std::min(last, lower_right + after);
  after_end_ = last + 1;
  before_start_ = before < m_ + n_ ? before - lower_right : m_ + n_;

  const auto& lengths = MaskAccess::lengths(mask);
  if (!lengths.empty()) {
    const std::int64_t leading = scores.rank() > 2 ? scores[0] : 1;
    if (static_cast<std::int64_t>(lengths.size()) != leading) {
      throw ShapeError(
          fmt::format("[{}] key_padding needs one length per sequence: {} lengths, scores are {}",
                      op, lengths.size(), to_string(scores)));
    }
    lengths_ = lengths.data();
    for (int axis = 1; axis < scores.rank() - 2; ++axis) per_length_ *= scores[axis];
    per_length_ = std::max<std::int64_t>(1, per_length_);
  }

  if (!MaskAccess::visible(mask).defined()) return;
  tensor_ = MaskAccess::visible(mask);
  const Shape& shape = tensor_.shape();
  bool fits = shape.rank() <= scores.rank();
  for (int axis = 1; fits && axis <= shape.rank(); ++axis) {
    fits = shape.dim(-axis) == 1 || shape.dim(-axis) == scores.dim(-axis);
  }
  if (!fits) {
    throw ShapeError(
        fmt::format("[{}] the mask must broadcast to the scores: mask is {}, scores are {}", op,
                    to_string(shape), to_string(scores)));
  }
  if (shape.rank() == 0 || shape.dim(-1) != m_) {
    const NoGrad values_only;
    const Shape wide = shape.rank() == 0 ? Shape{m_} : shape.with(shape.rank() - 1, m_);
    tensor_ = broadcast_to(tensor_, wide);
  }
  keep_ = numbers<bool>(tensor_);
  // Rows of the scores, innermost first, and how far each step moves in the mask.
  const Shape& full = tensor_.shape();
  std::int64_t step = m_;
  for (int axis = scores.rank() - 2; axis >= 0; --axis) {
    const int own = axis - (scores.rank() - full.rank());
    const std::int64_t size = own >= 0 ? full[own] : 1;
    lead_sizes_[lead_rank_] = scores[axis];
    lead_strides_[lead_rank_++] = size == 1 ? 0 : step;
    step *= size;
  }
}

const bool* MaskRows::keep_row(std::int64_t flat) const {
  std::int64_t offset = 0;
  for (int axis = 0; axis < lead_rank_; ++axis) {
    offset += flat % lead_sizes_[axis] * lead_strides_[axis];
    flat /= lead_sizes_[axis];
  }
  return keep_ + offset;
}

}  // namespace detail
}  // namespace softtape
