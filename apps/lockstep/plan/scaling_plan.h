// Up to how many replicas scaling is efficient, and what would make more of them efficient.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/lockstep/plan/scaling.h"

namespace lockstep::inline v0::apps {

/// Scaling is efficient up to the largest N such that, for each count up to N, the upper half of
/// the replicas adds on average at least this share of the samples/s of one replica.
inline constexpr double kLeastGain = 0.5;

/// Predictions for several numbers of replicas, and conclusions.
struct ScalingPlan {
  std::vector<Prediction> rows;  ///< ascending number of replicas, from 1
  int most = 64;                 ///< largest number of replicas considered
  int efficient_up_to = 1;       ///< largest efficient number of replicas
  int fastest = 1;               ///< smallest number of replicas with the most samples/s
  int cheapest = 1;              ///< number of replicas with the lowest cost of the training
  /// Minimum link bandwidth, in bit/s, with which `most` replicas are efficient; nullopt if they
  /// already are, or are not with any bandwidth.
  std::optional<double> link_for_all = {};
  /// Minimum multiple (a power of two, at most 1,024) of the global batch with which `most`
  /// replicas are efficient; nullopt if they already are, or if there is none.
  std::optional<int> batch_for_all = {};
  bool batch_is_covered = true;  ///< whether the calibration measured that batch
  /// The largest overhead of the first inefficient number of replicas: "communication", "compute"
  /// (per-replica batches are too small to be faster), "input" or "waiting"; empty if all are
  /// efficient.
  std::string limit = {};
};

/// Returns the plan for `replicas`, each at least 1, and for the numbers up to their maximum.
ScalingPlan plan_scaling(const Calibration& calibration, const Hardware& hardware,
                         const ScalingOptions& options, std::span<const int> replicas);

/// Returns the assumptions of a plan, one sentence each, without a period.
std::vector<std::string> assumptions(const Calibration& calibration, const Hardware& hardware,
                                     const ScalingOptions& options, const ScalingPlan& plan);

/// Formats a bandwidth: "1 Gbit/s", "100 Mbit/s".
std::string bit_rate_text(double bits_per_second);

}  // namespace lockstep::inline v0::apps
