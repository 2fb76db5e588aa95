// What replicas keep beside their parameters, made one.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/backend.h"

namespace lockstep::strategy {

/// Replaces the flat `buffers` of every replica by their mean over the replicas, weighted by `samples`: the samples
/// that a replica trained on since all replicas last held the same. Nothing changes where nobody trained. Collective
/// over `group`; the same bits on every replica.
///
/// Moving statistics are linear in what they have seen, so with equal parts it does not matter how often they are
/// averaged.
void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers, std::int64_t samples);

// What the normalization of one replica's model asks of the other replicas.

/// The members are `members` replicas with numbers that follow each other; all replicas of the job make the same calls.
/// Sums take their turn among the gradient buckets, over the same group: the calls of all replicas are in one order,
/// and what ends one ends the other. Where the members are not all replicas, each group of them sums in its own part of
/// an array that is zero elsewhere.
class ReplicaStatistics final : public model::StatisticsExchange {
 public:
  /// For replica `replica` of `replicas`, of which groups of `members` are normalized together.
  ReplicaStatistics(int replica, int replicas, int members);

  /// Before the first sum; both outlive it, or its last sum.
  void attach(allreduce::GradientBuckets& buckets, model::Backend& backend);

  int members() const override { return members_; }  ///< replicas whose samples are normalized together
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
  device::Buffer parts_;  // one for each group of members; grows to the largest sum
  std::chrono::duration<double> seconds_{0};
};

}  // namespace lockstep::strategy
