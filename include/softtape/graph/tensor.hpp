// Tensor: a handle on numbers, and, when it was computed under recording, on its place in the
// graph.
//
// Copying a Tensor never copies numbers. Nothing dangles: what a gradient needs is kept alive by
// the graph, and the graph by its last handle. Read next: op.hpp (what one op records), grad.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "softtape/base/dtype.hpp"
#include "softtape/base/shape.hpp"

namespace softtape {

class Tensor;

namespace detail {
/// The public face of a node: the count that handles share. The rest is in src/graph/node.hpp.
struct NodeHead {
  std::uint32_t handles = 0;
};
struct Node;
SOFTTAPE_API void drop_last_handle(NodeHead* node) noexcept;
struct TensorAccess;
}  // namespace detail

/// Called with a complete gradient; returns its replacement, or an undefined tensor to keep it.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// Options of Tensor::backward.
struct BackwardOptions;

/// A dense row-major tensor, rank 0 to 6. Copies share numbers and graph.
/// A tensor and its graph belong to one thread at a time: counts are not atomic. Independent models
/// may live on different threads.
class SOFTTAPE_API Tensor {
 public:
  /// An undefined tensor: no shape, no numbers. Every use but defined() and assignment throws.
  Tensor() = default;
  Tensor(const Tensor& other) noexcept : node_(other.node_) {
    if (node_) ++node_->handles;
  }
  Tensor(Tensor&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  // Inlined always: most handles that end are empty, having been moved from.
  [[gnu::always_inline]] ~Tensor() {
    if (node_ && --node_->handles == 0) detail::drop_last_handle(node_);
  }

  friend void swap(Tensor& a, Tensor& b) noexcept { std::swap(a.node_, b.node_); }

  bool defined() const { return node_ != nullptr; }
  const Shape& shape() const;
  int rank() const { return shape().rank(); }
  /// Size of an axis; negative axes count from the end. Throws: ShapeError.
  std::int64_t dim(int axis) const { return shape().dim(axis); }
  std::int64_t numel() const { return shape().numel(); }
  DType dtype() const;

  /// The numbers, row-major; T is float, double, std::int64_t or bool. Valid while a tensor holds
  /// them. Throws: DtypeError when T is not the element type.
  template <class T>
  std::span<const T> data() const {
    return {static_cast<const T*>(const_data(dtype_of<T>)), static_cast<std::size_t>(numel())};
  }
  /// The numbers, to be written. Throws: GraphError unless the tensor is a leaf that no recording
  /// would miss (see sub_).
  template <class T>
  std::span<T> mutable_data() {
    return {static_cast<T*>(writable_data("mutable_data", dtype_of<T>)),
            static_cast<std::size_t>(numel())};
  }
  /// The only element, converted to double. Throws: ShapeError unless numel() is 1.
  double item() const;
  /// All elements, converted to T.
  template <class T = double>
  std::vector<T> to_vector() const {
    std::vector<T> out(static_cast<std::size_t>(numel()));
    visit_any(dtype(), [&](auto zero) {
      const auto from = data<decltype(zero)>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(from[i]);
    });
    return out;
  }

  /// True for a leaf that asks for gradients, and for whatever was computed from one.
  bool requires_grad() const;
  /// Makes a leaf ask for gradients (or stop). Throws: GraphError on a computed tensor, DtypeError
  /// on one that is not float.
  Tensor& requires_grad_(bool on = true);
  /// True when no recorded op computed this tensor.
  bool is_leaf() const;

  /// The gradient that backward() has summed up here; undefined when there is none.
  Tensor grad() const;
  /// Replaces the accumulated gradient (an undefined tensor clears it).
  /// Throws: ShapeError or DtypeError unless it matches this tensor.
  void set_grad(const Tensor& gradient);
  /// Forgets the accumulated gradient: grad() is undefined after it, as in PyTorch 2.
  void zero_grad();
  /// Keeps the gradient of a computed tensor too when backward() passes through it.
  Tensor& retain_grad();
  /// Adds gradients of this scalar to the `.grad()` of every leaf below it.
  /// Throws: GraphError when nothing here needs a gradient, when the tensor is not a scalar and no
  /// gradient is given, or when the graph was used up. See grad.hpp for the functional form.
  void backward(const BackwardOptions& options) const;
  void backward() const;
  /// Calls `hook` whenever a backward pass has the complete gradient of this tensor; returns a
  /// number for remove_hook. A hook that holds its own tensor keeps it alive for ever.
  int register_hook(GradientHook hook);
  void remove_hook(int number);

  /// The same numbers outside the graph; storage is shared.
  Tensor detach() const;
  /// A copy of the numbers inside the graph. Vjp: gx = gy.
  Tensor clone() const;
  /// Entry i of the first axis: select(*this, 0, i) of ops/shape.hpp. Throws: ShapeError for rank
  /// 0, ValueError for an index out of range.
  Tensor operator[](std::int64_t i) const;

  const std::string& name() const;
  /// Gives the tensor a name that errors, traces and graphs show; returns the tensor.
  Tensor& named(std::string name) &;
  Tensor named(std::string name) &&;

  /// In-place updates of a leaf: x -= scale * y, x += scale * y, x = y, x = value. Shapes and
  /// dtypes must be equal. Each bumps the version: a graph that saved the old numbers refuses to go
  /// on. Throws: GraphError on a computed tensor, or on one that requires a gradient outside
  /// NoGrad; DtypeError or ValueError for a value that integers or booleans cannot hold.
  Tensor& sub_(const Tensor& y, double scale = 1.0);
  Tensor& add_(const Tensor& y, double scale = 1.0);
  Tensor& copy_(const Tensor& y);
  Tensor& fill_(double value);
  /// How often the numbers have been changed in place.
  std::uint32_t version() const;

  /// True when both handles name the very same tensor.
  bool is_same(const Tensor& other) const { return node_ == other.node_; }

 private:
  friend struct detail::TensorAccess;
  explicit Tensor(detail::NodeHead* adopted) : node_(adopted) {}
  const void* const_data(DType dtype) const;
  void* writable_data(const char* op, DType dtype);

  detail::NodeHead* node_ = nullptr;
};

}  // namespace softtape
