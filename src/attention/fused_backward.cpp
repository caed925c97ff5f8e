// Attention backward: the weights of every visible tile are computed again from the row's shift and
// sum, and each tile adds to the gradients of its queries, keys and values.
//
// Parallel without atomics, extra sums or extra arithmetic: queries and keys of a head are cut into
// the same number of parts, and step t works on the pairs (i, t - i), of which no two share queries
// or keys. So every gradient is summed in the order of the steps, on any number of threads.
#include "attention/fused_tiles.hpp"

namespace softtape::detail {

namespace {

/// Scratch of one task.
template <class T>
struct BackwardTile {
  explicit BackwardTile(const FusedProblem& p)
      : scratch((p.dk + p.dv) * kTileKeys + 2 * kTileQueries * kTileKeys +
                RightSide<T>::scratch(kTileQueries, p.dk) +
                RightSide<T>::scratch(kTileQueries, p.dv) + RightSide<T>::scratch(kTileKeys, p.dk)),
        keys(scratch.take(p.dk * kTileKeys)),
        values(scratch.take(p.dv * kTileKeys)),
        weights(scratch.take(kTileQueries * kTileKeys)),
        slopes(scratch.take(kTileQueries * kTileKeys)),
        query_rows(scratch.take(RightSide<T>::scratch(kTileQueries, p.dk))),
        upstream_rows(scratch.take(RightSide<T>::scratch(kTileQueries, p.dv))),
        key_rows(scratch.take(RightSide<T>::scratch(kTileKeys, p.dk))) {}

  Scratch<T> scratch;
  T* keys;     // (dk, keys): transposed
  T* values;   // (dv, keys): transposed
  T* weights;  // (queries, keys): scores, then weights
  T* slopes;   // (queries, keys): gradients of the weights, then of the scores
  T* query_rows;
  T* upstream_rows;
  T* key_rows;
};

/// Half-open range of queries or keys.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};

/// One visible tile.
struct TilePlace {
  const QueryBlock& block;
  Range keys;
  Visible visible;
};

template <class T>
void clear(HeadsView<T> x, const FusedProblem& p, std::int64_t b, Range rows, std::int64_t width) {
  if (!x.data) return;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    std::fill_n(x.matrix(b, p.heads) + i * x.row_stride, width, T{0});
  }
}

/// go . o of one row, in double: the float32 bound is then that of o itself.
template <class T>
T dot(const T* x, const T* y, std::int64_t width) {
  using Wide = Eigen::Array<double, kLanes, 1>;
  Wide sums = Wide::Zero();
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    sums += load_lanes(x + j).template cast<double>() * load_lanes(y + j).template cast<double>();
  }
  double sum = sums.sum();
  for (; j < width; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(y[j]);
  return static_cast<T>(sum);
}

template <class T>
struct Backward {
  const FusedProblem& p;
  HeadsView<const T> q, k, v, o, go;
  HeadsView<T> gq, gk, gv;
  T* gbias;
  const T* shift;
  const T* sum;
  T* mean;             // of each row: the mean of gP under its weights, which is go . o
  QueryBlock* blocks;  // of all heads

  /// Weights, and gradients of the scores: zero, by selection, where a weight is zero.
  void softmax_backward(const TilePlace& at, BackwardTile<T>& tile) const {
    const std::int64_t width = padded(at.keys.end - at.keys.begin);
    const BiasView<T> bias(p, at.block.b);
    for (std::int64_t i = 0; i < at.block.count; ++i) {
      T* weights = tile.weights + i * kTileKeys;
      T* slopes = tile.slopes + i * kTileKeys;
      if (bias.data) {
        for (std::int64_t j = at.keys.begin; j < at.keys.end; ++j) {
          weights[j - at.keys.begin] += bias.at(at.block.first + i, j);
        }
      }
      if (at.visible == Visible::some) hide(at.block.row(i), at.keys, weights);
      const std::int64_t row = at.block.b * p.n + at.block.first + i;
      weigh(weights, slopes, width, row);
    }
  }

