// What is measured while a model trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Names and numbers: `{{"val_loss", 1.5}, {"accuracy", 0.4}}`.
using Metrics = std::vector<std::pair<std::string, double>>;

/// The share of rows whose largest logit is that of the target, among those that are not ignored;
/// of equal logits the first is the largest, and a row with a NaN is wrong.
/// Shapes: logits (..., C), targets (...) int64.
/// Edges: NaN where every target is ignored. Throws: ShapeError, DtypeError; ValueError for a
/// target outside [0, C) that is not ignored.
SOFTTAPE_API double accuracy(const Tensor& logits, const Tensor& targets,
                             std::optional<std::int64_t> ignore_index = {});

}  // namespace softtape
