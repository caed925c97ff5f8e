// Attention forward in one pass over the keys: each block of queries walks the visible tiles with a
// running maximum and sum per row (online softmax).
//
// A tile of scores is held transposed, keys down and queries across, so that maximum, sum and shift
// of sixteen queries are lanes of one vector and nothing is reduced across a vector.
#include <cmath>

#include "attention/fused_tiles.hpp"

namespace softtape::detail {

namespace {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// Scratch of one block of queries.
template <class T>
struct ForwardTile {
  explicit ForwardTile(const FusedProblem& p)
      : width(padded(p.dv)),
        scratch(p.dk * kTileQueries + kTileQueries * (kTileKeys + width + 3) +
                RightSide<T>::scratch(kTileKeys, p.dv)),
        queries(scratch.take(p.dk * kTileQueries)),
        scores(scratch.take(kTileKeys * kTileQueries)),
        output(scratch.take(kTileQueries * width)),
        top(scratch.take(kTileQueries)),
        sum(scratch.take(kTileQueries)),
        rescale(scratch.take(kTileQueries)),
        values(scratch.take(RightSide<T>::scratch(kTileKeys, p.dv))) {}

  std::int64_t width;
  Scratch<T> scratch;
  T* queries;  // (dk, queries): transposed
  T* scores;   // (keys, queries): transposed scores, then weights
  T* output;   // (queries, width): weighted values so far
  T* top;      // largest score so far
  T* sum;      // of exp(score - top) so far
  T* rescale;  // exp(old top - new top)
  T* values;   // padded copy of the values, where they need one
};

/// Adds the bias to a tile of keys [from, from + keys).
template <class T>
void add_bias(const BiasView<T>& bias, std::int64_t first, std::int64_t from, std::int64_t keys,
              std::int64_t queries, T* scores) {
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t j = 0; j < keys; ++j) {
      scores[j * kTileQueries + i] += bias.at(first + i, from + j);
    }
  }
}

/// Hidden scores become -Inf, whatever they were.
template <class T>
void hide(const QueryBlock& block, std::int64_t from, std::int64_t keys, T* scores) {
  for (std::int64_t i = 0; i < block.count; ++i) {
    const MaskRow row = block.row(i);
    const std::int64_t begin = std::clamp<std::int64_t>(row.begin - from, 0, keys);
    const std::int64_t end = std::clamp<std::int64_t>(row.end - from, begin, keys);
    T* column = scores + i;
    for (std::int64_t j = 0; j < begin; ++j) column[j * kTileQueries] = kMinusInfinity<T>;
    for (std::int64_t j = end; j < keys; ++j) column[j * kTileQueries] = kMinusInfinity<T>;
    if (!row.keep) continue;
    for (std::int64_t j = begin; j < end; ++j) {
      if (!row.keep[from + j]) column[j * kTileQueries] = kMinusInfinity<T>;
    }
  }
}

/// Scores to weights relative to the new largest score; sums and the rescaling of what was summed.
/// A NaN may become the largest or not: the sum of its row is NaN either way.
template <class T>
void online_softmax(std::int64_t keys, std::int64_t queries, ForwardTile<T>& tile) {
  using namespace Eigen::internal;
  using P = Packet<T>;
  for (std::int64_t i = 0; i < queries; i += kPacket<T>) {
    T* scores = tile.scores + i;
    const P old_top = pload<P>(tile.top + i);
    P top = old_top;
    for (std::int64_t j = 0; j < keys; ++j) top = pmax(top, pload<P>(scores + j * kTileQueries));
    const P none = pcmp_eq(top, pset1<P>(kMinusInfinity<T>));
    const P shift = pandnot(top, none);
    const P rescale = exp_weights_packet<T>(psub(old_top, shift));
    P sum = pmul(pload<P>(tile.sum + i), rescale);
    for (std::int64_t j = 0; j < keys; ++j) {
      T* s = scores + j * kTileQueries;
      const P weight = exp_weights_packet<T>(psub(pload<P>(s), shift));
      sum = padd(sum, weight);
      pstore(s, weight);
    }
    pstore(tile.top + i, top);
    pstore(tile.sum + i, sum);
    pstore(tile.rescale + i, rescale);
  }
}

/// output = output * rescale + weights * values.
template <class T>
void add_values(const FusedProblem& p, const QueryBlock& block, Visible visible, const T* v,
                std::int64_t v_stride, std::int64_t from, std::int64_t keys, ForwardTile<T>& tile) {
  for (std::int64_t i = 0; i < block.count; ++i) {
    if (tile.rescale[i] == T{1}) continue;
    T* row = tile.output + i * tile.width;
    for (std::int64_t j = 0; j < tile.width; ++j) row[j] *= tile.rescale[i];
  }
  if (visible == Visible::some && !all_finite(v, v_stride, keys, p.dv)) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        if (!block.row(i).sees(from + j)) continue;
        add_scaled(tile.scores[j * kTileQueries + i], v + j * v_stride,
                   tile.output + i * tile.width, p.dv);
      }
    }
    return;
  }
  const RightSide<T> values(v, v_stride, keys, p.dv, tile.values);
  tile_product<Left::transposed, Into::sum>(TileProduct<T>{.a = tile.scores,
                                                           .a_stride = kTileQueries,
                                                           .b = values.data,
                                                           .b_stride = values.stride,
                                                           .c = tile.output,
                                                           .c_stride = tile.width,
                                                           .rows = block.count,
                                                           .columns = p.dv,
                                                           .depth = keys});
}