  /// One row: scores to weights, gradients of the weights to those of the scores.
  void weigh(T* weights, T* slopes, std::int64_t width, std::int64_t row) const {
    using namespace Eigen::internal;
    using P = Packet<T>;
    const P top = pset1<P>(shift[row]);
    const P share = pset1<P>(sum[row] == T{0} ? T{0} : T{1} / sum[row]);
    const P centre = pset1<P>(mean[row]);
    for (std::int64_t j = 0; j < width; j += kPacket<T>) {
      const P weight = pmul(exp_weights_packet<T>(psub(pload<P>(weights + j), top)), share);
      const P slope = pmul(weight, psub(pload<P>(slopes + j), centre));
      pstore(weights + j, weight);
      pstore(slopes + j, pandnot(slope, pcmp_eq(weight, pset1<P>(T{0}))));
    }
  }

  /// Hidden scores of one query become -Inf.
  static void hide(const MaskRow& row, Range keys, T* scores) {
    constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();
    const std::int64_t begin = std::clamp(row.begin, keys.begin, keys.end);
    const std::int64_t end = std::clamp(row.end, begin, keys.end);
    std::fill(scores, scores + (begin - keys.begin), kMinusInfinity);
    std::fill(scores + (end - keys.begin), scores + (keys.end - keys.begin), kMinusInfinity);
    if (!row.keep) return;
    for (std::int64_t j = begin; j < end; ++j) {
      if (!row.keep[j]) scores[j - keys.begin] = kMinusInfinity;
    }
  }

  /// Adds a tile to the gradients, from its weights and slopes.
  void add_gradients(const TilePlace& at, BackwardTile<T>& tile) const {
    const std::int64_t b = at.block.b;
    const std::int64_t queries = at.block.count;
    const std::int64_t keys = at.keys.end - at.keys.begin;
    const T* q_rows = q.matrix(b, p.heads) + at.block.first * q.row_stride;
    const T* k_rows = k.matrix(b, p.heads) + at.keys.begin * k.row_stride;
    const T* go_rows = go.matrix(b, p.heads) + at.block.first * go.row_stride;
    const auto scale = static_cast<T>(p.scale);
    if (at.visible == Visible::some && !(all_finite(q_rows, q.row_stride, queries, p.dk) &&
                                         all_finite(k_rows, k.row_stride, keys, p.dk) &&
                                         all_finite(go_rows, go.row_stride, queries, p.dv))) {
      add_visible_pairs(at, tile);
      return;
    }
    const Range rows{at.block.first, at.block.first + queries};
    if (gv.data) {
      const RightSide<T> right(go_rows, go.row_stride, queries, p.dv, tile.upstream_rows);
      add_product<Left::transposed>(tile.weights, right, queries, T{1}, gv, p.dv, at.keys, b);
    }
    if (gk.data) {
      const RightSide<T> right(q_rows, q.row_stride, queries, p.dk, tile.query_rows);
      add_product<Left::transposed>(tile.slopes, right, queries, scale, gk, p.dk, at.keys, b);
    }
    if (gq.data) {
      const RightSide<T> right(k_rows, k.row_stride, keys, p.dk, tile.key_rows);
      add_product<Left::plain>(tile.slopes, right, keys, scale, gq, p.dk, rows, b);
    }
  }

  /// Rows [rows) of a gradient of head b += factor * (a tile, or its transpose) * right.
  template <Left kLeft>
  void add_product(const T* a, const RightSide<T>& right, std::int64_t depth, T factor,
                   HeadsView<T> gradient, std::int64_t width, Range rows, std::int64_t b) const {
    tile_product<kLeft, Into::sum>(
        TileProduct<T>{.a = a,
                       .a_stride = kTileKeys,
                       .b = right.data,
                       .b_stride = right.stride,
                       .c = gradient.matrix(b, p.heads) + rows.begin * gradient.row_stride,
                       .c_stride = gradient.row_stride,
                       .rows = rows.end - rows.begin,
                       .columns = width,
                       .depth = depth,
                       .factor = factor});
  }

