// Loops along a row in lanes: one function written for sixteen numbers and for one.
#pragma once

#include "ops/lanes.hpp"

namespace softtape::detail {

/// Reads entries of a row: sixteen of them, or one in the tail.
struct LanesAt {
  std::int64_t i;
  template <class T>
  Lanes<T> operator()(const T* row) const {
    return load_lanes(row + i);
  }
};
struct EntryAt {
  std::int64_t i;
  template <class T>
  T operator()(const T* row) const {
    return row[i];
  }
};

/// y[i] = f(at) over a row, where f reads its arguments as at(pointer) and returns the same type.
template <class T, class F>
void map_row_lanes(T* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_lanes<T>(f(LanesAt{i}), y + i);
  for (; i < n; ++i) y[i] = f(EntryAt{i});
}

/// sum of f(at) over a row, in one fixed order.
template <class T, class F>
T sum_row_lanes(std::int64_t n, F f) {
  Lanes<T> total = Lanes<T>::Zero();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) total += f(LanesAt{i});
  for (std::int64_t lane = 0; i < n; ++i, ++lane) total[lane] += f(EntryAt{i});
  return total.sum();
}

}  // namespace softtape::detail
