// Initialisers: how the numbers of a parameter begin. All draw from NumPy's float64 stream and work
// in place on leaves, so that a layer can be initialised again.
#pragma once

#include <cstdint>

#include "softtape/base/random.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape::init {

/// Inputs and outputs of one unit. A weight is (out, in), or (out, in, ...) with a field of entries
/// per pair; a matrix that multiplies from the right, (in, out), has them exchanged.
struct Fans {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
/// Throws: ShapeError for rank below 2.
SOFTTAPE_API Fans fans(const Shape& shape);

struct NormalOptions {
  double mean = 0;
  double std = 1;
};
struct UniformOptions {
  double low = 0;
  double high = 1;
};
struct XavierOptions {
  double gain = 1;
};
enum class Fan { in, out };
struct KaimingOptions {
  double gain = 1.4142135623730951;  ///< sqrt 2: of relu
  Fan fan = Fan::in;                 ///< which one keeps its variance: activations or gradients
};
struct OrthogonalOptions {
  double gain = 1;
};

// Throws (all): ValueError for options out of range, GraphError for a tensor that is not a leaf,
// DtypeError unless float; fan-based ones ShapeError for rank below 2. They return x.

/// N(mean, std^2).
SOFTTAPE_API Tensor& normal_(Tensor& x, Rng& rng, NormalOptions options = {});
/// U[low, high).
SOFTTAPE_API Tensor& uniform_(Tensor& x, Rng& rng, UniformOptions options = {});
/// U[-b, b) with b = gain sqrt(6 / (in + out)). Source: Glorot and Bengio 2010.
SOFTTAPE_API Tensor& xavier_uniform_(Tensor& x, Rng& rng, XavierOptions options = {});
/// N(0, s^2) with s = gain sqrt(2 / (in + out)).
SOFTTAPE_API Tensor& xavier_normal_(Tensor& x, Rng& rng, XavierOptions options = {});
/// U[-b, b) with b = gain sqrt(3 / fan). Source: He et al. 2015.
SOFTTAPE_API Tensor& kaiming_uniform_(Tensor& x, Rng& rng, KaimingOptions options = {});
/// N(0, s^2) with s = gain / sqrt(fan).
SOFTTAPE_API Tensor& kaiming_normal_(Tensor& x, Rng& rng, KaimingOptions options = {});
/// A random (semi-)orthogonal matrix times gain, uniform over all of them: the Q of a QR
/// decomposition of normals, columns signed so that R has a positive diagonal. Axes after the first
/// count as one. Source: Saxe, McClelland and Ganguli 2014; Mezzadri 2007.
SOFTTAPE_API Tensor& orthogonal_(Tensor& x, Rng& rng, OrthogonalOptions options = {});
/// U[-b, b) with b = 1 / sqrt(fan_in): PyTorch's default for weight and bias of a linear layer.
SOFTTAPE_API Tensor& linear_(Tensor& x, Rng& rng, std::int64_t fan_in);

}  // namespace softtape::init
