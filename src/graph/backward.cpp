// Reverse accumulation: the file a class opens first.
//
// Every recorded node knows its op, its inputs and an order key larger than theirs. A pass gives
// the outputs their upstream gradients and then always takes the waiting node with the largest key:
// all who use it have been served, so its gradient is complete. Its rule turns that gradient into
// gradients of its inputs, which are added to what has arrived there before. No recursion: the
// depth of a graph is bounded by memory alone.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/loops.hpp"
#include "graph/anomaly.hpp"
#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"

namespace softtape {
namespace detail {
namespace {

const OpInfo kAccumulate{"accumulate", [](Vjp& r) {
                           r.set(0, r.gy());
                           r.set(1, r.gy());
                         }};

template <class T>
[[gnu::noinline]] void add_rows(T* into, const T* a, const T* b, std::int64_t n) {
  for_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) into[i] = a[i] + b[i];
  });
}

template <class T>
void add_numbers(T* into, const T* a, const T* b, std::int64_t n) {
  if (n == 1) {
    *into = *a + *b;
  } else {
    add_rows(into, a, b, n);
  }
}

// sum = sum + b, in the memory of one of them when nobody else can see it.
void accumulate(Tensor& sum, Tensor&& b) {
  const auto add = [](const Tensor& into, const Tensor& x, const Tensor& y) {
    const Node& node = *TensorAccess::node(into);
    visit_float(node.dtype, "accumulate", [&](auto zero) {
      using T = decltype(zero);
      add_numbers(fresh_numbers<T>(into), numbers<T>(x), numbers<T>(y), node.shape.numel());
    });
  };
  const bool recording = t_grad_enabled && (sum.requires_grad() || b.requires_grad());
  if (!recording && !sole_owner(sum) && sole_owner(b)) std::swap(sum, b);
  if (!recording && sole_owner(sum)) {
    add(sum, sum, b);
    return;
  }
  Tensor fresh = make_tensor(TensorAccess::node(sum)->shape, TensorAccess::node(sum)->dtype);
  add(fresh, sum, b);
  sum = recording ? record(kAccumulate, std::move(fresh), {sum, b}) : std::move(fresh);
}

Tensor ones(const Node& like) {
  Tensor one = make_tensor(like.shape, like.dtype);
  visit_float(like.dtype, "grad", [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(fresh_numbers<T>(one), one.numel(), T{1});
  });
  return one;
}

// One node as a pass sees it.
struct Entry {
  Node* node;
  std::uint32_t outer_slot;  // the node's slot in the pass around this one, given back at the end
  bool expand;               // its rule is to be called
  bool wanted;               // its gradient is a result
  Tensor gradient;
};

}  // namespace

// One pass. Private to this file but for Vjp, which is its window.
struct VjpState {
  enum class Mode { leaves, inputs };  // backward(): every leaf; grad(): paths to given inputs

  Mode mode;
  bool retain;
  bool anomaly;  // a guard lives: results are checked in set(), not inside rules
  PoolVector<Entry> table;
  std::uint32_t entered = 0;       // the size of the table
  std::uint64_t next = 0;          // (order, slot) of the waiting node with the largest order
  PoolVector<std::uint64_t> heap;  // of the others that wait, so that a chain needs no heap
  Node* current = nullptr;         // whose rule runs
  Tensor gy;

  VjpState(Mode pass_mode, bool retain_graph)
      : mode(pass_mode), retain(retain_graph), anomaly(std::exchange(t_anomaly, false)) {
    table.reserve(32);
    heap.reserve(32);
  }
  VjpState(const VjpState&) = delete;
  VjpState& operator=(const VjpState&) = delete;
  ~VjpState() {
    t_anomaly = anomaly;
    for (Entry& entry : table) entry.node->slot = entry.outer_slot;
    for (Entry& entry : table) drop_edge_in(*entry.node);
  }

  Entry* find(const Node& node) {
    return node.slot < entered && table[node.slot].node == &node ? &table[node.slot] : nullptr;
  }

  Entry& enter(Node& node) {
    Entry* known = find(node);
    return known ? *known : add(node);
  }
  [[gnu::noinline]] Entry& add(Node& node) {
    table.push_back({&node, node.slot, mode == Mode::leaves && node.op != nullptr, false, {}});
    node.slot = entered++;
    ++node.edges_in;  // the pass holds on to the node until it ends
    return table.back();
  }

