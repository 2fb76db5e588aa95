// The plan and the position of one call of Trainer::fit().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/trainer_options.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::train {

/// The progress of a training. The step number determines the position in the data.
struct Position {
  std::int64_t steps_per_epoch = 0;
  std::int64_t last_step = 0;    ///< completed steps at the end
  std::int64_t step = 0;         ///< completed steps
  std::int64_t first_step = 0;   ///< completed steps at the beginning of this run
  std::int64_t updates = 0;      ///< updates of the optimizer; without those of skipped steps
  std::int64_t epochs_done = 0;  ///< epochs whose end was reported
  /// Completed steps at the last validation within an epoch.
  std::int64_t validated_step = 0;

  bool is_at_epoch_begin() const { return step == epochs_done * steps_per_epoch; }
  bool is_at_epoch_end() const { return step == (epochs_done + 1) * steps_per_epoch; }
  bool is_in_epoch() const { return step > epochs_done * steps_per_epoch; }
  bool is_done() const { return step >= last_step; }
};

/// The options of a training and values derived from them. The same on all ranks, and constant
/// after agree().
struct FitPlan {
  /// All arguments must outlive this object. Throws Error (input) if the shard policy does not fit
  /// the replicas.
  FitPlan(const strategy::Strategy& strategy, const strategy::TrainerOptions& trainer_options,
          const data::Dataset& data, const FitOptions& fit_options);

  /// Computes validation, test, last_step and the schedule. Throws Error (data) if the data do not
  /// fit the network or the loss, Error (input) for inconsistent options, and Error (communication)
  /// if ranks differ in data or options. Collective.
  void agree(const strategy::LocalReplicas& replicas);

  /// The beginning of a training that does not resume.
  Position start() const { return {.steps_per_epoch = steps_per_epoch, .last_step = last_step}; }
  /// Names that EpochLogs::metric() accepts in this training.
  std::vector<std::string> known_metrics(const strategy::LocalReplicas& replicas) const;
  /// Returns the argument of Callback::on_train_begin(), without `restored_from` and
  /// `initialized_from`.
  TrainBegin announcement(strategy::LocalReplicas& replicas, const Position& position) const;

  const strategy::TrainerOptions& trainer;
  const data::Dataset& dataset;
  const FitOptions& fit;
  std::optional<data::Dataset> validation = {};  ///< with the class numbers of the training
  std::optional<data::Dataset> test = {};        ///< as `validation`
  data::ReplicaLayout layout;
  std::int64_t steps_per_epoch;
  std::int64_t last_step = 0;
  model::Schedule schedule;

 private:
  /// `data` with the class numbers of the training. Throws Error (data) if they do not fit.
  data::Dataset evaluated(const data::Dataset& data, const strategy::LocalReplicas& replicas) const;
  /// Describes what must be the same on all ranks in addition to the TrainerOptions, as lines for
  /// job::Agreement::require_same_lines().
  std::string describe() const;
};

}  // namespace lockstep::inline v0::train
