// mask_scores: the node between scores and softmax where a mask becomes visible in the graph.
#pragma once

#include <limits>

#include "softtape/graph/arguments.hpp"
#include "softtape/ops/mask.hpp"

namespace softtape {

/// scores (..., n, m) where the mask shows them, `hidden` elsewhere; selected, so nothing in a
/// hidden place has any effect. Vjp: gx = mask_scores(gy, mask, 0), exact zeros where hidden.
/// Throws: ShapeError when the mask does not fit, DtypeError unless float.
SOFTTAPE_API Tensor mask_scores(TensorArg scores, const Mask& mask,
                                double hidden = -std::numeric_limits<double>::infinity());

}  // namespace softtape
