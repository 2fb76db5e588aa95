// The results of an epoch: its metrics, skipped samples, times and records.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/train/evaluation/record_account.h"
#include "lockstep/train/fit/fit_plan.h"

namespace lockstep::inline v0::train {

/// The part of an epoch's account that checkpoints store; over all replicas.
struct EpochTotals {
  model::MetricSums sums = {};       ///< over the good steps
  model::MetricTotals metrics = {};  ///< totals of TrainerOptions::metrics over the same samples
  /// Names of metrics that cover only a part of the samples, because the checkpoint of an earlier
  /// run lacks their totals.
  std::set<std::string, std::less<>> partial_metrics = {};
  std::int64_t skipped_samples = 0;  ///< number of samples in skipped steps
};

/// The account of the current epoch. Times and the check of records cover the steps of this run;
/// the totals also those of the run that it resumes from.
class EpochAccount {
 public:
  /// Both must outlive this object.
  EpochAccount(strategy::LocalReplicas& replicas, const FitPlan& plan)
      : replicas_(replicas), plan_(plan) {}

  /// Continues an epoch of an earlier run.
  void restore(const EpochTotals& totals) { totals_ = totals; }
  const EpochTotals& totals() const { return totals_; }  ///< up to the last collect()

  bool has_begun() const { return has_begun_; }  ///< whether this run executed steps of the epoch
  /// Call it before the first step of the epoch in this run. Starts the clock.
  void begin(const Position& position, const data::BatchStream& stream);
  /// Adds a step. `parts`: the local parts of its global batch. `applied`: whether the replicas
  /// have its metrics.
  void add_step(const std::vector<data::Batch>& parts, bool applied);
  /// Excludes time from the duration of the epoch, such as that of saving.
  void pause(double seconds) { paused_ += seconds; }
  /// Adds the metrics of all replicas since the last call to the totals. Collective.
  void collect();

  /// Returns the logs without validation and learning rate. Collects, reports bad records, and
  /// verifies for a whole epoch that each record was read the expected number of times. `stream`:
  /// null if this run has no steps. Throws the same Error (data) on all ranks for too many bad
  /// records. Collective.
  EpochLogs logs(const Position& position, bool is_complete, const data::BatchStream* stream);
  /// Starts the next epoch.
  void end();

 private:
  void account_for_records(EpochLogs& logs, const data::BatchStream& stream) const;

  strategy::LocalReplicas& replicas_;
  const FitPlan& plan_;
  EpochTotals totals_;
  RecordAccount records_;
  bool has_begun_ = false;
  bool is_whole_ = false;            // whether the epoch began in this run
  std::int64_t samples_of_run_ = 0;  // samples visited in this run
  double waited_before_ = 0;         // seconds waiting for input before the epoch
  allreduce::CommunicationTimes communication_before_;
  std::chrono::steady_clock::time_point start_;
  double paused_ = 0;  // seconds
};

}  // namespace lockstep::inline v0::train
