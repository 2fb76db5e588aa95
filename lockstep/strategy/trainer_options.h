// Options of Trainer and of Trainer::fit(), like those of compile() and fit() in Keras.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/schedule.h"
#include "lockstep/model/tensor.h"
#include "lockstep/strategy/callback.h"
#include "lockstep/strategy/pretrained.h"
#include "lockstep/strategy/replica/loss_scaler.h"
#include "lockstep/strategy/replica/normalization.h"

namespace lockstep::strategy {

/// How the learning rate scales with the global batch: not at all, linearly (Goyal et al., 2017),
/// or with the square root.
enum class RateScaling { none, linear, sqrt };
/// Parses "none", "linear" or "sqrt". Throws Error (input).
RateScaling parse_rate_scaling(std::string_view name);

/// Options of the model and its updates.
struct TrainerOptions {
  model::Loss loss = model::SparseCategoricalCrossentropy{};  ///< the loss to minimize
  /// A factor on loss and gradient for the samples of each class, in training alone; empty: all are
  /// 1. The mean is over the sum of weights, so only their ratios matter. balanced_class_weights()
  /// computes them from data.
  std::vector<float> class_weights = {};
  /// The optimizer. Its learning_rate, if set, is the peak of `schedule`.
  model::OptimizerOptions optimizer = model::Adam{};
  model::Schedule schedule = {};  ///< total_steps 0: the number of steps of the training
  /// How the learning rate scales with the global batch.
  RateScaling rate_scaling = RateScaling::none;
  /// Global batch that the learning rate refers to; required unless rate_scaling is none.
  std::int64_t base_batch = 0;
  double clip_norm = 0;  ///< maximum norm of the reduced gradient; 0 disables clipping
  /// Micro-batches per step on each replica. Only batch normalization depends on it: it uses each
  /// micro-batch.
  int accumulate = 1;
  /// Type of activations and of the weights in products; parameters and their gradients are
  /// float32.
  model::Precision precision = model::Precision::float32;
  /// Allows GPUs to round the operands of float32 products to a 10-bit mantissa.
  bool tf32 = false;
  bool deterministic = false;  ///< uses only GPU algorithms that give the same bits in every run
  /// Whether convolutions on a GPU, in 16 bits, also compute statistics for a normalization.
  model::FusedStatistics fused_statistics = model::FusedStatistics::where_faster;
  /// Which interface of cuDNN computes the convolutions on a GPU.
  model::Convolutions convolutions = model::Convolutions::automatic;
  /// Allows a GPU to replay a recorded step (CUDA graph); the results are the same.
  bool records_steps = true;
  std::optional<LossScaling> loss_scaling = {};  ///< nullopt: dynamic for float16, none otherwise
  NormalizationScope normalization = {};         ///< scope of the batch-normalization statistics
  std::uint64_t seed = 1;  ///< seed of initial weights, dropout and the order of records
  allreduce::BucketOptions buckets = {};  ///< size and data type of gradient buckets
  /// When ranks are on different nodes, tries several bucket sizes in the first steps and keeps the
  /// fastest (BucketTuner). A run that resumes from a checkpoint keeps the size that was found
  /// before.
  bool tune_buckets = false;
};

/// `options.schedule` for a training of `total_steps` with `global_batch`. Throws Error (input) if
/// base_batch is required and missing, if the optimizer and the schedule set different learning
/// rates, or if the schedule is incomplete for its kind.
model::Schedule effective_schedule(const TrainerOptions& options, std::int64_t global_batch,
                                   std::int64_t total_steps);

/// Where and when checkpoints are written.
struct CheckpointPlan {
  std::filesystem::path directory = {};  ///< empty: no checkpoints
  /// In steps; 0: at the end of each epoch. The end of the training is always saved.
  std::int64_t save_every = 0;
  int keep = 3;  ///< number of healthy checkpoints to keep
  /// Whether to resume from an existing checkpoint.
  checkpoint::Resume resume = checkpoint::Resume::automatic;
  /// How the ranks' replicas are compared at each save.
  checkpoint::VerifyCheckpoint verify = checkpoint::VerifyCheckpoint::automatic;
  checkpoint::Configuration configuration;  ///< stored in state.json
};

/// Options of Trainer::fit().
struct FitOptions {
  /// Both count from the beginning of the training, also if it resumes from a checkpoint.
  std::int64_t epochs = 1;  ///< 0: no limit; then `steps` is required
  std::int64_t steps = 0;   ///< 0: no limit. The limit that is reached first applies
  std::optional<data::Dataset> validation = {};  ///< evaluated at the end of each epoch; batched
  CheckpointPlan checkpoint = {};                ///< where and when to save
  std::vector<std::shared_ptr<Callback>> callbacks = {};  ///< called in this order
  /// The chief prints the progress to standard output (ProgressBar), unless `callbacks` has a
  /// ProgressBar or the session is quiet.
  bool progress = true;
  int prefetch = 2;      ///< number of global batches to read ahead
  int data_threads = 1;  ///< maximum number of background threads that read
  /// Number of steps between checks that all replicas have the same values; 0 checks only at
  /// checkpoints.
  std::int64_t check_replicas = 1000;
  /// A file for the time of each layer, of the loss, the reduction and the update, as JSON lines;
  /// empty: none. Times the chief's first replica, whose steps are then not recorded
  /// (docs/performance.md). Written at the end; must have a name on all ranks or on none.
  std::filesystem::path profile = {};
  /// Initial weights from another training; ignored if this run resumes from a checkpoint.
  std::optional<Pretrained> pretrained = {};
  /// The signals, out of SIGTERM, SIGINT and SIGHUP, that end the training after a step with a
  /// checkpoint. fit() handles them while it runs (SignalWatch). Empty: none; the program's
  /// handlers stay installed.
  std::vector<int> signals = {SIGTERM, SIGINT};
};

/// How Trainer::evaluate() and Trainer::predict() read their data.
struct ReadOptions {
  int prefetch = 2;      ///< number of global batches to read ahead
  int data_threads = 1;  ///< maximum number of background threads that read
};

/// The result of Trainer::fit().
struct History {
  std::vector<EpochLogs> epochs;  ///< the epochs of this run
  TrainEnd end;                   ///< how it ended
};

/// The outputs for one global batch.
struct Predictions {
  std::span<const std::int64_t> record_ids;  ///< [samples]
  std::span<const float> outputs;            ///< [samples, width], outputs of the network
  std::int64_t width = 0;                    ///< elements of one output
};
/// Receives predictions in record order.
using PredictionSink = std::function<void(const Predictions&)>;

}  // namespace lockstep::strategy
