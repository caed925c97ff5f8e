// Derivatives, all made of grad(): rows by one upstream gradient each, second ones by
// differentiating gradients, the jvp by differentiating the vjp with respect to its upstream
// gradient.
#include "softtape/study/derivatives.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/node.hpp"

namespace softtape::detail {
namespace {

Tensor filled(const Shape& shape, DType dtype, double value) {
  return make_tensor(shape, dtype).fill_(value);
}

// The same numbers as leaves that are differentiated; integers and booleans as they are.
std::vector<Tensor> leaves_of(const char* op, const std::vector<Tensor>& inputs) {
  if (inputs.empty()) throw ValueError(fmt::format("[{}] needs at least one input", op));
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_defined(op, fmt::format("input {}", i).c_str(), inputs[i]);
    leaves.push_back(inputs[i].detach());
    if (!inputs[i].name().empty()) leaves.back().named(inputs[i].name());
    if (is_floating(leaves.back().dtype())) leaves.back().requires_grad_();
  }
  return leaves;
}

std::vector<Tensor> floats_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> floats;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(floats),
               [](const Tensor& t) { return is_floating(t.dtype()); });
  return floats;
}

void check_like(const char* op, const std::string& what, const Tensor& t, const Tensor& like) {
  check_float(op, what.c_str(), t);
  if (t.shape() != like.shape()) {
    throw ShapeError(fmt::format("[{}] {} must have shape {}: got {}", op, what,
                                 to_string(like.shape()), to_string(t.shape())));
  }
  if (t.dtype() != like.dtype()) {
    throw DtypeError(fmt::format("[{}] {} must be {}: got {}", op, what, to_string(like.dtype()),
                                 to_string(t.dtype())));
  }
}

Tensor result_of(const char* op, const TensorFunction& f, const std::vector<Tensor>& x) {
  Tensor y = f(x);
  check_float(op, "the result", y);
  return y;
}

Tensor number_of(const char* op, const TensorFunction& f, const Tensor& x) {
  Tensor y = result_of(op, f, {x});
  if (y.numel() != 1) {
    throw ShapeError(
        fmt::format("[{}] the function must return one number: got shape {}; reduce it", op,
                    to_string(y.shape())));
  }
  return y;
}

// Gradients of <gy, y>; zeros for inputs that y does not depend on.
std::vector<Tensor> gradients_of(const Tensor& y, const std::vector<Tensor>& inputs,
                                 const Tensor& gy, bool create_graph) {
  std::vector<Tensor> gradients(inputs.size());
  if (y.requires_grad()) {
    gradients = grad(y, inputs,
                     {.grad_outputs = {gy},
                      .retain_graph = true,
                      .create_graph = create_graph,
                      .allow_unused = true});
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = filled(inputs[i].shape(), inputs[i].dtype(), 0);
  }
  return gradients;
}

Shape joined(const char* op, const Shape& rows, const Shape& columns) {
  if (rows.rank() + columns.rank() > Shape::kMaxRank) {
    throw ShapeError(fmt::format(
        "[{}] the result has the axes of {} and of {}, more than {}; flatten inputs or outputs", op,
        to_string(rows), to_string(columns), Shape::kMaxRank));
  }
  std::vector<std::int64_t> sizes(rows.begin(), rows.end());
  sizes.insert(sizes.end(), columns.begin(), columns.end());
  return Shape(sizes);
}

// d y / d x, one backward pass per number of y.
Tensor rows_of(const char* op, const Tensor& y, const Tensor& x) {
  Tensor rows = make_tensor(joined(op, y.shape(), x.shape()), x.dtype());
  Tensor unit = filled(y.shape(), y.dtype(), 0);
  const auto bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const auto set_unit = [&](double value) {
      visit_float(unit.dtype(), op, [&](auto zero) {
        using T = decltype(zero);
        unit.mutable_data<T>()[static_cast<std::size_t>(i)] = static_cast<T>(value);
      });
    };
    set_unit(1);
    const Tensor row = gradients_of(y, {x}, unit, false)[0];
    set_unit(0);
    std::copy_n(numbers<char>(row), bytes,
                fresh_numbers<char>(rows) + static_cast<std::size_t>(i) * bytes);
  }
  return rows;
}

}  // namespace

