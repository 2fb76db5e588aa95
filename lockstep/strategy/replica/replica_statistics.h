// Statistics of batch normalization over several replicas: moving statistics, and statistics of
// synchronized normalization.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::strategy {

/// Replaces the flat `buffers` of every replica by their mean over the replicas, weighted by
/// `samples`: the number of samples that a replica trained on since the buffers were last equal.
/// Does nothing if no replica trained. Collective over `group`; bitwise equal on every replica.
///
/// Moving statistics are linear in the batch statistics, so with equal parts the result does not
/// depend on how often they are averaged.
void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers,
                               std::int64_t samples);

/// The moving statistics of one replica. They differ between replicas until they are replaced by
/// their mean, unless all replicas normalize together. All work is enqueued on the model's stream.
class MovingStatistics {
 public:
  /// `are_equal`: whether all replicas of `group` normalize together. `model` must outlive this
  /// object.
  MovingStatistics(allreduce::Communicator group, model::CompiledModel& model, bool are_equal);

  /// Counts samples that this replica trained on, which are its weight in the mean.
  void add_samples(std::int64_t samples) {
    samples_since_mean_ += samples;
    agree_ = are_equal_;
  }
  /// Whether the statistics must be the same on all replicas now. The same on all replicas.
  bool agree() const { return agree_; }
  /// Replaces the statistics by their mean, for the rest of the training. Collective.
  void adopt_mean();
  /// Installs the mean until restore(). Collective.
  void install_mean();

  void keep();                                                 ///< copies the statistics
  void restore();                                              ///< copies them back
  std::span<float> kept() const { return kept_.as<float>(); }  ///< the copy

 private:
  void average();

  allreduce::Communicator group_;
  model::CompiledModel& model_;
  bool are_equal_;
  bool agree_ = true;
  device::Buffer kept_;
  std::int64_t samples_since_mean_ = 0;
};

/// Sums of batch normalization over several replicas. The members are `members` replicas with
/// consecutive indices; all replicas of the job make the same calls. Sums are enqueued among the
/// gradient buckets, over the same group, so that the calls of all replicas are in one order and
/// are aborted together. If the members are not all replicas, each group of them sums in its own
/// part of an array that is zero elsewhere.
class ReplicaStatistics final : public model::StatisticsExchange {
 public:
  /// For replica `replica` of `replicas`, normalized in groups of `members`.
  ReplicaStatistics(int replica, int replicas, int members);

  /// Must be called before the first sum. Both must outlive the last sum.
  void attach(allreduce::GradientBuckets& buckets, model::Backend& backend);

  /// Number of replicas whose samples are normalized together.
  int members() const override { return members_; }
  int member() const override { return replica_ % members_; }
  void sum(std::span<float> values) override;

  /// Seconds spent in sum() since construction.
  double seconds() const { return seconds_; }

 private:
  std::span<float> parts(std::size_t part);

  int replica_;
  int replicas_;
  int members_;
  allreduce::GradientBuckets* buckets_ = nullptr;
  model::Backend* backend_ = nullptr;
  device::Buffer parts_;  // one part per group of members; grows to the largest sum
  double seconds_ = 0;
};

}  // namespace lockstep::inline v0::strategy
