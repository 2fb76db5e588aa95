// The replicas over which batch normalization computes its statistics in training.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/backend.h"

namespace lockstep::strategy {

/// Each replica, all replicas, or groups of consecutive replicas.
struct NormalizationScope {
  /// As `--bn` names them.
  enum class Kind { local, sync, group };
  Kind kind = Kind::local;  ///< which of these
  int group = 0;            ///< replicas per group, for Kind::group

  /// The number of replicas, out of `replicas`, that normalize together. Throws Error (input) if
  /// the group size does not divide `replicas`.
  int members(int replicas) const;
};

/// Parses "local", "sync" or "group:K". Throws Error (input).
NormalizationScope parse_normalization_scope(std::string_view name);
std::string to_string(const NormalizationScope& scope);  ///< in the syntax of `--bn`

// Moving statistics of replicas, and synchronized batch normalization.

/// Replaces the flat `buffers` of every replica by their mean over the replicas, weighted by
/// `samples`: the number of samples that a replica trained on since the buffers were last equal.
/// Does nothing if no replica trained. Collective over `group`; the same bits on every replica.
///
/// Moving statistics are linear in what they have seen, so with equal parts it does not matter how
/// often they are averaged.
void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers,
                               std::int64_t samples);

// Sums of batch normalization over several replicas.

/// The members are `members` replicas with consecutive indices; all replicas of the job make the
/// same calls. Sums take their turn among the gradient buckets, over the same group: the calls of
/// all replicas are in one order, and what ends one ends the other. Where the members are not all
/// replicas, each group of them sums in its own part of an array that is zero elsewhere.
class ReplicaStatistics final : public model::StatisticsExchange {
 public:
  /// For replica `replica` of `replicas`, of which groups of `members` are normalized together.
  ReplicaStatistics(int replica, int replicas, int members);

  /// Before the first sum; both outlive it, or its last sum.
  void attach(allreduce::GradientBuckets& buckets, model::Backend& backend);

  int members() const override {
    return members_;
  }  ///< replicas whose samples are normalized together
  int member() const override { return replica_ % members_; }
  void sum(std::span<float> values) override;

  /// Seconds spent in sum() since construction.
  double seconds() const { return seconds_.count(); }

 private:
  std::span<float> parts(std::size_t part);

  int replica_;
  int replicas_;
  int members_;
  allreduce::GradientBuckets* buckets_ = nullptr;
  model::Backend* backend_ = nullptr;
  device::Buffer parts_;  // one part per group of members; grows to the largest sum
  std::chrono::duration<double> seconds_{0};
};

}  // namespace lockstep::strategy