  bool needed(const Node& node) {
    if (!node.requires_grad) return false;
    if (mode == Mode::leaves) return true;
    const Entry* entry = find(node);
    return entry && (entry->expand || entry->wanted);
  }

  // Input i of the op whose rule runs.
  const Edge& edge(int i) const {
    if (i < 0 || static_cast<std::uint32_t>(i) >= current->arity) {
      raise([this, i] {
        return GraphError(fmt::format("[{}] its rule names input {} of {}; inputs count from 0",
                                      current->op->name, i, current->arity));
      });
    }
    return current->edges[i];
  }

  // Adds a gradient to what has arrived at a node that is needed.
  void deliver(Node& node, Tensor&& gradient) {
    Entry& entry = enter(node);
    if (entry.gradient.defined()) {
      if (anomaly) check_sum(node, entry.gradient, gradient);
      accumulate(entry.gradient, std::move(gradient));
      return;
    }
    entry.gradient = std::move(gradient);
    // Leaves have nobody below and are finished at the end.
    if (node.op) wait(std::uint64_t{node.order} << 32 | node.slot);
  }

  // Keys of nodes that wait are never 0: what an op computed has an order above 0.
  void wait(std::uint64_t key) {
    if (key > next) std::swap(key, next);
    if (key != 0) wait_longer(key);
  }
  [[gnu::noinline]] void wait_longer(std::uint64_t key) {
    heap.push_back(key);
    std::push_heap(heap.begin(), heap.end());
  }
  std::uint32_t take_next() {
    const auto slot = static_cast<std::uint32_t>(next);
    next = 0;
    if (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      next = heap.back();
      heap.pop_back();
    }
    return slot;
  }

  void find_paths(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs);
  void call_hooks(std::uint32_t slot);
  void keep_gradient(std::uint32_t slot);
  void call_rule(Node& node);

  void run() {
    while (next != 0) {
      const std::uint32_t slot = take_next();
      Node& node = *table[slot].node;
      if (node.extras) {
        call_hooks(slot);
        if (mode == Mode::leaves && node.extras->retain_grad) table[slot].wanted = true;
      }
      if (!table[slot].expand) continue;
      // The gradient is freed with the rule's last use of it, unless it is a result.
      gy = table[slot].wanted ? table[slot].gradient : std::move(table[slot].gradient);
      call_rule(node);
    }
    for (std::uint32_t slot = 0; slot < entered; ++slot) {
      const Node& node = *table[slot].node;
      if (!node.op && node.extras && table[slot].gradient.defined()) call_hooks(slot);
    }
    if (mode == Mode::inputs) return;
    // Only now that nothing can throw any more: a pass that fails leaves every `.grad()` alone.
    for (std::uint32_t slot = 0; slot < entered; ++slot) {
      if (table[slot].gradient.defined()) keep_gradient(slot);
    }
  }
};

// A gradient is complete: hooks see it and may replace it.
void VjpState::call_hooks(std::uint32_t slot) {
  const Node& node = *table[slot].node;
  for (std::size_t i = 0; i < node.extras->hooks.size(); ++i) {
    const GradientHook hook = node.extras->hooks[i].second;
    Tensor replaced = hook(table[slot].gradient);
    if (!replaced.defined()) continue;
    if (replaced.shape() != node.shape) {
      throw ShapeError(fmt::format("[hook] a gradient must keep its shape: {} became {}",
                                   to_string(node.shape), to_string(replaced.shape())));
    }
    if (replaced.dtype() != node.dtype) {
      throw DtypeError(fmt::format("[hook] a gradient must keep its dtype: {} became {}",
                                   to_string(node.dtype), to_string(replaced.dtype())));
    }
    table[slot].gradient = std::move(replaced);
  }
}

// backward() puts a gradient where `.grad()` finds it.
void VjpState::keep_gradient(std::uint32_t slot) {
  Tensor gradient = std::move(table[slot].gradient);
  Tensor& sum = table[slot].node->ensure_extras().grad;
  if (sum.defined()) {
    accumulate(sum, std::move(gradient));
  } else {
    // Two leaves must never share one gradient: clipping the one in place would clip the other.
    const bool own = sole_owner(gradient);
    sum = own ? std::move(gradient) : gradient.detach().clone();
  }
}

