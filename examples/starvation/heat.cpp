// The pictures of one softmax: a sequence of 16 key symbols, each asking for itself among those
// before it and itself, at the start. Weights, their gradients and those of the scores, per cell.
#include <string>

#include "parts.hpp"
#include "recall.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/index.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/ops/shape.hpp"

namespace starvation {

using namespace softtape;

void add_heat_maps(Results& results) {
  for (const char* scale : {"inv_sqrt_dk", "none"}) {
    RecallSetting s;
    s.dk = 64;
    s.scale = scale;
    std::vector<Rng> streams = Rng(0).spawn(3);
    const RecallModel model(s, streams[0]);
    const RecallBatch batch = RecallTask().sample(1, streams[1]);
    const Tensor keys = reshape(batch.keys, {s.T}), values = reshape(batch.values, {s.T});
    const Attention attended = scaled_dot_product_attention(
        take_rows(model.wq, keys), take_rows(model.wk, keys), take_rows(model.wv, values),
        {.mask = Mask::causal(), .scale = scale_of(scale, s.dk)});
    const Tensor loss = cross_entropy(attended.output, values, {.reduction = Reduction::sum});
    const std::vector<Tensor> g = grad(loss, {attended.weights, attended.scores});
    const Tensor hidden = triu(ones({s.T, s.T}), 1) > 0;
    results.heat_maps.push_back({scale, attended.weights.detach(), g[0], g[1], hidden});
  }
}

}  // namespace starvation
