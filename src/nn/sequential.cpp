// Sequential, and the layer that a plain function becomes.
#include "softtape/nn/sequential.hpp"

#include "graph/node.hpp"

namespace softtape {

namespace {

class FunctionLayer final : public Layer {
 public:
  explicit FunctionLayer(Activation function) : function_(std::move(function)) {}
  Tensor operator()(TensorArg x) const override { return hooked(function_(x)); }

 private:
  Activation function_;
};

}  // namespace

void Sequential::add(std::unique_ptr<Layer> layer) {
  if (!layer) throw ValueError("[Sequential] a layer must not be null");
  register_module(std::to_string(layers_.size()), *layer);
  layers_.push_back(std::move(layer));
}

void Sequential::add(Activation function) {
  if (!function) throw ValueError("[Sequential] a function must not be empty");
  add(std::make_unique<FunctionLayer>(std::move(function)));
}

Tensor Sequential::operator()(TensorArg x) const {
  detail::check_defined("Sequential", "x", x);
  Tensor y = x;
  for (const auto& layer : layers_) y = (*layer)(y);
  return hooked(std::move(y));
}

}  // namespace softtape
