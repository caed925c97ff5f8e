// One problem for the fused kernels, its numbers, and plain loops in double to compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/fused.hpp"
#include "softtape/base/random.hpp"

namespace softtape::fused_test {

using detail::FusedProblem;
using detail::HeadsView;
using detail::MaskRow;
using detail::MaskRows;
using Int = std::int64_t;

struct Sizes {
  Int batch = 1;
  Int heads = 1;
  Int n = 1;
  Int m = 1;
  Int dk = 1;
  Int dv = 1;
  bool blocks = false;  // heads as column blocks of a row
};

template <class T>
struct Matrices {
  Int rows;
  Int width;
  Sizes sizes;
  std::vector<T> numbers;

  Matrices(const Sizes& s, Int rows_, Int width_)
      : rows(rows_),
        width(width_),
        sizes(s),
        numbers(static_cast<std::size_t>(s.batch * s.heads * rows_ * width_), T{7}) {}
  template <class U>
  HeadsView<U> view(U* data) const {
    const Int all = sizes.heads * width;
    if (sizes.blocks) return {data, rows * all, width, all};
    return {data, rows * all, rows * width, width};
  }
  T& at(Int b, Int i, Int j) {
    const HeadsView<T> v = view(numbers.data());
    return v.matrix(b, sizes.heads)[i * v.row_stride + j];
  }
  HeadsView<const T> in() const { return view<const T>(numbers.data()); }
  HeadsView<T> out() { return view<T>(numbers.data()); }
};

/// Inputs, outputs and gradients of one problem. The mask must outlive it.
template <class T>
struct Run {
  Sizes s;
  MaskRows rows;
  double scale = 0.4;
  Matrices<T> q, k, v, o, go, gq, gk, gv;
  std::vector<T> shift, sum, logsumexp, bias, gbias;
  Int bias_strides[4] = {};

  Run(const Sizes& sizes, const Mask& mask)
      : s(sizes),
        rows("test", mask, Shape{s.batch, s.heads, s.n, s.m}),
        q(s, s.n, s.dk),
        k(s, s.m, s.dk),
        v(s, s.m, s.dv),
        o(s, s.n, s.dv),
        go(s, s.n, s.dv),
        gq(s, s.n, s.dk),
        gk(s, s.m, s.dk),
        gv(s, s.m, s.dv),
        shift(static_cast<std::size_t>(s.batch * s.heads * s.n)),
        sum(shift.size()),
        logsumexp(shift.size()) {
    Rng rng(static_cast<std::uint64_t>(s.n * 1000 + s.m));
    for (Matrices<T>* x : {&q, &k, &v, &go}) {
      for (T& number : x->numbers) number = static_cast<T>(2 * rng.random() - 1);
    }
  }
  void run() {
    FusedProblem p{s.batch, s.heads, s.n, s.m, s.dk, s.dv, scale, &rows, nullptr, {}};
    if (!bias.empty()) p.bias = bias.data();
    std::copy_n(bias_strides, 4, p.bias_strides);
    detail::fused_forward<T>(p, q.in(), k.in(), v.in(), o.out(), shift.data(), sum.data(),
                             logsumexp.data());
    detail::fused_backward<T>(p, q.in(), k.in(), v.in(), o.in(), shift.data(), sum.data(), go.in(),
                              gq.out(), gk.out(), gv.out(), gbias.empty() ? nullptr : gbias.data());
  }
  std::vector<Matrices<T>*> results() { return {&o, &gq, &gk, &gv}; }
};

/// Largest difference from plain loops in double, relative to 1 + |expected|.
template <class T>
double worst_error(Run<T>& run) {
  const Sizes& s = run.s;
  double worst = 0;
  const auto compare = [&](T got, double expected) {
    const double error = std::abs(static_cast<double>(got) - expected) / (1 + std::abs(expected));
    if (!(error <= worst)) worst = error;  // a NaN sticks: comparisons with it are false
  };
  for (Int b = 0; b < s.batch * s.heads; ++b) {
    std::vector<double> gk(static_cast<std::size_t>(s.m * s.dk));
    std::vector<double> gv(static_cast<std::size_t>(s.m * s.dv));
    for (Int i = 0; i < s.n; ++i) {
      const MaskRow row = run.rows.row(b, i);
      std::vector<double> p(static_cast<std::size_t>(s.m));
      double top = -std::numeric_limits<double>::infinity();
      for (Int j = 0; j < s.m; ++j) {
        double& score = p[static_cast<std::size_t>(j)];
        for (Int c = 0; c < s.dk; ++c) score += double(run.q.at(b, i, c)) * run.k.at(b, j, c);
        score *= run.scale;
        if (!run.bias.empty()) {
          const Int place = b / s.heads * run.bias_strides[0] + b % s.heads * run.bias_strides[1] +
                            i * run.bias_strides[2] + j * run.bias_strides[3];
          score += run.bias[static_cast<std::size_t>(place)];
        }
        if (row.sees(j)) top = std::max(top, score);
      }
      double sum = 0;
      for (Int j = 0; j < s.m; ++j) {
        double& weight = p[static_cast<std::size_t>(j)];
        weight = row.sees(j) ? std::exp(weight - top) : 0;
        sum += weight;
      }
      double mean = 0;
      std::vector<double> gp(static_cast<std::size_t>(s.m));
      std::vector<double> output(static_cast<std::size_t>(s.dv));
      for (Int j = 0; j < s.m; ++j) {
        const auto at = static_cast<std::size_t>(j);
        if (sum > 0) p[at] /= sum;
        for (Int c = 0; c < s.dv; ++c) {
          output[static_cast<std::size_t>(c)] += p[at] * run.v.at(b, j, c);
          gp[at] += double(run.go.at(b, i, c)) * run.v.at(b, j, c);
          gv[static_cast<std::size_t>(j * s.dv + c)] += p[at] * run.go.at(b, i, c);
        }
        mean += p[at] * gp[at];
      }
      for (Int c = 0; c < s.dv; ++c)
        compare(run.o.at(b, i, c), output[static_cast<std::size_t>(c)]);
      const T shift = run.shift[static_cast<std::size_t>(b * s.n + i)];
      const T got = run.sum[static_cast<std::size_t>(b * s.n + i)];
      if (sum > 0) compare(shift + std::log(got), top + std::log(sum));
      if (sum == 0) compare(got, 0);
      std::vector<double> gq(static_cast<std::size_t>(s.dk));
      for (Int j = 0; j < s.m; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double slope = p[at] * (gp[at] - mean);
        if (!run.gbias.empty()) {
          compare(run.gbias[static_cast<std::size_t>((b * s.n + i) * s.m + j)], slope);
        }
        for (Int c = 0; c < s.dk; ++c) {
          gq[static_cast<std::size_t>(c)] += slope * run.scale * run.k.at(b, j, c);
          gk[static_cast<std::size_t>(j * s.dk + c)] += slope * run.scale * run.q.at(b, i, c);
        }
      }
      for (Int c = 0; c < s.dk; ++c) compare(run.gq.at(b, i, c), gq[static_cast<std::size_t>(c)]);
    }
    for (Int j = 0; j < s.m; ++j) {
      for (Int c = 0; c < s.dk; ++c) {
        compare(run.gk.at(b, j, c), gk[static_cast<std::size_t>(j * s.dk + c)]);
      }
      for (Int c = 0; c < s.dv; ++c) {
        compare(run.gv.at(b, j, c), gv[static_cast<std::size_t>(j * s.dv + c)]);
      }
    }
  }
  return worst;
}

}  // namespace softtape::fused_test
