// Options of `lockstep train`, and their conversion to TrainerOptions.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/lockstep/arguments.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::apps {

/// The options as given on the command line, with their defaults.
struct TrainArguments {
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;

  std::string model;
  std::string loss = "sparse-categorical-crossentropy";
  double mixup = 0;
  double label_smoothing = 0;
  std::string validation_data;
  bool shuffle = true;
  std::string shard_policy = "auto";

  std::int64_t epochs = 0;  ///< 0: one, or no limit if `steps` is set
  std::int64_t steps = 0;   ///< 0: no limit
  int accumulate = 1;
  std::string bn = "local";
  std::uint64_t seed = 1;
  std::string precision = "float32";
  bool tf32 = false;
  bool deterministic = false;
  bool graph = true;
  std::string loss_scale = "auto";

  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  std::optional<double> momentum;  ///< nullopt: the optimizer's default; the same below
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::optional<double> epsilon;
  std::optional<double> trust_coefficient;
  double weight_decay = -1;  ///< negative: the optimizer's default
  double clip_norm = 0;

  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  double lr_final = 0;
  std::int64_t lr_step_every = 0;
  double lr_step_factor = 0.1;
  std::string lr_scaling = "none";
  std::int64_t lr_base_batch = 0;

  std::string checkpoint_dir;
  std::int64_t save_every = 0;
  int keep = 3;
  std::string resume = "auto";
  std::string verify_checkpoint = "auto";

  std::string init_from;
  bool reset_head = false;

  std::string summary_dir;
  std::int64_t log_every = 100;

  std::string comm_dtype = "float32";
  std::string bucket_mib = "25";
  std::int64_t check_replicas = 1000;
};

/// Declares the options.
void add_train_options(CLI::App& command, TrainArguments& arguments);

/// Throws Error (input) for an option that is missing, out of range or unknown. The result is the same on all ranks.
void check_arguments(const TrainArguments& arguments);

strategy::TrainerOptions trainer_options(const TrainArguments& arguments);

}  // namespace lockstep::apps
