// Walks a graph from its outputs, nearest nodes first, and writes what it found.
#include "softtape/study/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "graph/node.hpp"

namespace softtape {

namespace {

using detail::Node;

std::optional<ValueRange> range_of(const Node& node) {
  const std::int64_t n = node.shape.numel();
  if (!node.storage || n == 0) return {};
  ValueRange range{HUGE_VAL, -HUGE_VAL, 0};
  visit_any(node.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* numbers = static_cast<const T*>(node.storage->data());
    for (std::int64_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(numbers[i]);
      if (!std::isfinite(x)) {
        ++range.not_finite;
        continue;
      }
      range.low = std::min(range.low, x);
      range.high = std::max(range.high, x);
    }
  });
  return range;
}

std::optional<double> gradient_norm(const Tensor& gradient) {
  if (!gradient.defined()) return {};
  // Scaled by the largest number, so that no square overflows.
  const std::vector<double> numbers = gradient.to_vector();
  double largest = 0;
  for (const double x : numbers) largest = std::max(largest, std::abs(x));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (const double x : numbers) sum += x / largest * (x / largest);
  return largest * std::sqrt(sum);
}

TraceRow row_of(const Node& node, bool values) {
  TraceRow row;
  if (node.op) row.op = node.op->name;
  row.shape = node.shape;
  row.dtype = node.dtype;
  row.requires_grad = node.requires_grad;
  row.freed = node.used_up;
  if (values) row.values = range_of(node);
  if (node.extras) {
    row.name = node.extras->name;
    row.gradient_norm = gradient_norm(node.extras->grad);
    row.site = node.extras->site;
  }
  return row;
}

std::string range_text(const TraceRow& row) {
  if (!row.values) return row.shape.numel() == 0 ? "empty" : "not kept";
  const ValueRange& v = *row.values;
  const std::string range = v.low > v.high    ? "none finite"
                            : v.low == v.high ? fmt::format("{:.4g}", v.low)
                                              : fmt::format("{:.4g} to {:.4g}", v.low, v.high);
  return v.not_finite ? fmt::format("{}, {} not finite", range, v.not_finite) : range;
}

std::string op_text(const TraceRow& row) {
  if (!row.op.empty()) return row.op;
  return row.requires_grad ? "leaf" : "constant";
}

std::string inputs_text(const TraceRow& row) {
  if (row.freed) return "freed";
  std::string text;
  for (const std::int64_t input : row.inputs) {
    text += (text.empty() ? "" : ", ") + (input < 0 ? "..." : fmt::format("{}", input));
  }
  return text;
}

std::string left_out_text(std::int64_t left_out) {
  return fmt::format("{} more node{} farther from the outputs", left_out, left_out == 1 ? "" : "s");
}

// Text inside a quoted DOT string.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

Trace trace(const TensorList& outputs, const TraceOptions& options) {
  if (options.max_nodes < 1) {
    throw ValueError(
        fmt::format("[trace] max_nodes must be at least 1: got {}", options.max_nodes));
  }
  std::unordered_map<const Node*, std::int64_t> seen;  // to the row, -1 until there is one
  std::deque<const Node*> queue;
  std::vector<const Node*> shown;
  const auto visit = [&](const Node& node) {
    if (seen.emplace(&node, -1).second) queue.push_back(&node);
  };
  for (std::size_t i = (*outputs).size(); i > 0; --i) {
    visit(detail::node_of("trace", fmt::format("output {}", i - 1).c_str(), (*outputs)[i - 1]));
  }
  while (!queue.empty()) {
    const Node& node = *queue.front();
    queue.pop_front();
    if (static_cast<std::int64_t>(shown.size()) < options.max_nodes) shown.push_back(&node);
    // Last input first: the list is reversed below.
    for (std::uint32_t i = node.arity; i > 0; --i) visit(*node.edges[i - 1].node);
  }

  // Found from the outputs backwards; read from the inputs forwards.
  std::reverse(shown.begin(), shown.end());
  std::stable_sort(shown.begin(), shown.end(),
                   [](const Node* a, const Node* b) { return a->order < b->order; });
  Trace result;
  result.left_out = static_cast<std::int64_t>(seen.size() - shown.size());
  for (const Node* node : shown) {
    seen[node] = static_cast<std::int64_t>(result.rows.size());
    TraceRow& row = result.rows.emplace_back(row_of(*node, options.values));
    for (std::uint32_t i = 0; i < node->arity; ++i) row.inputs.push_back(seen[node->edges[i].node]);
  }
  return result;
}

std::string to_string(const Trace& trace) {
  constexpr std::size_t kColumns = 8;
  using Line = std::array<std::string, kColumns>;
  std::vector<Line> lines{{"#", "op", "name", "shape", "inputs", "values", "|grad|", "line"}};
  for (std::size_t i = 0; i < trace.rows.size(); ++i) {
    const TraceRow& row = trace.rows[i];
    lines.push_back({fmt::format("{}", i), op_text(row), row.name, to_string(row.shape),
                     inputs_text(row), range_text(row),
                     row.gradient_norm ? fmt::format("{:.4g}", *row.gradient_norm) : "",
                     row.site.file ? fmt::format("{}:{}", row.site.file, row.site.line) : ""});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (std::size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string padded;
    for (std::size_t c = 0; c < kColumns; ++c)
      padded += fmt::format("{:<{}}  ", line[c], widths[c]);
    padded.erase(padded.find_last_not_of(' ') + 1);
    text += (text.empty() ? "" : "\n") + padded;
  }
  if (trace.left_out > 0) text += "\n... " + left_out_text(trace.left_out);
  return text;
}

std::string to_dot(const TensorList& outputs, const TraceOptions& options) {
  const Trace graph = trace(outputs, options);
  std::string text =
      "digraph softtape {\n"
      "  node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\"];\n";
  for (std::size_t i = 0; i < graph.rows.size(); ++i) {
    const TraceRow& row = graph.rows[i];
    std::string label = quoted(row.name.empty() ? op_text(row) : row.name);
    if (!row.name.empty() && !row.op.empty()) label += "\\n" + quoted(row.op);
    label += "\\n" + to_string(row.shape);
    if (row.values) label += "\\n" + range_text(row);
    if (row.gradient_norm) label += fmt::format("\\n|grad| {:.4g}", *row.gradient_norm);
    const char* color = !row.op.empty() ? "white" : row.requires_grad ? "lightblue" : "lightgray";
    text += fmt::format("  n{} [label=\"{}\", fillcolor={}];\n", i, label, color);
  }
  if (graph.left_out > 0) {
    text += fmt::format("  more [label=\"{}\", style=dashed];\n", left_out_text(graph.left_out));
  }
  for (std::size_t i = 0; i < graph.rows.size(); ++i) {
    for (const std::int64_t input : graph.rows[i].inputs) {
      text += input < 0 ? fmt::format("  more -> n{} [style=dashed];\n", i)
                        : fmt::format("  n{} -> n{};\n", input, i);
    }
  }
  return text + "}\n";
}

}  // namespace softtape
