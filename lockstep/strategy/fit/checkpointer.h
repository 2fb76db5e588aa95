// When a training saves checkpoints, and which of them are known to be usable.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/strategy/fit/fit_plan.h"
#include "lockstep/strategy/fit/step_health.h"

namespace lockstep::strategy {

/// The checkpoints of a training.
///
/// Finite parameters alone do not prove that a checkpoint is usable: it is confirmed by a good step
/// after it. Older checkpoints are removed only then, so that a training that diverges does not
/// replace all healthy ones.
///
/// After every save, all replicas continue from the saved values: moving statistics become their
/// mean over the replicas, so a resumed training equals one that was not interrupted.
class Checkpointer {
 public:
  /// `replicas` must outlive this object. Without a directory in `plan`, nothing is saved or
  /// restored.
  Checkpointer(LocalReplicas& replicas, const CheckpointPlan& plan);

  /// Opens the directory and reads the newest usable checkpoint, if the plan resumes, into the
  /// first replica. `start`: the state to save, to detect now that it cannot be serialized. Throws
  /// Error (checkpoint). Collective.
  std::optional<checkpoint::RestoredCheckpoint> restore(const checkpoint::TrainingState& start);
  /// The checkpoint that restore() has read.
  const std::optional<std::filesystem::path>& restored_from() const { return restored_from_; }

  /// The best value of `keep_best` so far, including that of the next checkpoint; for state.json.
  std::optional<checkpoint::BestMark> best() const;
  /// Continues from the best value of an earlier run, if it is of the same metric and its
  /// checkpoint is there. Collective.
  void restore_best(const std::optional<checkpoint::BestMark>& best);
  /// Notes the value of `keep_best`, if it counts (MetricMonitor): must_save() is true if it is the
  /// best so far, and save() marks the checkpoint. Not after a skipped step, after which nothing is
  /// saved.
  void note(const EpochLogs& logs, bool last_was_skipped);
  /// Saves after the next good step, whatever `save_every` is.
  void request() { is_due_ = true; }

  /// Whether to save at `position`. `is_end`: whether the training ends here. Nothing is saved
  /// after a skipped step: a save that is due then waits for the next good step, except at the end.
  bool must_save(const Position& position, bool is_end, bool last_was_skipped);
  /// Saves, and returns the path; nullopt if the disk failed, with a warning, which only at the end
  /// is an Error. Throws Error (diverged) for parameters, slots or moving statistics that are not
  /// finite. Collective.
  std::optional<std::filesystem::path> save(const checkpoint::TrainingState& state,
                                            const StepHealth& health, bool is_end);
  /// Confirms the newest checkpoint, because a good step followed it. Returns the seconds for which
  /// this paused the training.
  double confirm();

  /// Throws the same Error (diverged) on all ranks, which names the newest usable checkpoint.
  /// Collective.
  [[noreturn]] void throw_diverged(const std::string& given);

 private:
  void check_finite(const checkpoint::ReplicaArrays& arrays, std::int64_t step);

  LocalReplicas& replicas_;
  const CheckpointPlan& plan_;
  std::optional<checkpoint::CheckpointDirectory> directory_;
  std::optional<std::filesystem::path> restored_from_;
  std::optional<std::filesystem::path> confirmed_;
  std::optional<std::filesystem::path> unconfirmed_;
  std::int64_t saved_step_ = -1;
  bool is_due_ = false;                   // waits for the next good step
  std::optional<MetricMonitor> monitor_;  // of `keep_best`
  std::optional<double> saved_best_;      // of the checkpoint that is marked
  bool is_best_ = false;                  // the checkpoint to save now
};

}  // namespace lockstep::strategy
