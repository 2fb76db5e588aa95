// Division of records and global batches between workers and replicas.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0::data {

/// A half-open range of positions.
struct Range {
  std::int64_t begin = 0;                            ///< first position
  std::int64_t end = 0;                              ///< one past the last position
  std::int64_t size() const { return end - begin; }  ///< number of positions
  bool operator==(const Range&) const = default;
};

/// Part `part` of `total` samples cut into `parts` contiguous ranges whose sizes differ by at most
/// one: [part*total/parts, (part+1)*total/parts). Used for the replicas of a global batch and for
/// the micro-batches of a replica. May be empty.
Range split(std::int64_t total, std::int64_t parts, std::int64_t part);

/// Like split(), but the larger parts rotate from turn to turn: after any number of turns, the
/// totals of the parts differ by at most one sample.
Range split_in_turn(std::int64_t total, std::int64_t parts, std::int64_t part, std::int64_t turn);

/// Consecutive samples of a global batch in the order of micro-batches. Sample i of the global
/// batch belongs to micro-batch i % count, however the global batch is divided among replicas.
class MicroBatchOrder {
 public:
  /// Orders the range `samples` of a global batch by `count` micro-batches, at least 1.
  MicroBatchOrder(Range samples, std::int64_t count) : samples_(samples), count_(count) {}

  /// The positions of micro-batch `number` in this order. May be empty.
  Range range(std::int64_t number) const;
  /// The position in this order of a sample of the global batch.
  std::int64_t position(std::int64_t sample) const {
    if (count_ == 1) return sample - samples_.begin;  // no divisions: called per sample
    return range(sample % count_).begin + (sample - samples_.begin) / count_;
  }

 private:
  Range samples_;
  std::int64_t count_;
};

// Policies.

/// The sharding policies. All but the first are those of tf.distribute.
enum class ShardPolicy {
  /// All replicas share one order of all records: each reads only its part of every global batch.
  /// For any number and size of files, each record is seen once per epoch, parts differ by at most
  /// one record, and the order does not depend on the number of replicas.
  automatic,
  /// Worker w of W batches the records of its files w, w + W, w + 2W ... The epoch ends when the
  /// last worker is done. Requires at least as many files as workers.
  file,
  /// Like `automatic`, but a global batch is cut as in tf.distribute: into slices of equal size,
  /// the last of which may be short or empty, distributed to workers in turn.
  data,
  /// Every worker reads all records in its own order: an epoch has each record once per worker. For
  /// workers with different data.
  off,
};

/// "auto", "file", "data", "off".
std::string_view to_string(ShardPolicy policy);

// Assignment of samples of global batches to replicas.

/// The assignment of replicas to workers, the processes that read: worker w has the replicas
/// w*per_worker and following.
struct ReplicaLayout {
  int replicas = 1;    ///< replicas of the job
  int per_worker = 1;  ///< replicas per rank

  int workers() const { return replicas / per_worker; }  ///< number of ranks
  bool operator==(const ReplicaLayout&) const = default;
};

/// What one worker reads in an epoch.
struct WorkerShare {
  std::int64_t files = 0;    ///< files that it reads from
  std::int64_t records = 0;  ///< records that its replicas read
  std::int64_t bytes = 0;    ///< approximate: each record counts as the average size in its file
};

/// One replica's share of one step.
struct BatchShare {
  Range positions;                  ///< in the record sequence of its worker
  std::int64_t first_sample = 0;    ///< index of the first sample in the global batch
  std::int64_t global_samples = 0;  ///< samples of all replicas
  bool operator==(const BatchShare&) const = default;
};

/// Cuts an epoch into steps and steps into shares. It stores only record counts, so any step can be
/// computed directly.
class BatchPlan {
 public:
  /// `worker_records` is the number of records of each worker's own sequence for policies that have
  /// one (file, off); otherwise the number of records of the shared sequence. Throws Error (input)
  /// for a policy other than auto if workers have different numbers of replicas.
  BatchPlan(ShardPolicy policy, std::vector<std::int64_t> worker_records, std::int64_t global_batch,
            ReplicaLayout layout);

  /// Number of steps until the last worker has used its last record.
  std::int64_t steps_per_epoch() const { return steps_; }

  /// The share of replica `replica` in the global batch of step `step_in_epoch`, which counts from
  /// 0.
  BatchShare share(std::int64_t step_in_epoch, int replica) const;

  /// Number of records that all replicas of `worker` read in an epoch.
  std::int64_t records_of_worker(int worker) const;

 private:
  bool has_own_sequences() const {
    return policy_ == ShardPolicy::file || policy_ == ShardPolicy::off;
  }
  BatchShare shared_share(std::int64_t step, int replica) const;
  std::int64_t records_of_replica(int replica) const;
  Range balanced_range(std::int64_t step, std::int64_t samples, int replica) const;
  std::int64_t worker_position(int worker, std::int64_t pulls) const;
  Range worker_range(std::int64_t step, int replica) const;
  std::int64_t steps_of_worker(int worker) const;

  ShardPolicy policy_;
  std::vector<std::int64_t> worker_records_;
  std::int64_t global_batch_;
  ReplicaLayout layout_;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<data::ShardPolicy> =
    enum_names<data::ShardPolicy>({{data::ShardPolicy::automatic, "auto"},
                                   {data::ShardPolicy::file, "file"},
                                   {data::ShardPolicy::data, "data"},
                                   {data::ShardPolicy::off, "off"}});

}  // namespace lockstep::inline v0
