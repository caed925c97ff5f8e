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
#include "graph/pass.hpp"

namespace softtape {
namespace detail {

constinit thread_local std::uint32_t t_usual_entries = 256;

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

// Single numbers without the loop's set-up.
template <class T>
void add_numbers(const Tensor& into, const Tensor& a, const Tensor& b) {
  const std::int64_t n = TensorAccess::node(into)->shape.numel();
  if (n == 1) {
    *fresh_numbers<T>(into) = *numbers<T>(a) + *numbers<T>(b);
  } else {
    add_rows(fresh_numbers<T>(into), numbers<T>(a), numbers<T>(b), n);
  }
}
// into = a + b, which may be one of them.
void add_into(const Tensor& into, const Tensor& a, const Tensor& b) {
  if (TensorAccess::node(into)->dtype == DType::float32) {
    add_numbers<float>(into, a, b);
  } else {
    add_numbers<double>(into, a, b);
  }
}

[[noreturn, gnu::cold]] void throw_used_up(const Node& node) {
  throw GraphError(
      fmt::format("[backward] the graph at op '{}' was freed by an earlier pass; give that pass "
                  "{{.retain_graph = true}}",
                  node.op->name));
}

}  // namespace

void accumulate(Tensor& sum, Tensor&& b) {
  const bool recording = t_grad_enabled && (sum.requires_grad() || b.requires_grad());
  if (!recording && !sole_owner(sum) && sole_owner(b)) std::swap(sum, b);
  if (!recording && sole_owner(sum)) {
    add_into(sum, sum, b);
    return;
  }
  Tensor fresh = make_tensor(TensorAccess::node(sum)->shape, TensorAccess::node(sum)->dtype);
  add_into(fresh, sum, b);
  sum = recording ? record(kAccumulate, std::move(fresh), {sum, b}) : std::move(fresh);
}

void VjpState::deliver(Node& node, Tensor&& gradient) {
  Entry& entry = enter(node);
  if (entry.gradient.defined()) {
    if (anomaly) check_sum(node, entry.gradient, gradient);
    accumulate(entry.gradient, std::move(gradient));
    return;
  }
  swap(entry.gradient, gradient);
  // Leaves have nobody below and are finished at the end.
  if (node.op) wait(std::uint64_t{node.order} << 32 | node.slot);
}

void VjpState::run() {
  while (next != 0) {
    const std::uint32_t slot = take_next();
    Node& node = *table[slot].node;
    if (node.extras) {
      call_hooks(slot);
      if (mode == Mode::leaves && node.extras->retain_grad) table[slot].wanted = true;
    }
    if (!table[slot].expand) continue;
    // The gradient is freed with the rule's last use of it, unless it is a result.
    if (table[slot].wanted) {
      gy = table[slot].gradient;
    } else {
      swap(gy, table[slot].gradient);
    }
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

// A gradient is complete: hooks see it and may replace it. They may also remove hooks: `i` then
// stands on the next one already.
void VjpState::call_hooks(std::uint32_t slot) {
  const Node& node = *table[slot].node;
  const auto& hooks = node.extras->hooks;
  for (std::size_t i = 0; i < hooks.size();) {
    const auto [number, hook] = hooks[i];
    Tensor replaced = hook(table[slot].gradient);
    if (i < hooks.size() && hooks[i].first == number) ++i;
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
  if (node.used_up) throw_used_up(node);
  current = &node;
  Vjp window(*this);
  node.op->vjp(window);
  if (gy.defined()) gy = Tensor();
  if (!retain) use_up(node);
}

void VjpState::throw_not_as_saved(int i) const {
  const Edge& from = edge(i);
  if (!from.saved) {
    throw GraphError(fmt::format(
        "[{}] its rule asks for input {}, which the op does not save; name it in OpInfo::saves",
        current->op->name, i));
  }
  const Tensor x = TensorAccess::adopt(from.node);
  throw GraphError(fmt::format(
      "[{}] {} was changed in place after the forward pass: version {}, saved at {}; update "
      "parameters after backward, not before",
      current->op->name, label(x, fmt::format("input {}", i)), x.version(), from.version));
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
        // A used-up node has lost its inputs; an input that is older may have been among them.
        if (node.used_up && node.order > oldest) throw_used_up(node);
        stack.pop_back();
        continue;
      }
      ++top.next_edge;
      visit(*node.edges[top.next_edge - 1].node);
    }
  }
  visited.resize(entered, false);
  for (std::uint32_t slot = 0; slot < entered; ++slot) table[slot].reached = visited[slot];
}

}  // namespace detail

const Tensor& Vjp::gy() const { return state_.gy; }
int Vjp::arity() const { return static_cast<int>(state_.current->arity); }
const Shape& Vjp::x_shape(int i) const { return state_.edge(i).node->shape; }
DType Vjp::x_dtype(int i) const { return state_.edge(i).node->dtype; }
bool Vjp::needs(int i) const { return state_.needs(i); }
bool Vjp::recording() const { return detail::t_grad_enabled; }
const detail::Attributes* Vjp::raw_attributes() const { return state_.current->attributes; }

Tensor Vjp::x(int i) const { return detail::TensorAccess::adopt(&state_.saved(i)); }

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

}  // namespace softtape
