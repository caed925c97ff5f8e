// What a Tensor handle can tell and do, apart from ops.
#include "softtape/graph/tensor.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/loops.hpp"
#include "graph/node.hpp"

namespace softtape {

namespace {

const OpInfo kClone{"clone", [](Vjp& r) { r.set(0, r.gy()); }};

// Only a leaf may change in place, and only where no recording would miss it.
detail::Node& writable(const char* op, const Tensor& t) {
  detail::Node& node = detail::node_of(op, "this", t);
  if (node.op) {
    throw GraphError(fmt::format(
        "[{}] only a leaf may change in place: {} was computed by op '{}'; detach it or use the op "
        "that returns a new tensor",
        op, detail::label(t, "this tensor"), node.op->name));
  }
  if (node.requires_grad && detail::t_grad_enabled) {
    throw GraphError(
        fmt::format("[{}] {} requires a gradient: change it inside a scope with `NoGrad guard;`",
                    op, detail::label(t, "this leaf")));
  }
  return node;
}

// The same for an update from another tensor. Throws before anything has changed.
detail::Node& writable_from(const char* op, const Tensor& t, const Tensor& y) {
  detail::Node& node = writable(op, t);
  detail::check_defined(op, "the source", y);
  if (y.shape() != node.shape) {
    throw ShapeError(fmt::format("[{}] shapes must be equal: this is {}, the source is {}", op,
                                 to_string(node.shape), to_string(y.shape())));
  }
  if (y.dtype() != node.dtype) {
    throw DtypeError(fmt::format("[{}] dtypes must be equal: this is {}, the source is {}", op,
                                 to_string(node.dtype), to_string(y.dtype())));
  }
  return node;
}

void add_scaled(const char* op, Tensor& t, const Tensor& y, double scale) {
  detail::check_float(op, "this", t);
  detail::Node& node = writable_from(op, t, y);
  visit_float(node.dtype, op, [&](auto zero) {
    using T = decltype(zero);
    T* x = static_cast<T*>(node.storage->data());
    const T* from = detail::numbers<T>(y);
    const T factor = static_cast<T>(scale);
    detail::for_ranges(node.shape.numel(), detail::kGrain,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) x[i] += factor * from[i];
                       });
  });
  ++node.storage->version;
}

}  // namespace

const Shape& Tensor::shape() const { return detail::node_of("shape", "this", *this).shape; }
DType Tensor::dtype() const { return detail::node_of("dtype", "this", *this).dtype; }

const void* Tensor::const_data(DType dtype) const {
  const auto& node = detail::node_of("data", "this", *this);
  if (node.dtype != dtype) {
    throw DtypeError(fmt::format("[data] the tensor holds {}, asked for {}", to_string(node.dtype),
                                 to_string(dtype)));
  }
  return node.storage->data();
}

void* Tensor::writable_data(const char* op, DType dtype) {
  detail::Node& node = writable(op, *this);
  const_data(dtype);
  ++node.storage->version;
  return node.storage->data();
}

double Tensor::item() const {
  const auto& node = detail::node_of("item", "this", *this);
  if (node.shape.numel() != 1) {
    throw ShapeError(
        fmt::format("[item] needs exactly one element: the shape is {}; index or reduce",
                    to_string(node.shape)));
  }
  return visit_any(node.dtype, [&](auto zero) {
    return static_cast<double>(*detail::numbers<decltype(zero)>(*this));
  });
}

bool Tensor::requires_grad() const {
  return detail::node_of("requires_grad", "this", *this).requires_grad;
}

Tensor& Tensor::requires_grad_(bool on) {
  detail::Node& node = detail::node_of("requires_grad_", "this", *this);
  if (node.op) {
    throw GraphError(
        fmt::format("[requires_grad_] only a leaf can be asked: {} was computed by op "
                    "'{}'; detach it first",
                    detail::label(*this, "this tensor"), node.op->name));
  }
  if (on) detail::check_float("requires_grad_", "this", *this);
  node.requires_grad = on;
  return *this;
}

bool Tensor::is_leaf() const { return !detail::node_of("is_leaf", "this", *this).op; }

