// grad() and backward(): what they refuse, and the pass they run.
#include "softtape/graph/grad.hpp"

#include <fmt/format.h>

#include "graph/pass.hpp"

namespace softtape {

namespace {

Tensor ones(const detail::Node& like) {
  Tensor one = detail::make_tensor(like.shape, like.dtype);
  visit_float(like.dtype, "grad", [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(detail::fresh_numbers<T>(one), one.numel(), T{1});
  });
  return one;
}

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
  const auto unused = [&](std::size_t i) {
    return GraphError(
        fmt::format("[grad] {} {} was not used to compute the outputs; pass "
                    "{{.allow_unused = true}} for an undefined gradient",
                    detail::label(to[i], fmt::format("input {}", i)), to_string(to[i].shape())));
  };
  for (std::size_t i = 0; i < to.size() && !options.allow_unused; ++i) {
    if (!pass.find(*detail::TensorAccess::node(to[i]))->reached) throw unused(i);
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    detail::Node& node = *detail::TensorAccess::node(from[i]);
    const bool given = !options.grad_outputs.empty() && options.grad_outputs[i].defined();
    if (!pass.needed(node)) continue;
    pass.deliver(node, Tensor(given ? options.grad_outputs[i] : ones(node)));
  }
  pass.run();

  std::vector<Tensor> gradients;
  gradients.reserve(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    gradients.push_back(pass.find(*detail::TensorAccess::node(to[i]))->gradient);
    // A rule may have given it nothing.
    if (!gradients.back().defined() && !options.allow_unused) throw unused(i);
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
  pass.deliver(node, Tensor(options.gradient.defined() ? options.gradient : ones(node)));
  pass.run();
}

}  // namespace softtape