void VjpState::call_rule(Node& node) {
  if (node.used_up) {
    raise([&node] {
      return GraphError(fmt::format(
          "[backward] the graph at op '{}' was freed by an earlier pass; give that pass "
          "{{.retain_graph = true}}",
          node.op->name));
    });
  }
  current = &node;
  Vjp window(*this);
  node.op->vjp(window);
  gy = Tensor();
  if (!retain) use_up(node);
}

// Marks the nodes between outputs and inputs: those whose rule leads to an input. Depth first with
// a stack of its own; nodes older than every input cannot lead to one.
void VjpState::find_paths(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs) {
  std::uint32_t oldest = std::numeric_limits<std::uint32_t>::max();
  for (const Tensor& input : inputs) {
    Node& node = *TensorAccess::node(input);
    enter(node).wanted = true;
    oldest = std::min(oldest, node.order);
  }
  struct Visit {
    std::uint32_t slot;
    std::uint32_t next_edge;
  };
  PoolVector<Visit> stack;
  PoolVector<bool> visited;
  const auto visit = [&](Node& node) {
    if (!node.requires_grad || node.order < oldest) return false;
    enter(node);
    visited.resize(table.size(), false);
    if (visited[node.slot]) return false;
    visited[node.slot] = true;
    stack.push_back({node.slot, 0});
    return true;
  };
  for (const Tensor& output : outputs) {
    visit(*TensorAccess::node(output));
    while (!stack.empty()) {
      Visit& top = stack.back();
      const Node& node = *table[top.slot].node;
      if (top.next_edge > 0) {
        const Entry* below = find(*node.edges[top.next_edge - 1].node);
        if (below && (below->expand || below->wanted)) table[top.slot].expand = true;
      }
      if (top.next_edge == node.arity) {
        // A used-up node has lost its inputs: call_rule says so if the pass gets there.
        if (node.used_up) table[top.slot].expand = true;
        stack.pop_back();
        continue;
      }
      ++top.next_edge;
      visit(*node.edges[top.next_edge - 1].node);
    }
  }
}

}  // namespace detail

const Tensor& Vjp::gy() const { return state_.gy; }
int Vjp::arity() const { return static_cast<int>(state_.current->arity); }
const Shape& Vjp::x_shape(int i) const { return state_.edge(i).node->shape; }
DType Vjp::x_dtype(int i) const { return state_.edge(i).node->dtype; }
bool Vjp::needs(int i) const { return state_.needed(*state_.edge(i).node); }
bool Vjp::recording() const { return detail::t_grad_enabled; }
const detail::Attributes* Vjp::raw_attributes() const { return state_.current->attributes; }

Tensor Vjp::x(int i) const {
  const detail::Node& node = *state_.current;
  const detail::Edge& edge = state_.edge(i);
  if (!edge.saved) {
    detail::raise([&node, i] {
      return GraphError(fmt::format(
          "[{}] its rule asks for input {}, which the op does not save; name it in OpInfo::saves",
          node.op->name, i));
    });
  }
  if (edge.node->storage->version != edge.version) {
    detail::raise([&node, &edge, i] {
      const Tensor x = detail::TensorAccess::adopt(edge.node);
      return GraphError(fmt::format(
          "[{}] {} was changed in place after the forward pass: version {}, saved at {}; update "
          "parameters after backward, not before",
          node.op->name, detail::label(x, fmt::format("input {}", i)), x.version(), edge.version));
    });
  }
  return detail::TensorAccess::adopt(edge.node);
}

Tensor Vjp::y() const {
  detail::Node& node = *state_.current;
  if (!node.keeps_output) {
    detail::raise([&node] {
      return GraphError(fmt::format(
          "[{}] its rule asks for the output, which the op does not save; name it in OpInfo::saves",
          node.op->name));
    });
  }
  if (node.storage->version != node.output_version) {
    detail::raise([&node] {
      return GraphError(fmt::format(
          "[{}] the output was changed in place after the forward pass: version {}, saved at {}",
          node.op->name, node.storage->version, node.output_version));
    });
  }
  return detail::TensorAccess::adopt(&node);
}

