// Orthogonal initialisation. Apart from the others because of Eigen's QR.
#include <fmt/format.h>

#include <Eigen/QR>
#include <cmath>
#include <vector>

#include "graph/node.hpp"
#include "softtape/graph/grad.hpp"
#include "softtape/nn/init.hpp"
#include "softtape/ops/create.hpp"

namespace softtape::init {

Tensor& orthogonal_(Tensor& x, Rng& rng, OrthogonalOptions o) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  detail::check_float("orthogonal_", "x", x);
  fans(x.shape());
  if (!x.is_leaf()) throw GraphError("[orthogonal_] x must be a leaf: it was computed");
  if (!std::isfinite(o.gain)) {
    throw ValueError(fmt::format("[orthogonal_] gain must be finite: got {}", o.gain));
  }
  if (x.numel() == 0) return x;
  const Eigen::Index rows = x.dim(0);
  const Eigen::Index columns = x.numel() / rows;
  std::vector<double> draws(static_cast<std::size_t>(x.numel()));
  rng.standard_normal(draws);
  Matrix tall = Eigen::Map<const Matrix>(draws.data(), rows, columns);
  const bool wide = rows < columns;
  if (wide) tall = tall.transpose().eval();
  const Eigen::HouseholderQR<Matrix> qr(tall);
  Matrix q = qr.householderQ() * Matrix::Identity(tall.rows(), tall.cols());
  for (Eigen::Index j = 0; j < q.cols(); ++j) {
    q.col(j) *= qr.matrixQR()(j, j) < 0 ? -o.gain : o.gain;
  }
  Eigen::Map<Matrix> out(draws.data(), rows, columns);
  if (wide) {
    out = q.transpose();
  } else {
    out = q;
  }
  NoGrad guard;
  return x.copy_(tensor(draws, x.shape(), {.dtype = x.dtype()}));
}

}  // namespace softtape::init
