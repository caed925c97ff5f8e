// mask_scores: selection by rows of a resolved mask.
#include "softtape/attention/mask_scores.hpp"

#include "ops/mask_rows.hpp"

namespace softtape {

namespace {

const OpInfo kMaskScores{"mask_scores",
                         [](Vjp& r) { r.set(0, mask_scores(r.gy(), r.attributes<Mask>(), 0)); },
                         saves_nothing, true};

template <class T>
void mask_row(const T* from, T* into, std::int64_t m, const detail::MaskRow& row, T hidden) {
  std::fill(into, into + row.begin, hidden);
  if (row.keep) {
    for (std::int64_t j = row.begin; j < row.end; ++j) into[j] = row.keep[j] ? from[j] : hidden;
  } else {
    std::copy(from + row.begin, from + row.end, into + row.begin);
  }
  std::fill(into + row.end, into + m, hidden);
}

}  // namespace

Tensor mask_scores(TensorArg scores, const Mask& mask, double hidden) {
  detail::check_float("mask_scores", "scores", scores);
  const detail::MaskRows rows("mask_scores", mask, scores->shape());
  Tensor y = detail::make_tensor(scores->shape(), scores->dtype());
  const std::int64_t m = scores->dim(-1);
  visit_float(scores->dtype(), "mask_scores", [&](auto zero) {
    using T = decltype(zero);
    const T* from = detail::numbers<T>(scores);
    T* into = detail::fresh_numbers<T>(y);
    detail::for_ranges(
        m ? y.numel() / m : 0, detail::row_grain(m), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            mask_row(from + row * m, into + row * m, m, rows.row(row), static_cast<T>(hidden));
          }
        });
  });
  return record(kMaskScores, std::move(y), {*scores}, mask);
}

}  // namespace softtape
