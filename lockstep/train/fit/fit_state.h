// The state of a training in state.json, and the check that a run may resume from it.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/train/fit/epoch_account.h"
#include "lockstep/train/fit/fit_plan.h"
#include "lockstep/train/input/target_scale.h"

namespace lockstep::inline v0::train {

/// Within kNetworkKey: a list of all losses, each with its "output", "target" (empty: the first),
/// "weight", name and hyperparameters. Absent in checkpoints of earlier versions, and if a loss is
/// defined in the user's program.
inline constexpr const char* kOutputLossesKey = "output_losses";
/// The recipe of test images, ImageRecipe::to_json(): that of the validation data, else of the
/// training data without random choices.
inline constexpr const char* kImageRecipeKey = "image_recipe";
/// Whether the training data were mapped (RecordChanges); kPreparationKey describes the maps.
inline constexpr const char* kMappedKey = "mapped";
inline constexpr const char* kPreparationKey = "preparation";
/// The split of which the training data are a part: RecordSplit's fractions, and the "records" of
/// all parts. Absent without a split. Its seed is that of the training.
inline constexpr const char* kSplitKey = "split";
/// The key of the last step of the training.
inline constexpr const char* kStepsKey = "schedule_steps";
/// Whether the training ended with this checkpoint, and not by a signal; absent if it did not.
inline constexpr const char* kFinishedKey = "finished";
/// The name of the optimizer.
inline constexpr const char* kOptimizerKey = "optimizer";
/// Values of the TrainerOptions that a resuming run compares, by key.
inline constexpr const char* kSettingsKey = "settings";

// Keys in the metrics of a checkpoint: totals of the current epoch; 0 between two epochs.
inline constexpr const char* kEpochLossKey = "epoch_loss_sum";
inline constexpr const char* kEpochSamplesKey = "epoch_samples";
/// MetricSums::weight_excess.
inline constexpr const char* kEpochWeightKey = "epoch_weight_excess";
// MetricSums::more_positions and masked; absent if each sample has one position.
inline constexpr const char* kEpochPositionsKey = "epoch_more_positions";
inline constexpr const char* kEpochMaskedKey = "epoch_masked";

/// The state of a training, without the arrays and loss scales of its replicas.
struct FitState {
  Position position;
  EpochTotals epoch;                              ///< totals of the current epoch
  std::size_t tuned_bytes = 0;                    ///< tuned bucket size; 0 for none
  std::optional<checkpoint::BestMark> best = {};  ///< the best value of CheckpointPlan::keep_best
  checkpoint::Configuration callbacks = {};       ///< the callbacks' states, by name
  bool is_finished = false;                       ///< kFinishedKey
};

/// Adds the name of a loss, as "loss", and its hyperparameters to kNetworkKey or to an object of
/// kOutputLossesKey.
void add_loss(nlohmann::json& object, model::Loss loss);

/// Returns the contents of state.json, with the loss scale of `replicas`.
checkpoint::TrainingState to_training_state(const FitState& state, const FitPlan& plan,
                                            strategy::LocalReplicas& replicas);

/// Throws Error (checkpoint) that names the first difference between the networks or optimizers of
/// a checkpoint and of this run, whose initial state is `current`. Returns if the configurations do
/// not differ.
void throw_incompatible(const checkpoint::RestoredCheckpoint& restored,
                        const checkpoint::TrainingState& current);

/// Returns the state of a checkpoint whose arrays have been restored. Copies the arrays to all
/// local replicas and sets their loss scales. Throws Error (checkpoint) if the plan, which
/// determines the position in the data, differs from that of the checkpoint, or for invalid
/// numbers. The same on all ranks.
FitState resume_from(const checkpoint::RestoredCheckpoint& restored, const FitPlan& plan,
                     strategy::LocalReplicas& replicas);

}  // namespace lockstep::inline v0::train
