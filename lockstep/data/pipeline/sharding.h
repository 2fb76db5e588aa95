// The record sequence of each worker.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"

namespace lockstep::inline v0::data {

class RecordSequence;

/// The records of a data set, distributed to the workers of a layout by the policy.
class Sharding {
 public:
  /// Throws Error (input) if the policy does not fit the source or the layout.
  Sharding(const Pipeline& pipeline, ReplicaLayout layout);

  const BatchPlan& plan() const { return plan_; }

  /// The sequence of `worker` in `epoch`. `seed` is used if the pipeline shuffles.
  RecordSequence sequence(int worker, std::uint64_t seed, std::int64_t epoch) const;

  /// Human-readable, and used to check that the order is unchanged: "shuffled one by one".
  std::string order() const;

  /// What each worker reads in `epoch`, counted record by record if necessary. Up to kMaxCounted
  /// records; for more, only `records` is exact, `bytes` is a proportional share of all bytes, and
  /// `files` is 0.
  static constexpr std::int64_t kMaxCounted = 1 << 20;
  std::vector<WorkerShare> shares(std::uint64_t seed, std::int64_t epoch) const;

 private:
  friend class RecordSequence;
  /// Concatenated ranges of ids; one range of all records if workers share a sequence.
  struct Ranges {
    std::vector<std::int64_t> first_position;
    std::vector<std::int64_t> first_record;
    std::int64_t records = 0;
  };

  static std::vector<Ranges> make_ranges(ShardPolicy policy, const RecordSource& source,
                                         const std::vector<StoredFile>& files, int workers);
  bool has_own_orders() const {
    return policy_ == ShardPolicy::file || policy_ == ShardPolicy::off;
  }
  std::vector<std::int64_t> worker_records() const;
  const Ranges& ranges_of(int worker) const {
    return ranges_[ranges_.size() == 1 ? 0 : static_cast<std::size_t>(worker)];
  }
  OrderShape shape_of(const Ranges& ranges) const;
  WorkerShare share_of_own_files(int worker) const;
  WorkerShare count(int worker, const RecordSequence& sequence,
                    const std::vector<std::int64_t>& last_record) const;

  ShardPolicy policy_;
  ReplicaLayout layout_;
  bool shuffled_;
  std::vector<StoredFile> files_;
  std::vector<Ranges> ranges_;
  std::int64_t record_bytes_;
  std::int64_t slots_;  // samples per step of all workers that share an order
  BatchPlan plan_;
};

/// The records of one worker in one epoch. Refers to its Sharding.
class RecordSequence {
 public:
  /// The record id at `position` of the worker's sequence.
  std::int64_t operator[](std::int64_t position) const;
  /// EpochOrder::for_each_block_ahead() with record ids.
  void for_each_block_ahead(std::int64_t position, const std::function<void(Range)>& read) const;

 private:
  friend class Sharding;
  RecordSequence(const Sharding::Ranges& ranges, std::optional<EpochOrder> order)
      : ranges_(&ranges), order_(order) {}
  std::size_t range_at(std::int64_t position) const;

  const Sharding::Ranges* ranges_;
  std::optional<EpochOrder> order_;  // none: in storage order
};

}  // namespace lockstep::inline v0::data
