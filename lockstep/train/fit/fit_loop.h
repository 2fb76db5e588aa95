// The training loop of one call of Trainer::fit().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/job/tracing.h"
#include "lockstep/strategy/replica/step_breakdown.h"
#include "lockstep/train/callbacks/step_interval.h"
#include "lockstep/train/fit/checkpointer.h"
#include "lockstep/train/fit/epoch_account.h"
#include "lockstep/train/fit/fit_callbacks.h"
#include "lockstep/train/fit/fit_plan.h"
#include "lockstep/train/fit/prediction_images.h"
#include "lockstep/train/fit/profiling.h"
#include "lockstep/train/fit/step_runner.h"
#include "lockstep/train/step/bucket_tuner.h"
#include "lockstep/train/step/step_health.h"
#include "lockstep/train/step/stop_decision.h"

namespace lockstep::inline v0::train {

struct FitState;

/// Executes the steps of a training. All ranks execute the same steps and make the same decisions:
/// whatever may differ between ranks (a failed loss, a signal, a request of a callback) is summed
/// over the replicas with the step's gradients, or agreed on at the end of the step, before a rank
/// acts on it.
class FitLoop {
 public:
  /// `replicas` must be initialized. The options must outlive this object.
  FitLoop(strategy::LocalReplicas& replicas, const strategy::TrainerOptions& trainer,
          const data::Dataset& dataset, const FitOptions& fit);

  /// Trains. Call it once. Throws Error of any category.
  History run();
  /// Whether there is a best checkpoint (CheckpointPlan::keep_best). The same on all ranks.
  bool has_best() const { return checkpoints_.best().has_value(); }

 private:
  void run_steps();
  void begin();
  void restore();
  std::optional<PretrainedWeights> initialize();
  void prepare();
  /// Warns if batch normalization gets single values in a step of `samples`. Returns whether it
  /// does.
  bool warn_of_single_values(std::int64_t samples, std::string_view when) const;
  void train_step();
  void end_step(const strategy::StepResult& result);
  void warn_of_values(const std::vector<data::Batch>& parts) const;
  void end_epoch(bool is_complete);
  /// Returns false if a signal interrupted the validation; the epoch then counts as not reported.
  bool validate(EpochLogs& logs);
  bool must_validate() const;  // within an epoch
  void validate_within_epoch();
  void agree_on_requests();
  void save();
  void end();
  /// Evaluates FitOptions::test.
  void test();
  void notify_diverged_end() noexcept;

  bool is_ending() const { return stop_.is_made() || position_.is_done(); }
  FitState state() const;
  template <typename Hook>
  void notify(Hook hook) const {
    callbacks_.notify(position_.step, hook);
  }

  strategy::LocalReplicas& replicas_;
  strategy::Strategy& strategy_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StopDecision stop_;
  FitPlan plan_;
  FitCallbacks callbacks_;
  checkpoint::Configuration restored_callbacks_;
  Position position_;
  float rate_ = 0;  // learning rate of the last step
  Checkpointer checkpoints_;
  EpochAccount epoch_;
  StepHealth health_;
  BucketTuning buckets_;
  Profiling profiling_;
  PredictionImages images_;
  job::Tracing tracing_;
  StepRunner steps_;
  StepInterval interval_;  // since the start of the epoch
  StepInterval judged_;    // since the last verdict on an epoch
  strategy::StepClock clock_;
  std::optional<EpochLogs> last_validation_;
  bool has_begun_ = false;  // whether on_train_begin() was called
  History history_;
};

}  // namespace lockstep::inline v0::train
