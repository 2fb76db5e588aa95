// How many replicas pay, and what would let more of them pay.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/strategy/plan/scaling.h"

namespace lockstep::strategy {

/// Replicas pay up to the largest N such that, for each count up to N, those of the upper half add
/// on average at least this share of the samples/s of one replica.
inline constexpr double kLeastGain = 0.5;

/// A prediction for several numbers of replicas, and what follows from it.
struct ScalingPlan {
  std::vector<Prediction> rows;  ///< ascending in replicas, from 1
  int most = 64;                 ///< the largest number that was considered
  int pays_up_to = 1;            ///< beyond it more replicas do not pay; `most`: all pay
  int fastest = 1;               ///< the number with the most samples/s; the smallest of several
  int cheapest = 1;              ///< the number with the lowest cost of the same training
  /// Of Hardware: the least speed of links, in bit/s, with which all of `most` pay; nullopt if they
  /// already do, or would not at any speed.
  std::optional<double> link_for_all = {};
  /// The least multiple (a power of two) of the global batch with which they pay; nullopt likewise,
  /// or above 1,024.
  std::optional<int> batch_for_all = {};
  bool batch_is_covered = true;  ///< whether the calibration measured that batch
  /// The largest part beyond the computation of the first step that does not pay: "communication",
  /// "compute" (per-replica batches are too small to be faster), "input" or "waiting"; empty if all
  /// pay.
  std::string limit = {};
};

/// The plan for `replicas`, each at least 1, and for the numbers up to the largest of them.
ScalingPlan plan_scaling(const Calibration& calibration, const Hardware& hardware,
                         const ScalingOptions& options, std::span<const int> replicas);

/// What a plan assumes, one sentence each, without a full stop.
std::vector<std::string> assumptions(const Calibration& calibration, const Hardware& hardware,
                                     const ScalingOptions& options, const ScalingPlan& plan);

/// "1 Gbit/s", "100 Mbit/s"
std::string bit_rate_text(double bits_per_second);

}  // namespace lockstep::strategy
