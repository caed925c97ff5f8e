// Sixteen numbers at a time: the fixed width in which kernels walk a row, on any instruction set.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <limits>

namespace softtape::detail {

constexpr std::int64_t kLanes = 16;

/// Up to whole lanes, the width to which scratch rows are padded.
constexpr std::int64_t padded(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

template <class T>
using Lanes = Eigen::Array<T, kLanes, 1>;

template <class T>
Lanes<T> load_lanes(const T* x) {
  return Eigen::Map<const Lanes<T>>(x);
}
template <class T>
void store_lanes(const Lanes<T>& v, T* y) {
  Eigen::Map<Lanes<T>> into(y);
  into = v;
}
/// The first n < kLanes numbers, the rest `fill`.
template <class T>
Lanes<T> load_lanes(const T* x, std::int64_t n, T fill) {
  Lanes<T> v = Lanes<T>::Constant(fill);
  for (std::int64_t i = 0; i < n; ++i) v[i] = x[i];
  return v;
}
template <class T>
void store_lanes(const Lanes<T>& v, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = v[i];
}

/// Where the vectorised exp is exact to its last bits; outside, lanes are mended one by one.
template <class T>
struct ExpRange;
template <>
struct ExpRange<float> {
  static constexpr float low = -87.0f, high = 88.0f;
};
template <>
struct ExpRange<double> {
  static constexpr double low = -708.0, high = 709.0;
};

/// e^x per lane. Eigen's packet exp clamps its argument: -Inf would give 5.6e-309 and NaN a number,
/// so lanes outside its range are selected or computed one by one.
template <class T>
Lanes<T> exp_lanes(const Lanes<T>& x) {
  Lanes<T> y = x.exp();
  if (!(x >= ExpRange<T>::low && x <= ExpRange<T>::high).all()) {
    for (std::int64_t i = 0; i < kLanes; ++i) {
      if (!(x[i] >= ExpRange<T>::low && x[i] <= ExpRange<T>::high)) y[i] = std::exp(x[i]);
    }
  }
  return y;
}

/// As many numbers as one vector register holds; what Eigen works in.
template <class T>
using Packet = typename Eigen::internal::packet_traits<T>::type;
template <class T>
constexpr int kPacket = Eigen::internal::unpacket_traits<Packet<T>>::size;

/// f of packets of x and y, packet by packet: for what Eigen's arrays compute number by number,
/// such as a selection.
template <class T, class F>
Lanes<T> by_packets(const Lanes<T>& x, const Lanes<T>& y, F f) {
  using namespace Eigen::internal;
  Lanes<T> result;
  for (int i = 0; i < kLanes; i += kPacket<T>) {
    pstoreu(result.data() + i, f(ploadu<Packet<T>>(x.data() + i), ploadu<Packet<T>>(y.data() + i)));
  }
  return result;
}
/// The larger of the two per lane; y where x is NaN.
template <class T>
Lanes<T> larger(const Lanes<T>& x, const Lanes<T>& y) {
  return by_packets(x, y, [](const auto& a, const auto& b) {
    using namespace Eigen::internal;
    return pselect(pcmp_lt(b, a), a, b);
  });
}
/// x, but 0 wherever `weight` is 0.
template <class T>
Lanes<T> zero_where_zero(const Lanes<T>& weight, const Lanes<T>& x) {
  return by_packets(weight, x, [](const auto& w, const auto& a) {
    using namespace Eigen::internal;
    return pandnot(a, pcmp_eq(w, pzero(w)));
  });
}

/// e^x for the weights of a softmax, where x <= 0: exact 0 below the normal range, -Inf included,
/// NaN where x is NaN. In packet operations, since Eigen computes a selection number by number.
template <class T>
Packet<T> exp_weights_packet(const Packet<T>& x) {
  using namespace Eigen::internal;
  const Packet<T> nan_kept = padd(pexp(x), psub(x, x));
  return pandnot(nan_kept, pcmp_lt(x, pset1<Packet<T>>(ExpRange<T>::low)));
}
template <class T>
Lanes<T> exp_weights(const Lanes<T>& x) {
  Lanes<T> y;
  for (int i = 0; i < kLanes; i += kPacket<T>) {
    Eigen::internal::pstoreu(
        y.data() + i, exp_weights_packet<T>(Eigen::internal::ploadu<Packet<T>>(x.data() + i)));
  }
  return y;
}

/// Applies f to every group of lanes of a row; the tail is padded with `fill`.
template <class T, class F>
void map_lanes(const T* x, T* y, std::int64_t n, T fill, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_lanes<T>(f(load_lanes(x + i)), y + i);
  if (i < n) store_lanes<T>(f(load_lanes(x + i, n - i, fill)), y + i, n - i);
}

}  // namespace softtape::detail
