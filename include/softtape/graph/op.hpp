// What one op records, and the rule that turns its upstream gradient into gradients of its inputs.
//
// Every op of the library, and any op of a user's, is three things: a function that computes
// values, an OpInfo at namespace scope, and a call of record() at the end of the function. The rule
// is written in public ops, so a gradient is itself differentiable, to any order.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Which values of an op its rule will ask for. Only these are kept alive and version-checked.
struct Saves {
  std::uint32_t bits = 0;
  constexpr Saves operator|(Saves other) const { return {bits | other.bits}; }
};
constexpr Saves saves_nothing{};
constexpr Saves saves_output{1u << 31};
constexpr Saves saves_inputs{(1u << 31) - 1};
constexpr Saves saves_input(int i) { return {1u << i}; }

namespace detail {
struct SOFTTAPE_API Attributes {
  virtual ~Attributes() = default;
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory, std::size_t bytes);
};
template <class A>
struct AttributesOf final : Attributes {
  explicit AttributesOf(A a) : value(std::move(a)) {}
  A value;
};
struct VjpState;
}  // namespace detail

/// What a rule sees of the op it belongs to, and where it puts its results.
class SOFTTAPE_API Vjp {
 public:
  /// The upstream gradient, of the output's shape and dtype.
  const Tensor& gy() const;
  /// Input i. Throws: GraphError unless it was saved and is unchanged since. As all that name an
  /// input: GraphError for one that is not there.
  Tensor x(int i) const;
  /// The output. Throws: GraphError unless it was saved and is unchanged since.
  Tensor y() const;
  int arity() const;
  /// Shape of input i, saved or not.
  const Shape& x_shape(int i) const;
  DType x_dtype(int i) const;
  /// Whether anybody wants the gradient of input i; a rule skips the others.
  bool needs(int i) const;
  /// Whether the gradients are themselves being recorded (create_graph).
  bool recording() const;
  /// What the forward pass left besides tensors.
  template <class A>
  const A& attributes() const {
    return static_cast<const detail::AttributesOf<A>*>(raw_attributes())->value;
  }
  /// Gives input i its gradient; not calling it, or an undefined tensor, means zero.
  /// Throws: ShapeError or DtypeError, naming the op, when it does not match the input.
  void set(int i, Tensor gx);

 private:
  friend struct detail::VjpState;
  explicit Vjp(detail::VjpState& state) : state_(state) {}
  const detail::Attributes* raw_attributes() const;
  detail::VjpState& state_;
};

/// Name, rule and needs of one op. Lives at namespace scope and registers itself.
struct SOFTTAPE_API OpInfo {
  OpInfo(const char* op_name, void (*rule)(Vjp&), Saves needed = saves_nothing,
         bool may_make_infinity = false);
  OpInfo(const OpInfo&) = delete;
  OpInfo& operator=(const OpInfo&) = delete;

  const char* name;
  void (*vjp)(Vjp&);
  Saves saves;
  /// True for ops that write infinities on purpose (a masked score); the anomaly guard trusts them.
  bool makes_infinity;
};

/// Every OpInfo there is, in no order.
SOFTTAPE_API std::vector<const OpInfo*> all_ops();

/// The inputs of an op, as a short list of references.
class TensorRef {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  TensorRef(const Tensor& tensor) : tensor_(&tensor) {}
  const Tensor& operator*() const { return *tensor_; }

 private:
  const Tensor* tensor_;
};

namespace detail {
SOFTTAPE_API Tensor record(const OpInfo& op, Saves saves, Tensor&& y, const TensorRef* inputs,
                           std::size_t arity, std::unique_ptr<Attributes> attributes);
SOFTTAPE_API bool will_record(const TensorRef* inputs, std::size_t arity);
}  // namespace detail

/// Enters `y`, a fresh tensor just computed from `inputs`, into the graph as the result of `op`.
/// Without recording, or when no input requires a gradient, it returns y as it is.
/// `attributes` is whatever else the rule needs (an axis, a mask); any movable type, no tensors
/// with a graph of their own. Throws: GraphError when y is not fresh; ValueError under the anomaly
/// guard.
inline Tensor record(const OpInfo& op, Tensor y, std::initializer_list<TensorRef> inputs) {
  return detail::record(op, op.saves, std::move(y), inputs.begin(), inputs.size(), nullptr);
}
template <class A>
Tensor record(const OpInfo& op, Tensor y, std::initializer_list<TensorRef> inputs, A attributes) {
  std::unique_ptr<detail::Attributes> kept;
  if (detail::will_record(inputs.begin(), inputs.size())) {
    kept = std::make_unique<detail::AttributesOf<A>>(std::move(attributes));
  }
  return detail::record(op, op.saves, std::move(y), inputs.begin(), inputs.size(), std::move(kept));
}
/// For ops of any number of inputs.
template <class A>
Tensor record(const OpInfo& op, Tensor y, std::span<const Tensor> inputs, A attributes) {
  const std::vector<TensorRef> refs(inputs.begin(), inputs.end());
  return detail::record(op, op.saves, std::move(y), refs.data(), refs.size(),
                        std::make_unique<detail::AttributesOf<A>>(std::move(attributes)));
}

}  // namespace softtape
