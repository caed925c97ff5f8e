// Rows of what the graph itself records: copies, and the sums of gradients that meet.
#include "grad_cases/cases.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"

using namespace softtape;

namespace grad_cases {
namespace {

// The gradient of sum(x^3 w + x w^2) by x: two gradients meet in x, and one of them again in w.
Tensor meeting(const Tensor& x, const Tensor& w) {
  const EnableGrad mode;
  const Tensor leaf = x.requires_grad() ? x : x.detach().requires_grad_();
  const Tensor y = leaf * leaf * leaf * w + leaf * square(w);
  const Tensor g = grad(sum(y), leaf, {.create_graph = true})[0];
  return grad_enabled() && (x.requires_grad() || w.requires_grad()) ? g : g.detach();
}

}  // namespace

Family graph_rows() {
  Family rows;
  for (const Shape& shape : {Shape{}, Shape{2, 3}}) {
    rows.cases.push_back({.op = "clone",
                          .name = to_string(shape),
                          .inputs = normals({shape}),
                          .f = fn([](const Tensor& x) { return x.clone(); }),
                          .reference = each([](long double x) { return x; })});
  }
  for (const Shape& w : {Shape{}, Shape{3}, Shape{2, 1}}) {
    rows.cases.push_back({.op = "accumulate",
                          .name = to_string(w),
                          .inputs = normals({{2, 3}, w}),
                          .f = fn(meeting),
                          .reference = each_pair(
                              [](long double x, long double y) { return 3 * x * x * y + y * y; })});
  }
  rows.errors = {{"clone", "undefined", ErrorType::graph, "this is an undefined tensor",
                  [] { static_cast<void>(Tensor().clone()); }},
                 {"detach", "undefined", ErrorType::graph, "this is an undefined tensor",
                  [] { static_cast<void>(Tensor().detach()); }}};
  return rows;
}

}  // namespace grad_cases
