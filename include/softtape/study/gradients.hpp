// Probes of parameter gradients: norms, update ratios, what the norm of dL/dWq is made of, gradient
// noise, curvature. They read `.grad()` or tensors they are given, and change neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softtape/graph/grad.hpp"
#include "softtape/ops/mask.hpp"
#include "softtape/optim/optimizer.hpp"
#include "softtape/study/formatter.hpp"
#include "softtape/study/function.hpp"

namespace softtape {

/// Euclidean norms of one parameter.
struct GradientNorm {
  std::string name;
  double gradient = 0;   ///< of `.grad()`; 0 where there is none
  double parameter = 0;  ///< of the numbers
};

/// Gradient and parameter norms by name, of a module, several modules or plain tensors. They do not
/// show starvation: without the scale the norm of dL/dWq is larger (see attribute_wq).
/// Throws: DtypeError, GraphError.
SOFTTAPE_API std::vector<GradientNorm> gradient_norms(const ParameterList& parameters);

/// How far a parameter moved.
struct UpdateRatio {
  std::string name;
  double update = 0;     ///< ||after - before||
  double parameter = 0;  ///< ||before||
  double ratio = 0;      ///< update / parameter; 0 when nothing moved, Inf from zero
};

/// Copies of the numbers, to be compared with what a step makes of them.
SOFTTAPE_API State parameter_snapshot(const ParameterList& parameters);
/// ||after - before|| / ||before|| of each parameter, in the order of `before`. About 1e-3 a step
/// is the usual rule of thumb. Throws: ValueError naming a parameter that only one side has,
/// ShapeError or DtypeError one that changed its form.
SOFTTAPE_API std::vector<UpdateRatio> update_ratios(const State& before,
                                                    const ParameterList& after);

/// Why ||dL/dWq||_F is what it is: scale * keys * jacobian * upstream * inputs, all Frobenius norms
/// over every row, so the product is exact.
///
/// Without the scale the Jacobian's factor falls, but `scale` is 1 in place of 1/sqrt(dk), and what
/// is left of the gradient comes from rows where two keys tie: the norm grows while keys starve.
struct WqAttribution {
  double upstream = 0;  ///< ||dL/dP||
  double jacobian = 0;  ///< ||dL/dS|| / ||dL/dP||: what softmax lets through
  double keys = 0;      ///< ||dS K|| / ||dL/dS||: how long the keys are that it meets
  double scale = 0;     ///< |factor| from q.k to scores
  double inputs = 0;    ///< ||dL/dWq|| / ||dL/dQ||: how the rows add up
  double product() const { return scale * keys * jacobian * upstream * inputs; }
};

struct WqAttributionInputs {
  Tensor gweights;   ///< dL/dP (..., n, m)
  Tensor gscores;    ///< dL/dS (..., n, m)
  Tensor k;          ///< keys (..., m, dk); leading axes broadcast to those of gscores
  Tensor gwq;        ///< dL/dWq
  double scale = 1;  ///< the factor: Scale::factor(dk)
  Mask mask = {};    ///< of the attention: hidden entries of gweights are left out
};

/// Edges: a factor whose divisor is 0 is 0. With a bias the product still holds; with a soft cap
/// its slope ends up in `inputs`. Throws: ShapeError, DtypeError, GraphError.
SOFTTAPE_API WqAttribution attribute_wq(const WqAttributionInputs& inputs);
/// "|dL/dWq| = 0.0252 = scale 1 x keys 15.9 x Jacobian 0.11 x upstream 0.3 x inputs 0.048"
SOFTTAPE_API std::string to_string(const WqAttribution& attribution);

/// Gradient noise scale B = tr Cov / |E G|^2 of per-sample gradients G: the batch size at which
/// noise and signal are equally strong. Numerator and denominator are unbiased, their ratio is not.
/// Source: McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training" (2018),
/// section 2.2 and appendix A.1.
struct NoiseScale {
  double trace_cov = 0;  ///< tr Cov of one sample's gradient
  /// |E G|^2. Noise can make the estimate negative: then the signal lies below the noise floor of
  /// the sample.
  double signal = 0;
  /// trace_cov / signal; Inf when the signal is not above 0.
  double noise_scale = 0;
};

/// From the gradients of n >= 2 samples, one tensor (n, ...) per parameter, all parameters
/// together: tr Cov = sum_i |g_i - g|^2 / (n - 1), |E G|^2 = |g|^2 - tr Cov / n, g the mean.
/// Throws: ValueError for fewer than two samples or no tensors, ShapeError unless all have n rows.
SOFTTAPE_API NoiseScale gradient_noise_scale(const TensorList& per_sample);

/// The mean, over batches of one size, of |gradient of the mean loss|^2.
struct BatchGradientNorm {
  double batch = 0;
  double squared_norm = 0;
};
/// From two batch sizes b < B: |E G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b) and
/// tr Cov = (|G_b|^2 - |G_B|^2) / (1/b - 1/B). With b = 1 and B = n over the same n samples it is
/// the estimate above. Throws: ValueError unless 1 <= b < B and the norms are finite, not negative.
SOFTTAPE_API NoiseScale gradient_noise_scale(const BatchGradientNorm& small,
                                             const BatchGradientNorm& large);

struct EigenOptions {
  int max_iterations = 200;
  /// Relative: done when |H v - value v| <= tolerance |value|.
  double tolerance = 1e-6;
  std::uint64_t seed = 0;  ///< of the first direction
};

/// An eigenvalue and its vector. Of a symmetric matrix some eigenvalue is within `residual` of
/// `value`, and the error of `value` is about residual^2 / gap.
struct TopEigenvalue {
  double value = 0;
  Tensor vector;        ///< of length 1, in the shape of x
  double residual = 0;  ///< |H v - value v|
  int iterations = 0;   ///< Hessian-vector products
  bool converged = false;
};

namespace detail {
SOFTTAPE_API TopEigenvalue top_hessian_eigenvalue(const TensorFunction& f, const Tensor& x,
                                                  const EigenOptions& options);
}

/// The eigenvalue of largest magnitude of the Hessian of f at x, by power iteration on hvp; f
/// returns one number. Gradient descent at rate lr is stable along its vector while value < 2 / lr.
/// Edges: a Hessian of zeros gives value 0. Two eigenvalues of nearly one magnitude converge
/// slowly: look at `converged`. Cost: per iteration one hvp.
/// Throws: ValueError for options out of range or a product that is not finite; as hvp.
template <class F>
TopEigenvalue top_hessian_eigenvalue(F&& f, const Tensor& x, const EigenOptions& options = {}) {
  return detail::top_hessian_eigenvalue(detail::tensor_function("top_hessian_eigenvalue", f), x,
                                        options);
}

}  // namespace softtape

template <>
struct fmt::formatter<softtape::WqAttribution> : softtape::detail::ReportFormatter {};