template <class T>
struct Forward {
  const FusedProblem& p;
  HeadsView<const T> q, k, v;
  HeadsView<T> o;
  T* shift;
  T* sum;
  T* logsumexp;

  /// Queries [first, first + kTileQueries) of head b.
  void block(std::int64_t b, std::int64_t first, ForwardTile<T>& tile) const {
    const QueryBlock block(p, b, first);
    const std::int64_t queries = padded(block.count);
    const BiasView<T> bias(p, b);
    const T* keys_of_head = k.matrix(b, p.heads);
    const T* values_of_head = v.matrix(b, p.heads);
    transpose_tile(q.matrix(b, p.heads) + first * q.row_stride, q.row_stride, block.count, p.dk,
                   tile.queries, kTileQueries);
    std::fill_n(tile.output, kTileQueries * tile.width, T{0});
    std::fill_n(tile.top, kTileQueries, kMinusInfinity<T>);
    std::fill_n(tile.sum, kTileQueries, T{0});
    for (std::int64_t from = block.begin; from < block.end; from += kTileKeys) {
      const std::int64_t keys = std::min(kTileKeys, block.end - from);
      const Visible visible = block.keys(from, from + keys);
      if (visible == Visible::none) continue;
      tile_product<Left::plain, Into::fresh>(TileProduct<T>{.a = keys_of_head + from * k.row_stride,
                                                            .a_stride = k.row_stride,
                                                            .b = tile.queries,
                                                            .b_stride = kTileQueries,
                                                            .c = tile.scores,
                                                            .c_stride = kTileQueries,
                                                            .rows = keys,
                                                            .columns = queries,
                                                            .depth = p.dk,
                                                            .factor = static_cast<T>(p.scale)});
      if (bias.data) add_bias(bias, first, from, keys, block.count, tile.scores);
      if (visible == Visible::some) hide(block, from, keys, tile.scores);
      online_softmax(keys, queries, tile);
      add_values(p, block, visible, values_of_head + from * v.row_stride, v.row_stride, from, keys,
                 tile);
    }
    finish(b, first, block.count, tile);
  }

  void finish(std::int64_t b, std::int64_t first, std::int64_t count,
              const ForwardTile<T>& tile) const {
    T* output = o.matrix(b, p.heads) + first * o.row_stride;
    for (std::int64_t i = 0; i < count; ++i) {
      const T total = tile.sum[i];
      const T share = total == T{0} ? T{0} : T{1} / total;
      for (std::int64_t j = 0; j < p.dv; ++j) {
        output[i * o.row_stride + j] = tile.output[i * tile.width + j] * share;
      }
      const std::int64_t row = b * p.n + first + i;
      shift[row] = tile.top[i] == kMinusInfinity<T> ? T{0} : tile.top[i];
      sum[row] = total;
      logsumexp[row] = total == T{0} ? kMinusInfinity<T> : shift[row] + std::log(total);
    }
  }
};

}  // namespace

template <class T>
void fused_forward(const FusedProblem& p, HeadsView<const T> q, HeadsView<const T> k,
                   HeadsView<const T> v, HeadsView<T> o, T* shift, T* sum, T* logsumexp) {
  const std::int64_t blocks = query_blocks(p);
  const double cost = static_cast<double>(std::min(p.n, kTileQueries)) * static_cast<double>(p.m) *
                      static_cast<double>(p.dk + p.dv);
  // Under a causal mask the last blocks are the longest and come first, where there are many. Few
  // stay with the thread that wrote their queries.
  const bool last_first = blocks > 8;
  const Forward<T> forward{p, q, k, v, o, shift, sum, logsumexp};
  for_tasks(p.batch * p.heads * blocks, cost, [&](std::int64_t begin, std::int64_t end) {
    ForwardTile<T> tile(p);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t place = task % blocks;
      forward.block(task / blocks, (last_first ? blocks - 1 - place : place) * kTileQueries, tile);
    }
  });
}

template void fused_forward<float>(const FusedProblem&, HeadsView<const float>,
                                   HeadsView<const float>, HeadsView<const float>, HeadsView<float>,
                                   float*, float*, float*);
template void fused_forward<double>(const FusedProblem&, HeadsView<const double>,
                                    HeadsView<const double>, HeadsView<const double>,
                                    HeadsView<double>, double*, double*, double*);

}  // namespace softtape::detail
