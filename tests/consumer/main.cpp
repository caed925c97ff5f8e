// A user's program: calls into the library, catches what it throws, and shares memory and Eigen
// types with it. Built by run.sh in every way a user may, with other -march flags than the library.
#include <Eigen/Core>
#include <cstdio>
#include <softtape/base/error.hpp>
#include <softtape/base/random.hpp>
#include <softtape/base/shape.hpp>
#include <softtape/version.hpp>
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

  bool caught = false;
  try {
    rng.integers(5, 5);
  } catch (const softtape::Error&) {
    caught = true;
  }
  expect(caught, "an error of the library is caught by its type");

  std::printf("softtape %s: %s\n", SOFTTAPE_VERSION_STRING, failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}