void Vjp::set(int i, Tensor gx) {
  detail::Node& input = *state_.edge(i).node;
  if (!gx.defined() || !state_.needed(input)) return;
  const detail::Node& node = *state_.current;
  const detail::Node& given = *detail::TensorAccess::node(gx);
  if (given.shape != input.shape) {
    detail::raise([&node, &given, &input, i] {
      return ShapeError(
          fmt::format("[{}] its rule gave input {} of shape {} a gradient of shape {}",
                      node.op->name, i, to_string(input.shape), to_string(given.shape)));
    });
  }
  if (given.dtype != input.dtype) {
    detail::raise([&node, &given, &input, i] {
      return DtypeError(
          fmt::format("[{}] its rule gave input {} of dtype {} a gradient of dtype {}",
                      node.op->name, i, to_string(input.dtype), to_string(given.dtype)));
    });
  }
  if (state_.anomaly) detail::check_gradient(node, i, gx, state_.gy);
  state_.deliver(input, std::move(gx));
}

namespace {

void check_upstream(const char* op, const Tensor& output, const Tensor& upstream) {
  if (!upstream.defined()) {
    if (output.numel() != 1) {
      throw GraphError(fmt::format(
          "[{}] the output must be a scalar: got shape {}; reduce it, or pass an upstream gradient",
          op, to_string(output.shape())));
    }
    return;
  }
  if (upstream.shape() != output.shape()) {
    throw ShapeError(fmt::format("[{}] an upstream gradient must match its output: {} and {}", op,
                                 to_string(upstream.shape()), to_string(output.shape())));
  }
  if (upstream.dtype() != output.dtype()) {
    throw DtypeError(fmt::format("[{}] an upstream gradient must match its output: {} and {}", op,
                                 to_string(upstream.dtype()), to_string(output.dtype())));
  }
}

// name() makes the argument's name, for the message alone.
template <class Name>
void check_differentiable(const char* op, const Tensor& t, Name name) {
  if (t.defined() && detail::TensorAccess::node(t)->requires_grad) return;
  const std::string argument = name();
  throw GraphError(fmt::format(
      "[{}] {} {} needs no gradient: it was computed from constants, under NoGrad or after "
      "detach; call requires_grad_() on the leaves first",
      op, argument, to_string(detail::node_of(op, argument.c_str(), t).shape)));
}

}  // namespace

std::vector<Tensor> grad(const TensorList& outputs, const TensorList& inputs,
                         const GradOptions& options) {
  const auto& from = *outputs;
  const auto& to = *inputs;
  if (from.empty()) throw GraphError("[grad] needs at least one output");
  if (!options.grad_outputs.empty() && options.grad_outputs.size() != from.size()) {
    throw GraphError(fmt::format("[grad] needs one grad_output per output: {} for {}",
                                 options.grad_outputs.size(), from.size()));
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    check_differentiable("grad", from[i], [&] { return fmt::format("output {}", i); });
    check_upstream("grad", from[i],
                   options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i]);
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    check_differentiable("grad", to[i],
                         [&] { return detail::label(to[i], fmt::format("input {}", i)); });
  }

  const GradMode mode(options.create_graph);
  detail::VjpState pass(detail::VjpState::Mode::inputs,
                        options.retain_graph.value_or(options.create_graph));
  pass.find_paths(from, to);
  for (std::size_t i = 0; i < from.size(); ++i) {
    detail::Node& node = *detail::TensorAccess::node(from[i]);
    const bool given = !options.grad_outputs.empty() && options.grad_outputs[i].defined();
    if (!pass.needed(node)) continue;
    pass.deliver(node, Tensor(given ? options.grad_outputs[i] : detail::ones(node)));
  }
  pass.run();

  std::vector<Tensor> gradients;
  gradients.reserve(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    gradients.push_back(pass.find(*detail::TensorAccess::node(to[i]))->gradient);
    if (!gradients.back().defined() && !options.allow_unused) {
      throw GraphError(
          fmt::format("[grad] {} {} was not used to compute the outputs; pass "
                      "{{.allow_unused = true}} for an undefined gradient",
                      detail::label(to[i], fmt::format("input {}", i)), to_string(to[i].shape())));
    }
  }
  return gradients;
}

void Tensor::backward() const { backward(BackwardOptions{}); }

void Tensor::backward(const BackwardOptions& options) const {
  check_differentiable("backward", *this, [&] { return detail::label(*this, "this tensor"); });
  check_upstream("backward", *this, options.gradient);
  const NoGrad mode;
  detail::VjpState pass(detail::VjpState::Mode::leaves, options.retain_graph);
  detail::Node& node = *detail::TensorAccess::node(*this);
  pass.deliver(node, Tensor(options.gradient.defined() ? options.gradient : detail::ones(node)));
  pass.run();
}

}  // namespace softtape