  /// The same, pair by pair: for tiles in which a hidden pair holds a NaN or an infinity.
  void add_visible_pairs(const TilePlace& at, const BackwardTile<T>& tile) const {
    for (std::int64_t i = 0; i < at.block.count; ++i) {
      const std::int64_t query = at.block.first + i;
      for (std::int64_t key = at.keys.begin; key < at.keys.end; ++key) {
        if (!at.block.row(i).sees(key)) continue;
        const std::int64_t place = i * kTileKeys + key - at.keys.begin;
        const T slope = tile.slopes[place] * static_cast<T>(p.scale);
        if (gv.data) {
          add_scaled(tile.weights[place], go.matrix(at.block.b, p.heads) + query * go.row_stride,
                     gv.matrix(at.block.b, p.heads) + key * gv.row_stride, p.dv);
        }
        if (gk.data) {
          add_scaled(slope, q.matrix(at.block.b, p.heads) + query * q.row_stride,
                     gk.matrix(at.block.b, p.heads) + key * gk.row_stride, p.dk);
        }
        if (gq.data) {
          add_scaled(slope, k.matrix(at.block.b, p.heads) + key * k.row_stride,
                     gq.matrix(at.block.b, p.heads) + query * gq.row_stride, p.dk);
        }
      }
    }
  }

  void compute(const TilePlace& at, BackwardTile<T>& tile) const {
    const std::int64_t columns = padded(at.keys.end - at.keys.begin);
    TileProduct<T> product{.a = q.matrix(at.block.b, p.heads) + at.block.first * q.row_stride,
                           .a_stride = q.row_stride,
                           .b = tile.keys,
                           .b_stride = kTileKeys,
                           .c = tile.weights,
                           .c_stride = kTileKeys,
                           .rows = at.block.count,
                           .columns = columns,
                           .depth = p.dk,
                           .factor = static_cast<T>(p.scale)};
    tile_product<Left::plain, Into::fresh>(product);
    product.a = go.matrix(at.block.b, p.heads) + at.block.first * go.row_stride;
    product.a_stride = go.row_stride;
    product.b = tile.values;
    product.c = tile.slopes;
    product.depth = p.dv;
    product.factor = T{1};
    tile_product<Left::plain, Into::fresh>(product);
    softmax_backward(at, tile);
    add_gradients(at, tile);
    if (!gbias) return;
    for (std::int64_t i = 0; i < at.block.count; ++i) {
      std::copy_n(tile.slopes + i * kTileKeys, at.keys.end - at.keys.begin,
                  gbias + (at.block.b * p.n + at.block.first + i) * p.m + at.keys.begin);
    }
  }

  /// What comes before the first part of these queries and the first of these keys.
  void prepare(std::int64_t b, Range queries, Range keys) const {
    for (std::int64_t first = queries.begin; first < queries.end; first += kTileQueries) {
      blocks[b * query_blocks(p) + first / kTileQueries] = QueryBlock(p, b, first);
    }
    for (std::int64_t i = queries.begin; i < queries.end; ++i) {
      mean[b * p.n + i] = dot(o.matrix(b, p.heads) + i * o.row_stride,
                              go.matrix(b, p.heads) + i * go.row_stride, p.dv);
    }
    clear(gq, p, b, queries, p.dk);
    clear(gk, p, b, keys, p.dk);
    clear(gv, p, b, keys, p.dv);
    if (!gbias) return;
    std::fill(gbias + (b * p.n + queries.begin) * p.m, gbias + (b * p.n + queries.end) * p.m, T{0});
  }