std::vector<Tensor> vjp(const TensorFunction& f, const std::vector<Tensor>& inputs,
                        const Tensor& gy) {
  const EnableGrad mode;
  const std::vector<Tensor> leaves = leaves_of("vjp", inputs);
  const Tensor y = result_of("vjp", f, leaves);
  check_like("vjp", "gy", gy, y);
  const std::vector<Tensor> gradients = gradients_of(y, floats_of(leaves), gy, false);
  std::vector<Tensor> placed(inputs.size());
  for (std::size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (is_floating(inputs[i].dtype())) placed[i] = gradients[next++];
  }
  return placed;
}

Tensor jvp(const TensorFunction& f, const std::vector<Tensor>& inputs,
           const std::vector<Tensor>& tangents) {
  const EnableGrad mode;
  const std::vector<Tensor> leaves = leaves_of("jvp", inputs);
  if (tangents.size() != inputs.size()) {
    throw ValueError(fmt::format("[jvp] needs one tangent per input: got {} for {}",
                                 tangents.size(), inputs.size()));
  }
  std::vector<Tensor> moving;
  GradOptions options{.allow_unused = true};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!tangents[i].defined()) continue;
    check_like("jvp", fmt::format("tangent {}", i), tangents[i], inputs[i]);
    moving.push_back(leaves[i]);
    options.grad_outputs.push_back(tangents[i].detach());
  }
  const Tensor y = result_of("jvp", f, leaves);
  // The vjp is linear in gy, so any gy does; ones meet no rule's treatment of exact zeros.
  const Tensor gy = filled(y.shape(), y.dtype(), 1).requires_grad_();
  std::vector<Tensor> gradients = gradients_of(y, moving, gy, true);
  std::vector<Tensor> connected;
  std::vector<Tensor> directions;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].requires_grad()) continue;
    connected.push_back(gradients[i]);
    directions.push_back(options.grad_outputs[i]);
  }
  Tensor moved;
  if (!connected.empty()) {
    options.grad_outputs = directions;
    moved = grad(connected, gy, options)[0];
  }
  return moved.defined() ? moved : filled(y.shape(), y.dtype(), 0);
}

Tensor jacobian(const TensorFunction& f, const Tensor& x) {
  const EnableGrad mode;
  check_float("jacobian", "x", x);
  const Tensor leaf = leaves_of("jacobian", {x})[0];
  return rows_of("jacobian", result_of("jacobian", f, {leaf}), leaf);
}

Tensor hessian(const TensorFunction& f, const Tensor& x) {
  const EnableGrad mode;
  check_float("hessian", "x", x);
  joined("hessian", x.shape(), x.shape());
  const Tensor leaf = leaves_of("hessian", {x})[0];
  const Tensor y = number_of("hessian", f, leaf);
  const Tensor gradient = gradients_of(y, {leaf}, filled(y.shape(), y.dtype(), 1), true)[0];
  return rows_of("hessian", gradient, leaf);
}

Tensor hvp(const TensorFunction& f, const Tensor& x, const Tensor& v) {
  const EnableGrad mode;
  check_float("hvp", "x", x);
  check_like("hvp", "v", v, x);
  const Tensor leaf = leaves_of("hvp", {x})[0];
  const Tensor y = number_of("hvp", f, leaf);
  const Tensor gradient = gradients_of(y, {leaf}, filled(y.shape(), y.dtype(), 1), true)[0];
  return gradients_of(gradient, {leaf}, v.detach(), false)[0];
}

}  // namespace softtape::detail
