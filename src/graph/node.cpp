// Making, recording and releasing nodes.
#include "graph/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

namespace {

Tensor make_in(ThreadCache& cache, void* node_block, void* storage_block,
               std::uint32_t storage_class, const Shape& shape, DType dtype) {
  auto* storage = ::new (storage_block) Storage(storage_class);
  auto* node = ::new (node_block) Node(shape, dtype, storage);
  bump(cache.live_nodes, 1);
  return TensorAccess::adopt(node);
}

// With blocks from the shared list or the system. Apart, so that the usual way needs no calls.
[[gnu::noinline]] Tensor make_tensor_slowly(const Shape& shape, DType dtype) {
  if (shape.numel() > kMostElements) throw_too_large(shape);
  ThreadCache& cache = thread_cache();
  const std::uint32_t storage_class =
      Storage::class_for(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
  void* storage_block = take_block(cache, storage_class);
  return make_in(cache, take_block(cache, kNodeClass), storage_block, storage_class, shape, dtype);
}

}  // namespace

Tensor make_tensor(const Shape& shape, DType dtype) {
  ThreadCache* cache = t_cache;
  if (shape.numel() > kMostElements || !cache) return make_tensor_slowly(shape, dtype);
  const std::uint32_t storage_class =
      Storage::class_for(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
  FreeBlock* node_block = cache->free[kNodeClass].head;
  FreeBlock* storage_block = cache->free[storage_class].head;
  if (!node_block || !storage_block) return make_tensor_slowly(shape, dtype);
  take_head(cache->free[kNodeClass], node_block, kNodeClass);
  take_head(cache->free[storage_class], storage_block, storage_class);
  return make_in(*cache, node_block, storage_block, storage_class, shape, dtype);
}

Tensor make_view(const Tensor& t, const Shape& shape) {
  const Node* from = TensorAccess::node(t);
  ThreadCache& cache = thread_cache();
  auto* node = ::new (take_block(cache, kNodeClass)) Node(shape, from->dtype, from->storage);
  ++from->storage->owners;
  bump(cache.live_nodes, 1);
  return TensorAccess::adopt(node);
}

namespace {

void drop_storage(Node& node) {
  if (node.storage) node.storage->release();
  node.storage = nullptr;
}

[[gnu::noinline]] void give_long_edges(Node& node) {
  give_block(node.edges, size_class_of(node.arity * sizeof(Edge)));
}

// Takes the edges off a node and puts the inputs that nobody else refers to in front of `dead`.
inline Node* cut_edges(Node& node, Node* dead) {
  for (const Edge *edge = node.edges, *end = edge + node.arity; edge != end; ++edge) {
    Node* input = edge->node;
    // The count that fell is tested first: one wide load of both would wait for its write.
    bool unused;
    if (edge->saved) {
      const bool last = --input->handles == 0;
      if (last && !input->keeps_output) drop_storage(*input);
      unused = last && input->edges_in == 0;
    } else {
      unused = --input->edges_in == 0 && input->handles == 0;
    }
    if (unused) {
      input->next_dead = dead;
      dead = input;
    }
  }
  if (node.arity > Node::kInlineEdges) give_long_edges(node);
  node.arity = 0;
  return dead;
}

// The rest of a node that has no edges any more. The calls come last, so that they cost nothing
// where there is nothing to call.
void drop_blocks(Node* node) noexcept {
  ThreadCache& cache = *t_cache;
  bump(cache.live_nodes, -1);
  Storage* storage = node->storage;
  std::uint32_t storage_class = kNodeClass;
  if (storage && --storage->owners == 0) {
    storage_class = storage->size_class;
    put_block(cache, storage, storage_class);
  }
  put_block(cache, node, kNodeClass);
  keep_to_limit(cache, kNodeClass);
  if (storage_class != kNodeClass) keep_to_limit(cache, storage_class);
}

// A loop over a list threaded through the dead nodes: a chain of any length needs neither stack nor
// memory to go away.
void release(Node* dead) noexcept {
  thread_cache();
  while (dead) {
    Node* node = dead;
    dead = node->arity > 0 ? cut_edges(*node, node->next_dead) : node->next_dead;
    delete node->attributes;
    delete node->extras;
    drop_blocks(node);
  }
}

[[gnu::noinline]] void drop_attributes(Node& node) {
  delete node.attributes;
  node.attributes = nullptr;
}

}  // namespace

void drop(Node* node) noexcept {
  if (node->arity == 0 && !node->attributes && !node->extras && t_cache) {
    drop_blocks(node);  // a result that no graph knows, as most gradients are
  } else {
    node->next_dead = nullptr;
    release(node);
  }
}

void drop_last_handle(NodeHead* head) noexcept {
  auto* node = static_cast<Node*>(head);
  if (node->edges_in == 0) {
    drop(node);
  } else if (!node->keeps_output) {
    drop_storage(*node);
  }
}

void use_up(Node& node) {
  if (Node* dead = cut_edges(node, nullptr)) release(dead);
  if (node.attributes) drop_attributes(node);
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

namespace {

// Why a result cannot enter the graph. Nothing has changed yet.
[[noreturn, gnu::cold, gnu::noinline]] void throw_not_recordable(const OpInfo& op, const Node& node,
                                                                 const TensorRef* inputs,
                                                                 std::size_t arity) {
  for (std::size_t i = 0; i < arity; ++i) {
    if ((*inputs[i]).defined()) continue;
    throw GraphError(
        fmt::format("[{}] input {} is an undefined tensor; assign it first", op.name, i));
  }
  throw GraphError(
      fmt::format("[{}] the result must be a fresh tensor: it is {}; compute into empty_like(x)",
                  op.name, node.op ? "the result of an op already" : "a leaf or an input"));
}

// Puts y into the graph when an input asks for it. Inlined for the usual arities, whose loops then
// are none.
[[gnu::always_inline]] inline void enter_graph(const OpInfo& op, Saves saves, Node& node,
                                               const TensorRef* inputs, std::size_t arity,
                                               std::unique_ptr<Attributes>& attributes) {
  bool wanted = false;
  bool good = !node.op && !node.requires_grad;
  for (std::size_t i = 0; i < arity; ++i) {
    const Node* input = TensorAccess::node(*inputs[i]);
    wanted |= input && input->requires_grad;
    good &= input && input != &node;
  }
  if (!wanted || !is_floating(node.dtype)) return;
  if (!good) throw_not_recordable(op, node, inputs, arity);
  Edge* edges = node.inline_edges;
  if (arity > Node::kInlineEdges) {
    edges = static_cast<Edge*>(take_block(size_class_of(arity * sizeof(Edge))));
  }
  std::uint32_t order = 0;
  for (std::size_t i = 0; i < arity; ++i) {
    Node* input = TensorAccess::node(*inputs[i]);
    const bool saved = (saves.bits & (1u << std::min<std::size_t>(i, 30))) != 0;
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
}

}  // namespace

Tensor record(const OpInfo& op, Saves saves, Tensor&& y, const TensorRef* inputs, std::size_t arity,
              std::unique_ptr<Attributes> attributes) {
  Node& node = node_of(op.name, "the result", y);
  if (t_anomaly) check_result(op, y, inputs, arity);
  if (!t_grad_enabled) return std::move(y);
  switch (arity) {
    case 1:
      enter_graph(op, saves, node, inputs, 1, attributes);
      break;
    case 2:
      enter_graph(op, saves, node, inputs, 2, attributes);
      break;
    default:
      enter_graph(op, saves, node, inputs, arity, attributes);
  }
  return std::move(y);
}

void check_number(const char* op, DType dtype, double value) {
  if (is_floating(dtype)) return;
  if (std::trunc(value) != value) {
    throw DtypeError(fmt::format("[{}] a fractional number cannot meet a tensor of {}: got {}", op,
                                 to_string(dtype), value));
  }
  if (dtype == DType::int64 && !(value >= -0x1p63 && value < 0x1p63)) {
    throw ValueError(fmt::format("[{}] a number must fit int64: got {}", op, value));
  }
}

void throw_too_large(const Shape& shape) {
  throw ShapeError(fmt::format("[tensor] at most {} elements fit in memory: asked for {}",
                               kMostElements, to_string(shape)));
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

void throw_not_same_float(const char* op, const char* a_name, const Tensor& a, const char* b_name,
                          const Tensor& b) {
  check_float(op, a_name, a);
  check_float(op, b_name, b);
  throw DtypeError(
      fmt::format("[{}] {} and {} must have one dtype: got {} and {}; convert with to()", op,
                  a_name, b_name, to_string(a.dtype()), to_string(b.dtype())));
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