  /// All tiles of some queries and some keys of head b.
  void part(std::int64_t b, Range queries, Range keys, BackwardTile<T>& tile) const {
    for (std::int64_t from = keys.begin; from < keys.end; from += kTileKeys) {
      const Range block_keys{from, std::min(from + kTileKeys, keys.end)};
      bool laid_out = false;
      for (std::int64_t first = queries.begin; first < queries.end; first += kTileQueries) {
        const QueryBlock& block = blocks[b * query_blocks(p) + first / kTileQueries];
        // Keys past the last visible one are cut off: the tiles of a causal diagonal are full.
        const Range seen{from, std::min(block_keys.end, block.end)};
        const Visible visible = block.keys(seen.begin, seen.end);
        if (visible == Visible::none) continue;
        if (!laid_out) {
          transpose_tile(k.matrix(b, p.heads) + from * k.row_stride, k.row_stride,
                         block_keys.end - from, p.dk, tile.keys, kTileKeys);
          transpose_tile(v.matrix(b, p.heads) + from * v.row_stride, v.row_stride,
                         block_keys.end - from, p.dv, tile.values, kTileKeys);
          laid_out = true;
        }
        compute(TilePlace{block, seen, visible}, tile);
      }
    }
  }
};

/// Part `part` of [0, size) in whole tiles.
Range part_of(std::int64_t size, std::int64_t tile, std::int64_t parts, std::int64_t part) {
  return {cut(size, tile, parts, part), cut(size, tile, parts, part + 1)};
}

/// Parts into which queries and keys of a head are cut: enough tasks for many threads.
std::int64_t parts_of(const FusedProblem& p) {
  constexpr std::int64_t kTasks = 32;
  const std::int64_t heads = std::max<std::int64_t>(1, p.batch * p.heads);
  const std::int64_t longest = std::max<std::int64_t>(1, std::min(p.n, p.m) / kTileQueries);
  return std::clamp<std::int64_t>(kTasks / heads, 1, longest);
}

}  // namespace

template <class T>
void fused_backward(const FusedProblem& p, HeadsView<const T> q, HeadsView<const T> k,
                    HeadsView<const T> v, HeadsView<const T> o, const T* shift, const T* sum,
                    HeadsView<const T> go, HeadsView<T> gq, HeadsView<T> gk, HeadsView<T> gv,
                    T* gbias) {
  const std::int64_t heads = p.batch * p.heads;
  const auto width = static_cast<double>(p.dk + p.dv);
  PoolVector<QueryBlock> blocks(static_cast<std::size_t>(heads * query_blocks(p)));
  Scratch<T> mean(std::max<std::int64_t>(1, heads * p.n));
  const Backward<T> backward{
      p, q, k, v, o, go, gq, gk, gv, gbias, shift, sum, mean.take(heads * p.n), blocks.data()};
  const std::int64_t parts = parts_of(p);
  const double cost = static_cast<double>(p.n) * static_cast<double>(p.m) * width * 2.5 /
                      static_cast<double>(parts * parts);
  for (std::int64_t step = 0; step < parts; ++step) {
    for_tasks(heads * parts, cost, [&](std::int64_t begin, std::int64_t end) {
      BackwardTile<T> tile(p);
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t part = task % parts;
        const Range queries = part_of(p.n, kTileQueries, parts, part);
        const Range keys = part_of(p.m, kTileKeys, parts, (step + parts - part) % parts);
        if (step == 0) backward.prepare(task / parts, queries, keys);
        backward.part(task / parts, queries, keys, tile);
      }
    });
  }
}

template void fused_backward<float>(const FusedProblem&, HeadsView<const float>,
                                    HeadsView<const float>, HeadsView<const float>,
                                    HeadsView<const float>, const float*, const float*,
                                    HeadsView<const float>, HeadsView<float>, HeadsView<float>,
                                    HeadsView<float>, float*);
template void fused_backward<double>(const FusedProblem&, HeadsView<const double>,
                                     HeadsView<const double>, HeadsView<const double>,
                                     HeadsView<const double>, const double*, const double*,
                                     HeadsView<const double>, HeadsView<double>, HeadsView<double>,
                                     HeadsView<double>, double*);

}  // namespace softtape::detail
