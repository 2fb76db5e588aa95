// Who reads which records.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/order/batch_split.h"

namespace lockstep::data {

/// The policies of tf.distribute, with their meaning there, but for the first.
enum class ShardPolicy {
  /// All replicas go through one order of all records together: each takes its part of every global batch, and reads
  /// nothing else. Whatever the number and sizes of files, each record is seen once an epoch, parts differ by at most
  /// one record, and the order does not depend on the number of replicas.
  automatic,
  /// Worker w of W takes files w, w + W, w + 2W ... and batches them alone; the epoch ends when the last worker is
  /// done. Needs at least as many files as workers.
  file,
  /// Like `automatic`, but a global batch is cut as tf.distribute does: into slices of equal size of which the last
  /// ones may be short or empty, dealt to workers in turn.
  data,
  /// Every worker goes through all records, in an order of its own: an epoch sees each record once per worker. For
  /// workers that have different data.
  off,
};

/// "auto", "file", "data", "off".
std::string_view to_string(ShardPolicy policy);
/// Throws Error (input) that lists them.
ShardPolicy parse_shard_policy(std::string_view name);

// Which samples of which global batches each replica takes.

/// How replicas are dealt to workers, the processes that read: worker w drives replicas w*per_worker and following.
struct ReplicaLayout {
  int replicas = 1;    ///< of the job
  int per_worker = 1;  ///< of each rank

  int workers() const { return replicas / per_worker; }  ///< ranks
  bool operator==(const ReplicaLayout&) const = default;
};

/// What one worker reads in an epoch.
struct WorkerShare {
  std::int64_t files = 0;    ///< that it reads from
  std::int64_t records = 0;  ///< of the global batch, that this rank's replicas take
  std::int64_t bytes = 0;    ///< about: each record counted as an average one of its file
};

/// One replica's share of one step.
struct BatchShare {
  Range positions;                  ///< in the sequence of records that its worker goes through
  std::int64_t first_sample = 0;    ///< place of the first one in the global batch
  std::int64_t global_samples = 0;  ///< of all replicas
  bool operator==(const BatchShare&) const = default;
};

/// Cuts an epoch into steps and steps into shares. A value without any memory but the numbers of records, so any step
/// can be asked for at once.
class BatchPlan {
 public:
  /// `worker_records`: the records of each worker's own sequence, where the policy gives it one (file, off); else those
  /// of the one sequence that all share. Throws Error (input) for a policy other than auto where workers have unequal
  /// numbers of replicas.
  BatchPlan(ShardPolicy policy, std::vector<std::int64_t> worker_records, std::int64_t global_batch,
            ReplicaLayout layout);

  /// Until the last record of the last worker is taken.
  std::int64_t steps_per_epoch() const { return steps_; }

  /// What replica `replica` takes of the global batch of step `step_in_epoch`, which counts from 0.
  BatchShare share(std::int64_t step_in_epoch, int replica) const;

  /// That all replicas of `worker` take in an epoch.
  std::int64_t records_of_worker(int worker) const;

 private:
  bool has_own_sequences() const { return policy_ == ShardPolicy::file || policy_ == ShardPolicy::off; }
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

}  // namespace lockstep::data
