// Accuracy, read straight from the logits.
#include "softtape/train/metrics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/node.hpp"

namespace softtape {
namespace {

// Whether entry `target` is the largest and none is NaN.
template <class T>
bool is_hit(const T* row, std::int64_t classes, std::int64_t target) {
  for (std::int64_t c = 0; c < classes; ++c) {
    const bool beaten = c < target ? row[c] >= row[target] : row[c] > row[target];
    if (beaten || std::isnan(row[c])) return false;
  }
  return true;
}

}  // namespace

double accuracy(const Tensor& logits, const Tensor& targets,
                std::optional<std::int64_t> ignore_index) {
  detail::check_float("accuracy", "logits", logits);
  detail::check_defined("accuracy", "targets", targets);
  if (targets.dtype() != DType::int64) {
    throw DtypeError(fmt::format("[accuracy] targets must be int64: got {}; convert with to()",
                                 to_string(targets.dtype())));
  }
  if (logits.rank() == 0 || logits.shape().without(-1) != targets.shape()) {
    throw ShapeError(
        fmt::format("[accuracy] targets need one entry per row of logits: logits is {}, targets is "
                    "{}",
                    to_string(logits.shape()), to_string(targets.shape())));
  }
  const std::int64_t classes = logits.dim(-1);
  std::int64_t hits = 0;
  std::int64_t counted = 0;
  visit_float(logits.dtype(), "accuracy", [&](auto zero) {
    const auto* row = logits.data<decltype(zero)>().data();
    for (const std::int64_t target : targets.data<std::int64_t>()) {
      if (target != ignore_index) {
        if (target < 0 || target >= classes) {
          throw ValueError(
              fmt::format("[accuracy] a target must lie in [0, {}): {}", classes, target));
        }
        hits += is_hit(row, classes, target);
        ++counted;
      }
      row += classes;
    }
  });
  if (counted == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(hits) / static_cast<double>(counted);
}

}  // namespace softtape
