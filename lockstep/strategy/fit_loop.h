// The training loop of one call of Trainer::fit().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/job/signals.h"
#include "lockstep/strategy/bucket_tuner.h"
#include "lockstep/strategy/local_replicas.h"
#include "lockstep/strategy/record_account.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::strategy {

/// All ranks execute the same steps and make the same decisions. Anything that may differ between ranks (a failed loss,
/// a signal, a request of a callback) is summed over the replicas with the step's gradients, or agreed on at the end of
/// the step, before a rank acts on it.
///
/// The position in the data is the step number. After every save, all replicas continue from the saved values: moving
/// statistics become their mean over the replicas, so a resumed training equals one that was not interrupted.
class FitLoop {
 public:
  /// `replicas`: initialized. The options must outlive this object.
  FitLoop(LocalReplicas& replicas, const TrainerOptions& trainer, const data::Dataset& dataset, const FitOptions& fit);
  ~FitLoop();

  History run();

 private:
  void begin();
  void restore();
  void initialize();
  void prepare();
  void check_position(const checkpoint::RestoredCheckpoint& restored) const;
  /// A human-readable description of all options that must be the same on all ranks.
  std::string plan() const;
  void announce() const;

  void train_step();
  void note_step(const StepResult& result);
  void note_skip(const StepResult& result);
  void note_overflow(const StepResult& result) const;
  /// Marks the newest checkpoint as confirmed: a good step followed it, so older ones may be removed.
  void confirm_checkpoint();
  /// Whether the training ended with skipped steps and without any good step in this run or the last epoch.
  bool ended_diverged() const;
  /// Throws the same Error (diverged) on all ranks, which names the newest usable checkpoint. Collective.
  [[noreturn]] void throw_diverged(const std::string& given);
  /// Logs the error of a 16-bit wire type, once.
  void note_wire_error() const;
  void note_memory() const;
  void agree_on_stop();
  void tune_buckets(double step_seconds);
  void set_bucket_bytes(std::size_t bytes);

  void begin_epoch();
  void end_epoch(bool complete);
  bool validate(EpochLogs& logs);
  void account_for_records(EpochLogs& logs) const;
  void collect_metrics();

  bool must_save();
  void save();
  /// Throws Error (diverged) for parameters, slots or moving statistics that are not finite.
  void check_finite(const checkpoint::ReplicaArrays& arrays);
  checkpoint::TrainingState state() const;
  TrainEnd end();

  bool leaving() const { return signal_ != 0 || stopped_; }
  bool at_epoch_end() const { return step_ == (epochs_done_ + 1) * steps_per_epoch_; }
  /// The signal that any rank has received; 0 for none. Collective.
  int agree_on_signal() const;
  template <typename Hook>
  void tell(Hook hook) const {
    for (const auto& callback : fit_.callbacks) hook(*callback);
  }

  LocalReplicas& replicas_;
  Strategy& strategy_;
  const TrainerOptions& trainer_;
  const data::Dataset& dataset_;
  const FitOptions& fit_;
  job::SignalWatch signals_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  data::ReplicaLayout layout_;
  std::int64_t steps_per_epoch_;
  std::int64_t last_step_ = 0;
  model::Schedule schedule_;
  bool callbacks_may_stop_ = false;
  std::optional<checkpoint::CheckpointDirectory> checkpoints_;
  std::optional<std::filesystem::path> restored_from_;
  std::optional<PretrainedWeights> initialized_from_;
  std::unique_ptr<data::BatchStream> stream_;
  std::optional<BucketTuner> tuner_;  // while it is trying sizes
  std::size_t tuned_bytes_ = 0;       // the chosen size, in this or an earlier run; 0 for none

  std::int64_t step_ = 0;         // completed steps
  std::int64_t first_step_ = 0;   // of this run
  std::int64_t updates_ = 0;      // completed steps that were not skipped
  std::int64_t epochs_done_ = 0;  // epochs whose end was reported
  std::int64_t saved_step_ = -1;
  std::int64_t skips_in_a_row_ = 0;   // without overflows of a dynamic loss scale, which do not indicate divergence
  std::int64_t good_steps_here_ = 0;  // steps of this run that were not skipped
  bool last_was_skipped_ = false;     // also because of an overflow
  bool save_is_due_ = false;          // waits for the next good step
  // A checkpoint is confirmed by a good step after it; finite parameters alone do not prove that they are usable.
  std::optional<std::filesystem::path> confirmed_;
  std::optional<std::filesystem::path> unconfirmed_;
  int signal_ = 0;
  bool stopped_ = false;

  // State of the current epoch.
  model::MetricSums epoch_sums_;  // over all replicas, up to the last collect_metrics()
  std::int64_t skipped_samples_ = 0;
  std::int64_t samples_here_ = 0;  // visited in this run
  double waited_before_ = 0;
  allreduce::CommunicationTimes communication_before_;
  RecordAccount account_;
  bool account_is_whole_ = false;  // whether the epoch began in this run
  bool epoch_begun_ = false;
  std::chrono::steady_clock::time_point epoch_start_;
  std::chrono::duration<double> paused_{0};  // spent on saving within the epoch

  // State of the current step; members, so that a step does not allocate.
  std::vector<data::Batch> parts_;
  std::vector<data::Batch> next_parts_;
  bool has_next_ = false;  // next_parts_ are those of the step after
  std::vector<StepResult> results_;
  StepRequest request_;
  std::function<void(int)> step_body_;
  History history_;
};

}  // namespace lockstep::strategy
