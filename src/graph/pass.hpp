// One backward pass: which nodes it has met, what has arrived at each, and whose turn is next.
// backward.cpp says how it goes.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "graph/anomaly.hpp"
#include "graph/node.hpp"

namespace softtape::detail {

/// sum = sum + b, in the memory of one of them when nobody else can see it.
void accumulate(Tensor& sum, Tensor&& b);

/// One node as a pass sees it.
struct Entry {
  Node* node;
  std::uint32_t outer_slot;  // the node's slot in the pass around this one, given back at the end
  bool expand = false;       // its rule is to be called
  bool wanted = false;       // its gradient is a result
  bool reached = false;      // grad(): an output was computed from it
  Tensor gradient;
};

/// Entries to make room for: as many as the thread's last pass had, which often was over the same
/// model, between 256 and 65536.
extern constinit thread_local std::uint32_t t_usual_entries
    __attribute__((tls_model("initial-exec")));

/// One pass. What a rule sees of it is Vjp.
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
    table.reserve(t_usual_entries);
    heap.reserve(32);
  }
  VjpState(const VjpState&) = delete;
  VjpState& operator=(const VjpState&) = delete;
  ~VjpState() {
    t_anomaly = anomaly;
    t_usual_entries = std::clamp<std::uint32_t>(entered, 256, 1 << 16);
    for (Entry& entry : table) {
      entry.node->slot = entry.outer_slot;
      drop_edge_in(*entry.node);
    }
  }

  Entry* find(const Node& node) {
    return node.slot < entered && table[node.slot].node == &node ? &table[node.slot] : nullptr;
  }

  Entry& enter(Node& node) {
    Entry* known = find(node);
    return known ? *known : add(node);
  }
  [[gnu::noinline]] Entry& add(Node& node) {
    if (table.size() == table.capacity()) grow();
    if (table.size() == table.capacity()) __builtin_unreachable();  // growing is not for here
    Entry& entry = table.emplace_back();
    entry.node = &node;
    entry.outer_slot = node.slot;
    entry.expand = mode == Mode::leaves && node.op != nullptr;
    node.slot = entered++;
    ++node.edges_in;  // the pass holds on to the node until it ends
    return entry;
  }

  [[gnu::noinline]] void grow() { table.reserve(2 * table.capacity()); }

  bool needed(const Node& node) {
    if (!node.requires_grad) return false;
    if (mode == Mode::leaves) return true;
    const Entry* entry = find(node);
    return entry && (entry->expand || entry->wanted);
  }

  // Input i of the op whose rule runs.
  const Edge& edge(int i) const {
    if (static_cast<std::uint32_t>(i) >= current->arity) {
      raise([this, i] {
        return GraphError(fmt::format("[{}] its rule names input {} of {}; inputs count from 0",
                                      current->op->name, i, current->arity));
      });
    }
    return current->edges[i];
  }
  // Inlined always: compilers call it from files that are full of loops.
  [[gnu::always_inline]] bool needs(int i) { return needed(*edge(i).node); }

  // gy, for the rule's last use of it; checks want it once more.
  Tensor last_gy() { return anomaly ? gy : std::move(gy); }

  // Input i of the op whose rule runs, as it was saved.
  Node& saved(int i) const {
    const Edge& from = edge(i);
    if (!from.saved || from.node->storage->version != from.version) throw_not_as_saved(i);
    return *from.node;
  }
  [[noreturn, gnu::cold]] void throw_not_as_saved(int i) const;

  /// The pass whose rule runs, for rules of the library that know their gradient to fit.
  static VjpState& of(Vjp& window) { return window.state_; }

  // Adds a gradient to what has arrived at a node that is needed.
  void deliver(Node& node, Tensor&& gradient);

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

  void run();
};

}  // namespace softtape::detail
