// A user's program: calls into the library, catches what it throws, and shares memory and Eigen
// types with it. Built by run.sh in every way a user may, with other -march flags than the library.
#include <Eigen/Core>
#include <cstdio>
#include <map>
#include <memory>
#include <softtape/eigen.hpp>
#include <softtape/softtape.hpp>
#include <string>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (!holds) {
    std::printf("not as promised: %s\n", what);
    ++failures;
  }
}

}  // namespace

int main() {
  static_assert(SOFTTAPE_VERSION >= 100);

  softtape::Rng rng(0);
  expect(rng.random() == 0.6369616873214543, "first draw of numpy.random.default_rng(0)");

  // Eigen's owning types are the program's own affair, whatever the library was compiled with.
  std::vector<double> draws(1000);
  rng.standard_normal(draws);
  Eigen::MatrixXd product = Eigen::Map<Eigen::MatrixXd>(draws.data(), 20, 50) *
                            Eigen::Map<Eigen::MatrixXd>(draws.data(), 50, 20);
  expect(product.allFinite(), "a product of Eigen matrices");

  // A gradient, and tensors in containers: nothing in them depends on how the library was compiled.
  std::map<std::string, softtape::Tensor> weights;
  weights["w"] = softtape::randn(rng, {16, 16}).requires_grad_();
  const auto x = std::make_shared<softtape::Tensor>(softtape::randn(rng, {4, 16}));
  const softtape::Tensor loss = sum(square(softmax(matmul(*x, weights["w"]), -1)));
  const std::vector<softtape::Tensor> gradients = softtape::grad(loss, weights["w"]);
  expect(gradients[0].shape() == softtape::Shape{16, 16}, "a gradient has the shape of its input");
  const auto view = softtape::as_matrix<float>(gradients[0]);
  expect(view.allFinite() && view.norm() > 0, "an Eigen view of a gradient");
  const Eigen::MatrixXf owned = view * view.transpose();
  expect(softtape::from_eigen(owned).shape() == softtape::Shape{16, 16}, "a tensor from a matrix");

  bool caught = false;
  try {
    matmul(*x, *x);
  } catch (const softtape::ShapeError&) {
    caught = true;
  }
  expect(caught, "an error of the library is caught by its type");

  std::printf("softtape %s: %s\n", SOFTTAPE_VERSION_STRING, failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}
