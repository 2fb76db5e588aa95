// Saves and restores the checkpoints of a training, and tracks which are usable.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/train/fit/fit_plan.h"
#include "lockstep/train/step/step_health.h"

namespace lockstep::inline v0::train {

/// The checkpoints of a training.
///
/// Finite parameters do not prove that a checkpoint is usable. A checkpoint is confirmed by the
/// next good step, and only then are older ones removed. So a training that diverges does not
/// replace all healthy checkpoints.
///
/// After every save, all replicas continue from the saved values: moving statistics become their
/// mean over the replicas, so a resumed training equals one that was not interrupted.
class Checkpointer {
 public:
  /// `replicas` must outlive this object. Without a directory in `plan`, nothing is saved or
  /// restored.
  Checkpointer(strategy::LocalReplicas& replicas, const CheckpointPlan& plan);

  /// Opens the directory and, if the plan resumes, reads the newest usable checkpoint into the
  /// first replica. `start`: the initial state, to detect early that it cannot be serialized.
  /// Throws Error (checkpoint). Collective.
  std::optional<checkpoint::RestoredCheckpoint> restore(const checkpoint::TrainingState& start);
  /// The checkpoint that restore() read; nullopt for none.
  const std::optional<std::filesystem::path>& restored_from() const { return restored_from_; }

  /// The best value of `keep_best` so far, including the next checkpoint; for state.json.
  std::optional<checkpoint::BestMark> best() const;
  /// Continues from the best value of an earlier run, if the metric is the same and its checkpoint
  /// exists. Collective.
  void restore_best(const std::optional<checkpoint::BestMark>& best);
  /// Records the value of `keep_best`, if it counts (MetricMonitor). If it is the best so far,
  /// must_save() returns true and save() marks the checkpoint. Ignored after a skipped step, after
  /// which nothing is saved.
  void note(const EpochLogs& logs, bool last_was_skipped);
  /// Saves after the next good step, regardless of `save_every`.
  void request() { is_due_ = true; }

  /// Whether to save at `position`. `is_end`: whether the training ends here. Nothing is saved
  /// after a skipped step: a save that is due then waits for the next good step, except at the end.
  bool must_save(const Position& position, bool is_end, bool last_was_skipped);
  /// Saves, and returns the path. A write error is logged and returns nullopt; at the end it is
  /// thrown. Throws Error (diverged) for parameters, slots or moving statistics that are not
  /// finite. Collective.
  std::optional<std::filesystem::path> save(const checkpoint::TrainingState& state,
                                            const StepHealth& health, bool is_end);
  /// Confirms the newest checkpoint after a good step. Returns the duration of the pause in
  /// seconds.
  double confirm();

  /// Throws the same Error (diverged) on all ranks; the message names the newest usable checkpoint.
  /// Collective.
  [[noreturn]] void throw_diverged(const std::string& reason);

 private:
  void check_finite(const checkpoint::ReplicaArrays& arrays, std::int64_t step);

  strategy::LocalReplicas& replicas_;
  const CheckpointPlan& plan_;
  std::optional<checkpoint::CheckpointDirectory> directory_;
  std::optional<std::filesystem::path> restored_from_;
  std::optional<std::filesystem::path> confirmed_;
  std::optional<std::filesystem::path> unconfirmed_;
  std::int64_t saved_step_ = -1;
  bool is_due_ = false;                   // save after the next good step
  std::optional<MetricMonitor> monitor_;  // tracks `keep_best`
  std::optional<double> saved_best_;      // value of the marked checkpoint
  bool is_best_ = false;                  // whether the checkpoint to save now is the best
};

}  // namespace lockstep::inline v0::train
