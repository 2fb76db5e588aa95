// FitLoop: beginning and end of an epoch.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/strategy/evaluation.h"
#include "lockstep/strategy/fit_loop.h"

namespace lockstep::strategy {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

void FitLoop::begin_epoch() {
  epoch_begun_ = true;
  samples_here_ = 0;
  paused_ = {};
  waited_before_ = stream_->seconds_waited();
  communication_before_ = replicas_[0].communication();
  epoch_start_ = Clock::now();
  account_.clear();
  account_is_whole_ = step_ == epochs_done_ * steps_per_epoch_;
  tell([this](Callback& callback) { callback.on_epoch_begin(epochs_done_); });
}

void FitLoop::end_epoch(bool complete) {
  collect_metrics();
  EpochLogs logs{.epoch = epochs_done_,
                 .step = step_,
                 .complete = complete,
                 .metrics = epoch_sums_,
                 .validation = {},
                 .samples = epoch_sums_.samples + skipped_samples_,
                 .skipped_samples = skipped_samples_};
  logs.learning_rate = schedule_.rate(std::max<std::int64_t>(0, step_ - 1));
  if (epoch_begun_) {
    logs.seconds = seconds_since(epoch_start_) - paused_.count();
    logs.samples_per_second = static_cast<double>(samples_here_) / logs.seconds;
    logs.input_wait_seconds = stream_->seconds_waited() - waited_before_;
    logs.data_workers = stream_->workers();
    logs.communication = replicas_[0].communication() - communication_before_;
  }
  account_for_records(logs);
  if (!validate(logs)) return;
  tell([&](Callback& callback) { callback.on_epoch_end(logs); });
  history_.epochs.push_back(logs);
  if (!complete) return;
  agree_on_stop();
  ++epochs_done_;
  epoch_begun_ = false;
  epoch_sums_ = {};
  skipped_samples_ = 0;
}

/// Reports bad records, and verifies for a whole epoch that each record was read the expected number of times.
void FitLoop::account_for_records(EpochLogs& logs) const {
  if (!stream_) return;
  const std::int64_t allowed = dataset_.bad_records_allowed().value_or(0);
  logs.bad_files = gather_bad_records(strategy_.ranks(), dataset_.source(), stream_->bad_records(), allowed);
  if (!logs.complete || !account_is_whole_ || !logs.bad_files.empty()) return;
  const bool each_rank_sees_all = dataset_.shard_policy() == data::ShardPolicy::off;
  logs.times_seen = each_rank_sees_all ? layout_.workers() : 1;
  LOCKSTEP_CHECK(account_.is_complete(strategy_.ranks(), dataset_.size(), logs.times_seen));
}

/// Returns false if a signal interrupted the validation; then the epoch counts as not reported yet.
bool FitLoop::validate(EpochLogs& logs) {
  if (!fit_.validation) return true;
  const Clock::time_point start = Clock::now();
  tell([](Callback& callback) { callback.on_test_begin(); });
  replicas_.run([](Replica& replica, int) { replica.install_mean_statistics(); });
  logs.validation =
      evaluate(replicas_, *fit_.validation, one_pass(strategy_, *fit_.validation, fit_.prefetch, fit_.data_threads),
               [this] { return agree_on_signal() != 0; });
  replicas_.run([](Replica& replica, int) { replica.restore_statistics(); });
  if (!logs.validation) {
    signal_ = agree_on_signal();
    return false;
  }
  logs.validation_seconds = seconds_since(start);
  tell([&](Callback& callback) { callback.on_test_end(*logs.validation); });
  return true;
}

void FitLoop::collect_metrics() {
  epoch_sums_ += replicas_.take_metrics();
  epoch_sums_.has_accuracy = replicas_.has_accuracy();
}

}  // namespace lockstep::strategy
