// Sequential: layers, one after the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "softtape/nn/module.hpp"

namespace softtape {

/// A function used as a layer, such as an activation.
using Activation = std::function<Tensor(TensorArg)>;

/// y = layer_n(... layer_0(x)). Children are named "0", "1", ...
///
///     Sequential net;
///     net.emplace<Linear>(8, 32, rng);
///     net.add(relu);
///     net.emplace<Linear>(32, 2, rng);
class SOFTTAPE_API Sequential final : public Layer {
 public:
  Sequential() = default;

  /// Builds a layer in place and returns it.
  template <class L, class... Args>
  L& emplace(Args&&... args) {
    auto layer = std::make_unique<L>(std::forward<Args>(args)...);
    L& made = *layer;
    add(std::move(layer));
    return made;
  }
  /// Throws: ValueError for a null layer or an empty function.
  void add(std::unique_ptr<Layer> layer);
  void add(Activation function);

  std::size_t size() const { return layers_.size(); }
  Tensor operator()(TensorArg x) const override;

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace softtape
