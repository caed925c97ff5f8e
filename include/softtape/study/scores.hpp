// Probes of scores: how far they spread, against what unit-variance queries and keys predict, and
// whether they were scaled as meant. As in probes.hpp nothing is recorded and `.grad()` stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softtape/attention/attention.hpp"
#include "softtape/study/formatter.hpp"

namespace softtape {

/// sqrt(2 ln keys): a softmax over that many scores of a larger standard deviation gives nearly
/// everything to one key. 1.18 for 2 keys, 2.35 for 16, 3.12 for 128; 0 for one.
/// Source: the freezing of the random energy model, Derrida, Phys. Rev. B 24 (1981).
SOFTTAPE_API double saturation_boundary(double keys);

/// |factor| sqrt(dk): the standard deviation of scaled scores q.k when the components of q and k
/// are independent with mean 0 and variance 1. Throws: ValueError unless dk is at least 1.
SOFTTAPE_API double predicted_score_std(const Scale& scale, std::int64_t dk);

struct ScoreStatistics {
  std::int64_t count = 0;  ///< visible scores
  double keys = 0;         ///< visible keys of a row, mean over rows that see any
  double mean = 0;
  double std = 0;  ///< over all visible scores, about their mean, divided by count - 1
  /// Within rows, which is all that softmax sees: variances about each row's mean, pooled.
  double row_std = 0;
  double boundary = 0;  ///< saturation_boundary(keys)
  /// Whether a row's spread lies beyond the boundary.
  bool saturated() const { return row_std > boundary && keys > 1; }
};

/// Statistics of scores (..., n, m), or of raw scores; hidden ones are -Inf or named by the mask.
/// Edges: fewer than two scores, in a row or at all, have spread 0; a NaN or +Inf makes it NaN.
/// Throws: ShapeError for rank 0 or a mask that does not fit, DtypeError, GraphError.
SOFTTAPE_API ScoreStatistics score_statistics(const Tensor& scores, const Mask& mask = {});
SOFTTAPE_API std::string to_string(const ScoreStatistics& statistics);

struct ScaleAuditOptions {
  std::int64_t dk = 0;       ///< Width of a key: the right factor is 1 / sqrt(dk).
  std::int64_t d_model = 0;  ///< Width of the model, when it is known.
};

/// What scale_audit found. Prints itself.
struct ScaleAudit {
  double factor = 0;    ///< measured: scores are this times the raw scores
  double expected = 0;  ///< 1 / sqrt(dk)
  /// How far scores are from a multiple of raw scores, relative to their own size: 0, or rounding,
  /// unless a bias or a soft cap lies between them.
  double residual = 0;
  bool right = false;                  ///< the factor is the expected one, and no other finding
  std::vector<std::string> mistakes{}; /**< what was probably done instead, likeliest first */
};

/// Compares scores with the raw scores q k^T they were made from and names the usual mistakes: not
/// scaled, scaled twice, multiplied instead of divided, divided by sqrt(d_model), or by the root of
/// another axis (queries, keys).
/// Shapes: raw and scores (..., n, m). Hidden scores (-Inf) are left out.
/// Edges: where two readings give one factor (n = m, or d_model = m) both are named; what equals
/// 1 / sqrt(dk) is right. 1 / dk is also what muP wants.
/// Throws: ValueError unless dk is at least 1 and d_model not negative, and when no visible raw
/// score differs from 0; ShapeError, DtypeError, GraphError.
SOFTTAPE_API ScaleAudit scale_audit(const Tensor& raw_scores, const Tensor& scores,
                                    const ScaleAuditOptions& options);
/// The same for a whole attention, whose weights are looked at too: rows that do not sum to 1 while
/// columns do were normalised along the wrong axis. Throws: GraphError without weights and scores.
SOFTTAPE_API ScaleAudit scale_audit(const Attention& attended, const ScaleAuditOptions& options);
SOFTTAPE_API std::string to_string(const ScaleAudit& audit);

}  // namespace softtape

template <>
struct fmt::formatter<softtape::ScoreStatistics> : softtape::detail::ReportFormatter {};
template <>
struct fmt::formatter<softtape::ScaleAudit> : softtape::detail::ReportFormatter {};
