// Node: what a Tensor handle points to. Shape, storage, and, once recorded, the op that computed
// it.
//
// Two counts keep a node. `handles` counts who may ask for its numbers: Tensor handles and edges
// that saved them. `edges_in` counts edges that only lead here. When `handles` reaches zero the
// numbers go, unless the op saved its own output; when both are zero the node goes. So a graph
// keeps alive exactly the numbers that its rules will read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/storage.hpp"
#include "softtape/graph/arguments.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape::detail {

struct Node;

/// From an op to one of its inputs. Plain: a node leaves the unused ones uninitialised.
struct Edge {
  Node* node;
  std::uint32_t version;  // of the input's storage when it was saved
  bool saved;
};

/// What only few tensors have: a name, a gradient, hooks, a line.
struct Extras : Pooled {
  std::string name;
  Tensor grad;
  bool retain_grad = false;
  std::vector<std::pair<int, GradientHook>> hooks;
  int next_hook = 0;
  CallSite site;
};

struct Node : NodeHead {
  static constexpr int kInlineEdges = 3;

  Node(const Shape& node_shape, DType node_dtype, Storage* node_storage)
      : dtype(node_dtype), storage(node_storage), shape(node_shape) {}

  std::uint32_t edges_in = 0;
  DType dtype;
  bool requires_grad = false;
  bool keeps_output = false;  // the rule reads the output, so the storage outlives the handles
  bool used_up = false;       // a backward pass without retain_graph went through
  std::uint32_t arity = 0;
  std::uint32_t output_version = 0;
  std::uint32_t order = 0;  // 1 + the largest order of the inputs; 0 for a leaf
  std::uint32_t slot = 0;   // scratch of a backward pass: index into its table
  Storage* storage;
  const OpInfo* op = nullptr;
  Attributes* attributes = nullptr;
  Extras* extras = nullptr;
  Edge* edges = nullptr;  // inline_edges, or a block for more than three inputs
  Node* next_dead;        // once released, nodes are chained through themselves
  Edge inline_edges[kInlineEdges];
  Shape shape;

  Extras& ensure_extras() {
    if (!extras) extras = new Extras;
    return *extras;
  }
};

static_assert(sizeof(Node) <= kNodeBytes);

/// What the library may do with a Tensor that a user may not.
struct TensorAccess {
  static Node* node(const Tensor& t) { return static_cast<Node*>(t.node_); }
  static Tensor adopt(Node* node) {
    ++node->handles;
    return Tensor(static_cast<NodeHead*>(node));
  }
};

/// Throws what make() returns, out of line: formatting a message must not weigh on the way past it.
template <class Make>
[[noreturn, gnu::cold, gnu::noinline]] void raise(const Make& make) {
  throw make();
}

[[noreturn]] void throw_undefined(const char* op, const char* argument);
[[noreturn]] void throw_not_float(const char* op, const char* argument, DType dtype);

/// The node of a defined tensor. Throws: GraphError naming op and argument.
inline Node& node_of(const char* op, const char* argument, const Tensor& t) {
  Node* node = TensorAccess::node(t);
  if (!node) throw_undefined(op, argument);
  return *node;
}
inline void check_defined(const char* op, const char* argument, const Tensor& t) {
  node_of(op, argument, t);
}
inline void check_float(const char* op, const char* argument, const Tensor& t) {
  const DType dtype = node_of(op, argument, t).dtype;
  if (!is_floating(dtype)) throw_not_float(op, argument, dtype);
}
[[noreturn]] void throw_not_boolean(const char* op, const char* argument, DType dtype);
inline void check_boolean(const char* op, const char* argument, const Tensor& t) {
  const DType dtype = node_of(op, argument, t).dtype;
  if (dtype != DType::boolean) throw_not_boolean(op, argument, dtype);
}
[[noreturn]] void throw_not_same_float(const char* op, const char* a_name, const Tensor& a,
                                       const char* b_name, const Tensor& b);
/// Throws: DtypeError unless both are float tensors of one dtype, GraphError for undefined ones.
inline void check_same_float(const char* op, const char* a_name, const Tensor& a,
                             const char* b_name, const Tensor& b) {
  const Node* na = TensorAccess::node(a);
  const Node* nb = TensorAccess::node(b);
  if (na && nb && is_floating(na->dtype) && na->dtype == nb->dtype) return;
  throw_not_same_float(op, a_name, a, b_name, b);
}

/// Throws: DtypeError when a fraction meets int64 or boolean, ValueError when int64 cannot hold it.
void check_number(const char* op, DType dtype, double value);

/// More than any machine holds, and few enough that their bytes can be counted in 64 bits.
constexpr std::int64_t kMostElements = std::int64_t{1} << 47;
[[noreturn]] void throw_too_large(const Shape& shape);

/// A fresh tensor with uninitialised numbers: where every op starts.
Tensor make_tensor(const Shape& shape, DType dtype);
/// A fresh tensor of another shape over the storage of `t`.
Tensor make_view(const Tensor& t, const Shape& shape);

/// The shape of a tensor known to be defined.
inline const Shape& shape_of(const Tensor& t) { return TensorAccess::node(t)->shape; }

/// The numbers of a tensor of known element type, unchecked.
template <class T>
const T* numbers(const Node& node) {
  return static_cast<const T*>(node.storage->data());
}
template <class T>
const T* numbers(const Tensor& t) {
  return numbers<T>(*TensorAccess::node(t));
}
/// The same to be written: for a tensor that was just made, that only the caller holds, or that was
/// marked as written.
template <class T>
T* fresh_numbers(const Tensor& t) {
  return static_cast<T*>(TensorAccess::node(t)->storage->data());
}

/// For who writes over the numbers of a leaf: graphs that saved the old ones refuse to go back.
inline void mark_written(const Tensor& t) { ++TensorAccess::node(t)->storage->version; }

/// True when nothing else can see the numbers, so that they may be overwritten.
inline bool sole_owner(const Tensor& t) {
  const Node* node = TensorAccess::node(t);
  return node->handles == 1 && node->edges_in == 0 && node->storage->owners == 1 && !node->op &&
         !node->extras;
}

extern constinit thread_local bool t_grad_enabled __attribute__((tls_model("initial-exec")));
extern constinit thread_local bool t_anomaly __attribute__((tls_model("initial-exec")));

/// Takes the node's inputs and saved values away once a backward pass needs them no more.
void use_up(Node& node);
/// Gives back a node that nothing refers to any more.
void drop(Node* node) noexcept;
/// For who holds a node by edges_in alone (a backward pass): lets go of it.
inline void drop_edge_in(Node& node) {
  if (--node.edges_in == 0 && node.handles == 0) drop(&node);
}

/// A short description for messages: the name in quotes when there is one, else `fallback`.
std::string label(const Tensor& t, const std::string& fallback);

}  // namespace softtape::detail
