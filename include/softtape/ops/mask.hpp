// Mask: which keys a query may see. Its polarity is in its type, so it cannot be inverted by
// accident.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Where a causal mask of n queries and m != n keys puts its diagonal: query i sees key j when
/// j <= i (upper_left), or when j <= i + m - n (lower_right: the last query sees the last key).
enum class Align { upper_left, lower_right };

/// A set of visible (query, key) pairs over scores (..., n, m); empty means everything is visible.
/// Masks combine as sets with `&`: visible is what both show. Scores are never changed by adding a
/// large number: hidden keys are selected away and get exact zero weight and gradient.
class SOFTTAPE_API Mask {
 public:
  Mask() = default;

  /// From a boolean tensor that broadcasts to the scores: true = hidden, the lesson's convention.
  /// Throws: DtypeError unless boolean.
  static Mask masked_out(const Tensor& hidden);
  /// From a boolean tensor: true = may attend (PyTorch's scaled_dot_product_attention).
  static Mask keep(const Tensor& visible);
  /// Query i sees keys j <= i. Only for n = m: otherwise the alignment must be named.
  static Mask causal();
  static Mask causal(Align align);
  /// Query i sees keys with i - before <= j <= i + after, on the diagonal of lower_right.
  /// Throws: ValueError for negative sizes.
  static Mask sliding_window(std::int64_t before, std::int64_t after);
  /// Sequence b sees its first lengths[b] keys; b runs over the first axis of the scores.
  /// Throws: ValueError for a negative length.
  static Mask key_padding(std::vector<std::int64_t> lengths);

  friend SOFTTAPE_API Mask operator&(const Mask& a, const Mask& b);

  /// True when it hides nothing by construction.
  bool empty() const;
  /// The mask as a boolean tensor of the scores' shape, true = visible.
  /// Throws: ShapeError when it does not fit the scores.
  Tensor visible(const Shape& scores) const;
  /// A picture in text: one line per query, `#` for a visible key, `.` for a hidden one.
  std::string to_string(const Shape& scores) const;

 private:
  friend struct MaskAccess;
  static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

  bool causal_square_ = false;
  bool causal_upper_left_ = false;
  bool causal_lower_right_ = false;
  std::int64_t before_ = kUnbounded;
  std::int64_t after_ = kUnbounded;
  std::vector<std::int64_t> lengths_;
  Tensor visible_;
};

}  // namespace softtape
