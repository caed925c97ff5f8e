// Making, recording and releasing nodes.
#include "graph/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "graph/anomaly.hpp"
#include "softtape/graph/grad.hpp"

namespace softtape {
namespace detail {

constinit thread_local CallSite t_call_site;
constinit thread_local bool t_grad_enabled = true;
constinit thread_local bool t_anomaly = false;

void* Attributes::operator new(std::size_t bytes) { return Pooled::operator new(bytes); }
void Attributes::operator delete(void* memory, std::size_t bytes) {
  Pooled::operator delete(memory, bytes);
}

Tensor make_view(const Tensor& t, const Shape& shape) {
  const Node* from = TensorAccess::node(t);
  auto* node = new Node(shape, from->dtype, from->storage);
  ++from->storage->owners;
  bump(thread_cache().live_nodes, 1);
  return TensorAccess::adopt(node);
}

namespace {

void drop_storage(Node& node) {
  if (node.storage) node.storage->release();
  node.storage = nullptr;
}

// Takes the edges off a node and puts the inputs that nobody else refers to in front of `dead`.
Node* cut_edges(Node& node, Node* dead) {
  for (std::uint32_t i = 0; i < node.arity; ++i) {
    Node* input = node.edges[i].node;
    if (node.edges[i].saved) {
      if (--input->handles == 0 && !input->keeps_output) drop_storage(*input);
    } else {
      --input->edges_in;
    }
    if (input->handles == 0 && input->edges_in == 0) {
      input->next_dead = dead;
      dead = input;
    }
  }
  if (node.arity > Node::kInlineEdges) {
    give_block(node.edges, size_class_of(node.arity * sizeof(Edge)));
  }
  node.arity = 0;
  return dead;
}

// A loop over a list threaded through the dead nodes: a chain of any length needs neither stack nor
// memory to go away.
void release(Node* dead) noexcept {
  while (dead) {
    Node* node = dead;
    dead = cut_edges(*node, node->next_dead);
    drop_storage(*node);
    delete node->attributes;
    delete node->extras;
    delete node;
    bump(thread_cache().live_nodes, -1);
  }
}

}  // namespace

void drop_last_handle(NodeHead* head) noexcept {
  auto* node = static_cast<Node*>(head);
  if (node->edges_in > 0) {
    if (!node->keeps_output) drop_storage(*node);
    return;
  }
  node->next_dead = nullptr;
  release(node);
}

void drop_edge_in(Node& node) {
  if (--node.edges_in > 0 || node.handles > 0) return;
  node.next_dead = nullptr;
  release(&node);
}

void use_up(Node& node) {
  release(cut_edges(node, nullptr));
  delete node.attributes;
  node.attributes = nullptr;
  node.used_up = true;
  node.keeps_output = false;
  if (node.handles == 0) drop_storage(node);
}

bool will_record(const TensorRef* inputs, std::size_t arity) {
  if (!t_grad_enabled) return false;
  bool wanted = false;
  for (std::size_t i = 0; i < arity; ++i) {
    const Node* input = TensorAccess::node(*inputs[i]);
    wanted |= input && input->requires_grad;
  }
  return wanted;
}

Tensor record(const OpInfo& op, Saves saves, Tensor y, const TensorRef* inputs, std::size_t arity,
              std::unique_ptr<Attributes> attributes) {
  Node& node = node_of(op.name, "the result", y);
  if (t_anomaly) check_result(op, y, inputs, arity);
  if (!will_record(inputs, arity) || !is_floating(node.dtype)) return y;
  if (node.op || node.requires_grad || node.handles != 1) {
    throw GraphError(fmt::format(
        "[{}] the result must be a fresh tensor: it has {} handles{}; compute into empty_like(x)",
        op.name, node.handles, node.op ? " and a recorded op" : ""));
  }
  std::uint32_t order = 0;
  Edge* edges = node.inline_edges;
  if (arity > Node::kInlineEdges) {
    edges = static_cast<Edge*>(take_block(size_class_of(arity * sizeof(Edge))));
  }
  for (std::size_t i = 0; i < arity; ++i) {
    Node* input = TensorAccess::node(*inputs[i]);
    const bool saved = (saves.bits >> std::min<std::size_t>(i, 30) & 1u) != 0;
    edges[i] = {input, input->storage->version, saved};
    ++(saved ? input->handles : input->edges_in);
    order = std::max(order, input->order);
  }
  node.edges = edges;
  node.arity = static_cast<std::uint32_t>(arity);
  node.op = &op;
  node.attributes = attributes.release();
  node.requires_grad = true;
  node.order = order + 1;
  node.keeps_output = (saves.bits & saves_output.bits) != 0;
  node.output_version = node.storage->version;
  if (t_anomaly) node.ensure_extras().site = t_call_site;
  return y;
}

void throw_undefined(const char* op, const char* argument) {
  throw GraphError(fmt::format("[{}] {} is an undefined tensor; assign it first", op, argument));
}

void throw_not_float(const char* op, const char* argument, DType dtype) {
  throw DtypeError(fmt::format("[{}] {} must be float32 or float64: got {}; convert with to()", op,
                               argument, to_string(dtype)));
}

void throw_not_boolean(const char* op, const char* argument, DType dtype) {
  throw DtypeError(fmt::format("[{}] {} must be boolean: got {}; compare to make one, as in x > 0",
                               op, argument, to_string(dtype)));
}

void check_same_float(const char* op, const char* a_name, const Tensor& a, const char* b_name,
                      const Tensor& b) {
  check_float(op, a_name, a);
  check_float(op, b_name, b);
  if (a.dtype() != b.dtype()) {
    throw DtypeError(
        fmt::format("[{}] {} and {} must have one dtype: got {} and {}; convert with to()", op,
                    a_name, b_name, to_string(a.dtype()), to_string(b.dtype())));
  }
}

std::string label(const Tensor& t, const std::string& fallback) {
  const Node* node = TensorAccess::node(t);
  return node && node->extras && !node->extras->name.empty()
             ? fmt::format("'{}'", node->extras->name)
             : fallback;
}

}  // namespace detail

namespace {
std::vector<const OpInfo*>& registry() {
  static auto* ops = new std::vector<const OpInfo*>;
  return *ops;
}
}  // namespace

OpInfo::OpInfo(const char* op_name, void (*rule)(Vjp&), Saves needed, bool may_make_infinity)
    : name(op_name), vjp(rule), saves(needed), makes_infinity(may_make_infinity) {
  registry().push_back(this);
}

std::vector<const OpInfo*> all_ops() { return registry(); }

bool grad_enabled() { return detail::t_grad_enabled; }
GradMode::GradMode(bool on) : previous_(std::exchange(detail::t_grad_enabled, on)) {}
GradMode::~GradMode() { detail::t_grad_enabled = previous_; }

GraphStats graph_stats() { return {detail::live_nodes(), memory_stats().live_bytes}; }

}  // namespace softtape
