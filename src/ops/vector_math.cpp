// Vectorised functions over contiguous numbers, on Eigen's packet math.
#include "ops/vector_math.hpp"

#include <algorithm>
#include <bit>
#include <numbers>

#include "ops/lanes.hpp"

namespace softtape::detail {
namespace {

Lanes<float> tanh_lanes(const Lanes<float>& x) {
  // Eigen clamps its argument and would turn a NaN into a number.
  return (x == x).select(x.tanh(), x);
}
Lanes<double> tanh_lanes(const Lanes<double>& x) {
  Lanes<double> y;
  for (std::int64_t i = 0; i < kLanes; ++i) y[i] = std::tanh(x[i]);
  return y;
}

template <class T>
void gelu_tanh(const T* x, T* y, std::int64_t n) {
  constexpr T kScale = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
  constexpr T kCubic = static_cast<T>(0.044715);
  map_lanes<T>(x, y, n, T{0}, [=](const Lanes<T>& v) -> Lanes<T> {
    const Lanes<T> gate = T(0.5) * (1 + tanh_lanes(Lanes<T>(kScale * v * (1 + kCubic * v * v))));
    return (gate == 0).select(T{0}, v * gate);  // -Inf times 0 is 0 here
  });
}

// Phi and phi of the normal distribution in float32.
//
// Phi(-|x|) = e^(-x^2/2) t P(t) / 2 with t = 1 / (1 + 0.3 |x| / sqrt(2)); P is the polynomial with
// the least relative error (2e-8) for |x| < 14.5. x^2 is the sum of a square that is exact and a
// small rest, since the exponential would multiply a rounding error by up to 88.
struct Normal {
  Packet<float> cdf, density;

  explicit Normal(const Packet<float>& x) {
    using namespace Eigen::internal;
    using P = Packet<float>;
    constexpr float kP[] = {0.16918757557868958f, 0.17072144150733948f,  0.148300901055336f,
                            0.2150571197271347f,  -0.09492388367652893f, 0.5480754375457764f,
                            -0.5125603675842285f, 0.48568856716156006f,  -0.12954677641391454f};
    constexpr float kT = 0.3f * 0.70710678118654752440f;
    constexpr float kDensity = 0.39894228040143267794f;  // 1 / sqrt(2 pi)
    const P size = pabs(x);
    const P one = pset1<P>(1.0f);
    const P upper_bits = pset1<P>(std::bit_cast<float>(0xfffff000u));
    const P high = pand(size, upper_bits);
    const P exact = pmul(pset1<P>(-0.5f), pmul(high, high));
    const P rest = pmul(pset1<P>(-0.5f), pmul(psub(size, high), padd(size, high)));
    const P power = padd(exact, rest);
    const P lost = psub(rest, psub(power, exact));
    P bell = pexp(power);
    bell = pandnot(padd(bell, pmul(bell, lost)), pcmp_lt(power, pset1<P>(ExpRange<float>::low)));
    const P t = pdiv(one, padd(one, pmul(pset1<P>(kT), size)));
    P p = pset1<P>(kP[8]);
    for (int i = 7; i >= 0; --i) p = pmadd(p, t, pset1<P>(kP[i]));
    const P tail = pmul(pmul(pset1<P>(0.5f), bell), pmul(t, p));
    cdf = pselect(pcmp_lt(x, pzero(x)), tail, psub(one, tail));
    density = pmul(pset1<P>(kDensity), bell);
  }
};

// f(x clamped to where both are constant, Normal) on every lane; NaN stays NaN.
template <class F>
void map_normal(const float* x, float* y, std::int64_t n, F f) {
  using namespace Eigen::internal;
  using P = Packet<float>;
  map_lanes<float>(x, y, n, 0.0f, [f](const Lanes<float>& v) {
    Lanes<float> result;
    for (int i = 0; i < kLanes; i += kPacket<float>) {
      const P number = ploadu<P>(v.data() + i);
      const P inside = pmin(pmax(number, pset1<P>(-14.0f)), pset1<P>(14.0f));
      const P value = f(number, inside, Normal(inside));
      pstoreu(result.data() + i, pselect(pcmp_eq(number, number), value, number));
    }
    return result;
  });
}

// Blocks keep the error of a long sum at that of a short one.
constexpr std::int64_t kSumBlock = 1024;

template <class T>
T sum_block(const T* x, std::int64_t n) {
  if (n < kLanes) {
    T sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  Lanes<T> lanes = load_lanes(x);
  std::int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) lanes += load_lanes(x + i);
  if (i < n) lanes += load_lanes(x + i, n - i, T{0});
  return lanes.sum();
}

template <class T>
T sum(const T* x, std::int64_t n) {
  if (n <= kSumBlock) return sum_block(x, n);
  double total = 0;
  for (std::int64_t i = 0; i < n; i += kSumBlock) {
    total += static_cast<double>(sum_block(x + i, std::min(kSumBlock, n - i)));
  }
  return static_cast<T>(total);
}

}  // namespace

void exp_numbers(const float* x, float* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0f, exp_lanes<float>);
}
void exp_numbers(const double* x, double* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0, exp_lanes<double>);
}
void tanh_numbers(const float* x, float* y, std::int64_t n) {
  map_lanes(x, y, n, 0.0f, [](const Lanes<float>& v) { return tanh_lanes(v); });
}
void tanh_numbers(const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
}
void gelu_erf_numbers(const float* x, float* y, std::int64_t n) {
  using namespace Eigen::internal;
  map_normal(x, y, n, [](const auto& v, const auto& inside, const Normal& normal) {
    // -Inf times 0 is 0 here.
    return padd(pmul(pmax(v, inside), normal.cdf), pzero(v));
  });
}
void gelu_erf_numbers(const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    // erfc keeps its precision in the left tail, where 1 + erf cancels.
    const double cdf = 0.5 * std::erfc(-x[i] * (1 / std::numbers::sqrt2));
    y[i] = cdf == 0 ? 0 : x[i] * cdf;
  }
}
void gelu_erf_slope_numbers(const float* x, float* y, std::int64_t n) {
  using namespace Eigen::internal;
  map_normal(x, y, n, [](const auto&, const auto& inside, const Normal& normal) {
    return padd(normal.cdf, pmul(inside, normal.density));
  });
}
void gelu_erf_slope_numbers(const double* x, double* y, std::int64_t n) {
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  for (std::int64_t i = 0; i < n; ++i) {
    const double cdf = 0.5 * std::erfc(-x[i] * (1 / std::numbers::sqrt2));
    const double density = kDensity * std::exp(-0.5 * x[i] * x[i]);
    y[i] = density == 0 ? cdf : cdf + x[i] * density;
  }
}
void gelu_tanh_numbers(const float* x, float* y, std::int64_t n) { gelu_tanh(x, y, n); }
void gelu_tanh_numbers(const double* x, double* y, std::int64_t n) { gelu_tanh(x, y, n); }
float sum_numbers(const float* x, std::int64_t n) { return sum(x, n); }
double sum_numbers(const double* x, std::int64_t n) { return sum(x, n); }

}  // namespace softtape::detail
