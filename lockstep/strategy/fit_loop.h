// One call of fit: from the first step, or that of a checkpoint, to the last.
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

/// All ranks go through the same steps with the same decisions: whatever could differ between them (a failed loss, a
/// signal, a callback's wish) is summed over the replicas with the step's gradients, or agreed on at the step's end,
/// before anyone acts on it.
///
/// The position in the data is the step number. At every save, all replicas go on from what is saved: moving statistics
/// become their mean over the replicas, so a resumed training equals one that was not interrupted.
class FitLoop {
 public:
  /// `replicas` as initialised; the options must outlive the loop.
  FitLoop(LocalReplicas& replicas, const TrainerOptions& trainer, const data::Dataset& dataset, const FitOptions& fit);
  ~FitLoop();

  History run();

 private:
  void begin();
  void restore();
  void initialize();
  void prepare();
  void check_position(const checkpoint::RestoredCheckpoint& restored) const;
  /// What all ranks must have in common, for people.
  std::string plan() const;
  void announce() const;

  void train_step();
  void note_step(const StepResult& result);
  void note_skip(const StepResult& result);
  void note_overflow(const StepResult& result) const;
  /// The newest checkpoint was followed by a good step: so it is none of a diverged training, and older ones may go.
  void confirm_checkpoint();
  /// Whether the training ended without a good step to show for it.
  bool ended_diverged() const;
  /// Throws Error (diverged), the same on all ranks, with what is left to continue from. Collective.
  [[noreturn]] void throw_diverged(const std::string& given);
  /// What a 16-bit wire type costs, said once.
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
  std::optional<BucketTuner> tuner_;  // while it has something to try
  std::size_t tuned_bytes_ = 0;       // what it chose, now or in an earlier run; 0 for nothing

  std::int64_t step_ = 0;         // steps done
  std::int64_t first_step_ = 0;   // of this run
  std::int64_t updates_ = 0;      // steps done and not skipped
  std::int64_t epochs_done_ = 0;  // epochs whose end was reported
  std::int64_t saved_step_ = -1;
  std::int64_t skips_in_a_row_ = 0;   // overflows of a dynamic loss scale left out: they are no sign of divergence
  std::int64_t good_steps_here_ = 0;  // steps of this run that were not skipped
  bool last_was_skipped_ = false;     // for an overflow too
  bool save_is_due_ = false;          // waits for the next good step
  // A checkpoint is confirmed by a good step after it: that its parameters are finite does not say that they are sound.
  std::optional<std::filesystem::path> confirmed_;
  std::optional<std::filesystem::path> unconfirmed_;
  int signal_ = 0;
  bool stopped_ = false;

  // Of the epoch under way.
  model::MetricSums epoch_sums_;  // over all replicas, up to the last collect_metrics()
  std::int64_t skipped_samples_ = 0;
  std::int64_t samples_here_ = 0;  // visited in this run
  double waited_before_ = 0;
  allreduce::CommunicationTimes communication_before_;
  RecordAccount account_;
  bool account_is_whole_ = false;  // of an epoch that began in this run
  bool epoch_begun_ = false;
  std::chrono::steady_clock::time_point epoch_start_;
  std::chrono::duration<double> paused_{0};  // spent on saving within the epoch

  // Of the step under way; kept so that a step allocates nothing.
  std::vector<data::Batch> parts_;
  std::vector<data::Batch> next_parts_;
  bool has_next_ = false;  // next_parts_ are those of the step after
  std::vector<StepResult> results_;
  StepRequest request_;
  std::function<void(int)> step_body_;
  History history_;
};

}  // namespace lockstep::strategy
