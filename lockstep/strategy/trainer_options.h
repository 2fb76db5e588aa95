// How a model is trained: what Keras users give to compile and to fit.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/optimizer.h"
#include "lockstep/model/precision.h"
#include "lockstep/model/schedule.h"
#include "lockstep/strategy/callback.h"
#include "lockstep/strategy/loss_scaler.h"
#include "lockstep/strategy/normalization_scope.h"
#include "lockstep/strategy/pretrained.h"

namespace lockstep::strategy {

/// How the learning rate follows the global batch: not at all, in proportion (Goyal et al., 2017), or with the square
/// root.
enum class RateScaling { none, linear, sqrt };
/// Reads "none", "linear", "sqrt". Throws Error (input) that lists them.
RateScaling parse_rate_scaling(std::string_view name);

/// What belongs to the model and its updates.
struct TrainerOptions {
  model::Loss loss = model::SparseCategoricalCrossentropy{};  ///< what is made small
  model::OptimizerOptions optimizer = model::Adam{};  ///< with its numbers; the learning rate comes from `schedule`
  model::Schedule schedule = {};                      ///< total_steps 0 stands for the steps of the training
  RateScaling rate_scaling = RateScaling::none;       ///< how the learning rate follows the global batch
  std::int64_t base_batch = 0;  ///< the global batch that the rate is meant for; needed unless rate_scaling is none
  double clip_norm = 0;         ///< largest norm of the reduced gradient; 0 for no clipping
  int accumulate =
      1;  ///< micro-batches of a step on each replica; batch normalization is of each, no other result depends on it
  /// Of activations and of the weights that products read; parameters and their gradients stay float32.
  model::Precision precision = model::Precision::float32;
  bool tf32 = false;           ///< lets GPUs round what they multiply in float32 to 10 bits
  bool deterministic = false;  ///< takes only algorithms of a GPU that give the same bits in every run
  bool records_steps = true;   ///< lets a GPU repeat a recorded step (a CUDA graph); the results are the same
  std::optional<LossScaling> loss_scaling = {};  ///< nothing: dynamic for float16, none otherwise
  NormalizationScope normalization = {};         ///< whose samples batch normalization takes together
  std::uint64_t seed = 1;                        ///< of initial weights, dropout and the order of records
  allreduce::BucketOptions buckets = {};         ///< how gradients travel
  /// Tries several bucket sizes in the first steps, where a wire lies between replicas, and keeps the best
  /// (BucketTuner); a training that goes on from a checkpoint keeps what was found before.
  bool tune_buckets = false;
};

/// `options.schedule` as it applies to a training of `total_steps` at `global_batch`. Throws Error (input) where
/// base_batch is missing or the schedule lacks what its kind needs.
model::Schedule effective_schedule(const TrainerOptions& options, std::int64_t global_batch, std::int64_t total_steps);

/// Where and when a training is saved.
struct CheckpointPlan {
  std::filesystem::path directory = {};  ///< empty: nothing is saved
  std::int64_t save_every = 0;  ///< steps; 0 for the end of each epoch. The end of the training is always saved
  int keep = 3;                 ///< complete checkpoints that stay
  checkpoint::Resume resume = checkpoint::Resume::automatic;  ///< whether to go on from what is there
  checkpoint::VerifyCheckpoint verify =
      checkpoint::VerifyCheckpoint::automatic;  ///< how the ranks' replicas are compared at each save
  checkpoint::Configuration configuration;      ///< kept in state.json
};

/// How much of which data, and what happens on the way.
struct FitOptions {
  std::int64_t epochs = 1;                                ///< 0 for no limit; then `steps` is needed
  std::int64_t steps = 0;                                 ///< 0 for no limit. Whichever limit comes first
  std::optional<data::Dataset> validation = {};           ///< evaluated at the end of each epoch; batched
  CheckpointPlan checkpoint = {};                         ///< where to save, and when
  std::vector<std::shared_ptr<Callback>> callbacks = {};  ///< called in this order
  int prefetch = 2;                                       ///< global batches read ahead
  int data_threads = 1;                                   ///< background threads that read
  /// Steps between checks that all replicas still hold the same numbers; 0 for checks at checkpoints only.
  std::int64_t check_replicas = 1000;
  /// Initial weights of another training, unless this one goes on from a checkpoint.
  std::optional<Pretrained> pretrained = {};
  /// Of SIGTERM, SIGINT and SIGHUP those that end the training after a step, with a checkpoint; fit handles them while
  /// it runs (SignalWatch). Empty: none, and the program's own handlers stay.
  std::vector<int> signals = {SIGTERM, SIGINT};
};

/// What fit leaves behind.
struct History {
  std::vector<EpochLogs> epochs;  ///< those of this run
  TrainEnd end;                   ///< how it ended
};

}  // namespace lockstep::strategy