Tensor Tensor::grad() const {
  const auto& node = detail::node_of("grad", "this", *this);
  return node.extras ? node.extras->grad : Tensor();
}

void Tensor::set_grad(const Tensor& gradient) {
  detail::Node& node = detail::node_of("set_grad", "this", *this);
  if (gradient.defined()) {
    if (gradient.shape() != node.shape) {
      throw ShapeError(
          fmt::format("[set_grad] shapes must be equal: this is {}, the gradient is {}",
                      to_string(node.shape), to_string(gradient.shape())));
    }
    if (gradient.dtype() != node.dtype) {
      throw DtypeError(
          fmt::format("[set_grad] dtypes must be equal: this is {}, the gradient is {}",
                      to_string(node.dtype), to_string(gradient.dtype())));
    }
  }
  if (gradient.defined() || node.extras) {
    // Detached, so that a leaf, its gradient and a graph can never form a cycle.
    node.ensure_extras().grad = gradient.defined() ? gradient.detach() : Tensor();
  }
}

void Tensor::zero_grad() { set_grad(Tensor()); }

Tensor& Tensor::retain_grad() {
  detail::Node& node = detail::node_of("retain_grad", "this", *this);
  if (!node.requires_grad) {
    throw GraphError(
        "[retain_grad] this tensor needs no gradient; call requires_grad_() on a leaf");
  }
  node.ensure_extras().retain_grad = true;
  return *this;
}

int Tensor::register_hook(GradientHook hook) {
  detail::Node& node = detail::node_of("register_hook", "this", *this);
  if (!node.requires_grad) {
    throw GraphError("[register_hook] this tensor needs no gradient, so no hook would ever run");
  }
  if (!hook) throw ValueError("[register_hook] the hook is empty");
  auto& extras = node.ensure_extras();
  extras.hooks.emplace_back(extras.next_hook, std::move(hook));
  return extras.next_hook++;
}

void Tensor::remove_hook(int number) {
  detail::Node& node = detail::node_of("remove_hook", "this", *this);
  if (node.extras) {
    std::erase_if(node.extras->hooks, [&](const auto& hook) { return hook.first == number; });
  }
}

Tensor Tensor::detach() const {
  detail::check_defined("detach", "this", *this);
  return detail::make_view(*this, shape());
}

Tensor Tensor::clone() const {
  const auto& node = detail::node_of("clone", "this", *this);
  Tensor y = detail::make_tensor(node.shape, node.dtype);
  std::memcpy(detail::fresh_numbers<char>(y), detail::numbers<char>(*this),
              static_cast<std::size_t>(node.shape.numel()) * size_of(node.dtype));
  return record(kClone, std::move(y), {*this});
}

const std::string& Tensor::name() const {
  static const std::string none;
  const auto& node = detail::node_of("name", "this", *this);
  return node.extras ? node.extras->name : none;
}

Tensor& Tensor::named(std::string name) & {
  detail::node_of("named", "this", *this).ensure_extras().name = std::move(name);
  return *this;
}
Tensor Tensor::named(std::string name) && {
  named(std::move(name));
  return std::move(*this);
}

Tensor& Tensor::sub_(const Tensor& y, double scale) {
  add_scaled("sub_", *this, y, -scale);
  return *this;
}

Tensor& Tensor::add_(const Tensor& y, double scale) {
  add_scaled("add_", *this, y, scale);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& y) {
  detail::Node& node = writable_from("copy_", *this, y);
  std::memmove(node.storage->data(), detail::numbers<char>(y),
               static_cast<std::size_t>(node.shape.numel()) * size_of(node.dtype));
  ++node.storage->version;
  return *this;
}

Tensor& Tensor::fill_(double value) {
  detail::Node& node = writable("fill_", *this);
  detail::check_number("fill_", node.dtype, value);
  visit_any(node.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(node.storage->data()), node.shape.numel(), static_cast<T>(value));
  });
  ++node.storage->version;
  return *this;
}

std::uint32_t Tensor::version() const {
  return detail::node_of("version", "this", *this).storage->version;
}

}  // namespace softtape
