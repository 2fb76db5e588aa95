#include "lockstep/train/fit/epoch_account.h"

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/replica/replica.h"

namespace lockstep::inline v0::train {
namespace {

/// Returns the values of metrics that are not partial.
std::vector<model::MetricValue> whole_values(const model::Metrics& metrics,
                                             const EpochTotals& totals) {
  model::Metrics whole;
  model::MetricTotals sums;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (totals.partial_metrics.contains(metrics[i]->name())) continue;
    whole.push_back(metrics[i]);
    sums.push_back(totals.metrics[i]);
  }
  return model::values_of(whole, sums);
}

}  // namespace

void EpochAccount::begin(const Position& position, const data::BatchStream& stream) {
  has_begun_ = true;
  samples_of_run_ = 0;
  paused_ = 0;
  waited_before_ = stream.seconds_waited();
  communication_before_ = replicas_[0].communication();
  start_ = std::chrono::steady_clock::now();
  records_.clear();
  is_whole_ = position.is_at_epoch_begin();
}

void EpochAccount::add_step(const std::vector<data::Batch>& parts, bool applied) {
  const std::int64_t samples = parts.front().global_samples;
  records_.add(parts);
  samples_of_run_ += samples;
  if (!applied) totals_.skipped_samples += samples;
}

void EpochAccount::collect() {
  totals_.sums += replicas_.take_metrics();
  totals_.sums.classes = replicas_.classes();
  model::add_totals(replicas_.metrics(), replicas_.take_metric_totals(), totals_.metrics);
}

EpochLogs EpochAccount::logs(const Position& position, bool is_complete,
                             const data::BatchStream* stream) {
  collect();
  EpochLogs logs{.epoch = position.epochs_done,
                 .step = position.step,
                 .complete = is_complete,
                 .metrics = totals_.sums,
                 .validation = {},
                 .samples = totals_.sums.samples + totals_.skipped_samples,
                 .skipped_samples = totals_.skipped_samples};
  logs.values = whole_values(replicas_.metrics(), totals_);
  if (has_begun_) {
    logs.seconds = seconds_since(start_) - paused_;
    logs.samples_per_second = static_cast<double>(samples_of_run_) / logs.seconds;
    logs.input_wait_seconds = stream->seconds_waited() - waited_before_;
    logs.data_workers = stream->workers();
    logs.communication = replicas_[0].communication() - communication_before_;
  }
  if (stream != nullptr) account_for_records(logs, *stream);
  return logs;
}

void EpochAccount::account_for_records(EpochLogs& logs, const data::BatchStream& stream) const {
  const data::Dataset& dataset = plan_.dataset;
  const allreduce::Communicator& ranks = replicas_.strategy().ranks();
  const std::int64_t allowed = dataset.bad_records_allowed().value_or(0);
  logs.bad_files = gather_bad_records(ranks, dataset.source(), stream.bad_records(), allowed);
  if (!logs.complete || !is_whole_ || !logs.bad_files.empty()) return;
  const bool each_rank_sees_all = dataset.shard_policy() == data::ShardPolicy::off;
  logs.times_seen = each_rank_sees_all ? plan_.layout.workers() : 1;
  LOCKSTEP_CHECK(records_.is_complete(ranks, dataset.size(), logs.times_seen));
}

void EpochAccount::end() {
  totals_ = {};
  has_begun_ = false;
}

}  // namespace lockstep::inline v0::train
