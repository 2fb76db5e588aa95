// What state.json keeps of a training, and the check that a run may resume from it.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/loss.h"
#include "lockstep/strategy/fit/epoch_account.h"
#include "lockstep/strategy/fit/fit_plan.h"

namespace lockstep::strategy {

/// The key, in the configuration of a checkpoint, of what `lockstep evaluate` needs to build the
/// model: the network's "description" (network_json.h), the name of the "loss" and the
/// "label_smoothing". Absent if the network has no description.
inline constexpr const char* kNetworkKey = "network";
/// Within kNetworkKey: a list of all losses, each with its "output", "target" (empty: the first),
/// "weight", name and hyperparameters. Absent in checkpoints of earlier versions, and if the user's
/// own program has one of them.
inline constexpr const char* kOutputLossesKey = "output_losses";
/// The recipe of test images, ImageRecipe::to_json(): that of the validation data, else the
/// training's without its random choices.
inline constexpr const char* kImageRecipeKey = "image_recipe";
/// Whether the training data were mapped (RecordChanges); kPreparationKey says how.
inline constexpr const char* kMappedKey = "mapped";
inline constexpr const char* kPreparationKey = "preparation";
/// The key of the last step of the training.
inline constexpr const char* kStepsKey = "schedule_steps";
/// Whether the training ended with this checkpoint, and not by a signal; absent if it did not.
inline constexpr const char* kFinishedKey = "finished";
/// The name of the optimizer.
inline constexpr const char* kOptimizerKey = "optimizer";
/// The values of the TrainerOptions that a run which resumes compares, by key.
inline constexpr const char* kSettingsKey = "settings";

// Among the metrics of a checkpoint: the totals of the epoch, which are 0 between two epochs.
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
  EpochTotals epoch;                              ///< of the current epoch
  std::size_t tuned_bytes = 0;                    ///< the bucket size that was found; 0 for none
  std::optional<checkpoint::BestMark> best = {};  ///< the best value of CheckpointPlan::keep_best
  checkpoint::Configuration callbacks = {};       ///< the callbacks' states, by name
  bool is_finished = false;                       ///< kFinishedKey
};

/// Adds the name of a loss, as "loss", and its hyperparameters: to kNetworkKey, and to an object of
/// kOutputLossesKey.
void add_loss(nlohmann::json& object, model::Loss loss);

/// The contents of state.json, with the loss scale of `replicas`.
checkpoint::TrainingState to_training_state(const FitState& state, const FitPlan& plan,
                                            LocalReplicas& replicas);

/// For a checkpoint whose tensors are not those of the run that begins at `given`: throws Error
/// (checkpoint) that names the first difference between the networks or the optimizers. Returns if
/// the configurations do not show any.
void throw_incompatible(const checkpoint::RestoredCheckpoint& restored,
                    const checkpoint::TrainingState& given);

/// The state of a checkpoint whose arrays have been restored. Copies the arrays to all local
/// replicas and sets their loss scales. Throws Error (checkpoint) if the plan, on which the
/// position in the data depends, is not that of the checkpoint, or for numbers that no training
/// writes. The same on all ranks.
FitState resume_from(const checkpoint::RestoredCheckpoint& restored, const FitPlan& plan,
                     LocalReplicas& replicas);

}  // namespace lockstep::strategy
