// Options of `lockstep train`, in the structs that the library takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::apps {

/// The optimizers, by their names in `--optimizer`.
enum class OptimizerKind { sgd, adam, adamw, lars, lamb };

/// Hyperparameters of all optimizers; `kind` decides which apply. nullopt: the optimizer's default.
struct OptimizerArguments {
  OptimizerKind kind = OptimizerKind::adam;
  std::optional<float> momentum;
  bool nesterov = false;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  std::optional<float> epsilon;
  std::optional<float> trust_coefficient;
  std::optional<float> weight_decay;
};

/// Options as the command line states them; complete() derives the rest.
struct TrainArguments {
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  bool verbose = false;

  std::string model;
  LossChoice loss;
  OptimizerArguments optimizer;
  strategy::TrainerOptions trainer;  ///< complete() sets the loss and the optimizer

  double mixup = 0;
  std::string validation_data;
  bool shuffle = true;
  data::ShardPolicy shard_policy = data::ShardPolicy::automatic;

  /// The validation data, the callbacks and the configuration are set by the command.
  strategy::FitOptions fit;
  strategy::Pretrained pretrained;  ///< an empty path: none

  std::string summary_dir;
  std::int64_t log_every = 100;
};

/// Declares the options.
void add_train_options(CLI::App& command, TrainArguments& arguments);

/// Derives what depends on several options. Throws Error (input) if a required option is missing,
/// or if options contradict each other.
void complete(TrainArguments& arguments);

}  // namespace lockstep::apps
