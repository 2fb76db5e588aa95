// Options of `lockstep train`, in the structs that the library takes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/output_arguments.h"
#include "lockstep/strategy/callbacks/early_stopping.h"
#include "lockstep/strategy/callbacks/metrics_exporter.h"
#include "lockstep/strategy/callbacks/plateau.h"
#include "lockstep/strategy/callbacks/summaries.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::apps {

struct OptimizerArguments {
  model::OptimizerOptions kind = model::Adam{};  ///< with its defaults
  /// Those of any optimizer, by the names of its members; nullopt: not given.
  std::map<std::string, std::optional<float>, std::less<>> hyperparameters;
  bool nesterov = false;
};

/// Options as the command line states them; complete() derives the rest.
struct TrainArguments {
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  bool verbose = false;

  std::string model;
  OptimizerArguments optimizer;
  LossArguments loss;
  /// complete() sets the losses, the optimizer and the class weights.
  strategy::TrainerOptions trainer;
  double label_smoothing = 0;
  std::string class_weights;  ///< "auto": as balanced_class_weights(); else also in `trainer`

  double mixup = 0;
  std::string validation_data;
  bool shuffle = true;
  data::ShardPolicy shard_policy = data::ShardPolicy::automatic;

  /// The validation data, the callbacks and the configuration are set by the command, as is the
  /// directory of checkpoints if it chooses one.
  strategy::FitOptions fit;
  bool chooses_directory = false;  ///< as RunDirectory: --checkpoint-dir was not given
  /// A metric, "none", or empty: that of --early-stop if it is of the validation, or the accuracy
  /// of the validation, or its loss.
  std::string keep_best;
  strategy::Pretrained pretrained;  ///< an empty path: none

  std::optional<strategy::EarlyStoppingOptions> early_stopping;
  std::optional<strategy::PlateauOptions> plateau;

  std::string csv_log;
  strategy::MetricsExporterOptions exporter;  ///< without an address and a file: none
  std::string metrics;                        ///< names
  std::string summary_dir;
  strategy::SummaryOptions summaries;
  std::int64_t log_every = 100;
};

/// Declares the options.
void add_train_options(CLI::App& command, TrainArguments& arguments,
                       const char* quiet = "Print only warnings and errors");

/// Derives what depends on several options. Throws Error (input) if a required option is missing,
/// or if options contradict each other.
void complete(TrainArguments& arguments);

}  // namespace lockstep::apps
