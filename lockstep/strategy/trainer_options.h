// Options of Trainer and of Trainer::fit(), like those of compile() and fit() in Keras.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/metrics/metric.h"
#include "lockstep/model/network.h"
#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/schedule.h"
#include "lockstep/model/tensor.h"
#include "lockstep/strategy/callback.h"
#include "lockstep/strategy/callbacks/monitored_metric.h"
#include "lockstep/strategy/pretrained.h"
#include "lockstep/strategy/replica/loss_scaler.h"
#include "lockstep/strategy/replica/normalization.h"

namespace lockstep::strategy {

/// How the learning rate scales with the global batch: not at all, linearly (Goyal et al., 2017),
/// or with the square root.
enum class RateScaling { none, linear, sqrt };
/// Parses "none", "linear" or "sqrt". Throws Error (input).
RateScaling parse_rate_scaling(std::string_view name);

/// Parameters whose updates differ from the others.
struct ParameterGroup {
  std::string pattern;  ///< a glob over parameter names, such as "head/*"
  /// Their peak learning rate, which follows the same schedule and scaling; none: that of all.
  std::optional<float> learning_rate = {};
  /// Weight decay of those that have decay; none: that of the optimizer.
  std::optional<float> weight_decay = {};
};
/// "head/*:lr=0.1,decay=0", as `--group` reads it.
std::string to_string(const ParameterGroup& group);

/// The loss of one output of a network.
struct OutputLoss {
  std::string output;  ///< the name in Network::outputs()
  /// The name of the target in the data set; empty: the same. A single loss compares with the only
  /// target whatever its name.
  std::string target = {};
  model::Loss loss = model::SparseCategoricalCrossentropy{};  ///< of this output
  float weight = 1;  ///< factor on the loss and its gradient; above 0
  /// Metrics of this output, reported with its name: "price_mae".
  model::Metrics metrics = {};
};

/// A file of what the threads of all ranks did, on one clock (docs/observe.md).
struct TraceOptions {
  /// Empty: none. With the ending .json Chrome's format, otherwise that of Perfetto.
  std::filesystem::path file = {};
  std::int64_t first_step = 1;  ///< counted from 1, as in messages
  std::int64_t last_step = 0;   ///< 0: until the training ends, or until the trace is full
};
/// Parses "FILE" or "FILE:steps=100-120", of which either number may be left out. Throws Error
/// (input).
TraceOptions parse_trace(std::string_view text);

/// Options of the model and its updates.
struct TrainerOptions {
  /// The loss to minimize, of the first output and the first target.
  model::Loss loss = model::SparseCategoricalCrossentropy{};
  /// Instead of `loss`: training minimizes the weighted sum of these, which is reported as "loss".
  /// The accuracy is that of the first one, whose output `metrics` read too. Of several, each is
  /// also reported as OUTPUT_loss and, if it has classes, OUTPUT_accuracy. Network outputs without
  /// a loss are not trained for.
  std::vector<OutputLoss> losses = {};
  /// Metrics beyond loss and accuracy, of training and evaluation: those of model::make_metrics(),
  /// and the user's own. The same names on all ranks.
  model::Metrics metrics = {};
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
  /// Decay per update of the exponential moving average of the parameters, such as 0.999, with
  /// which validation, evaluate() and predict() compute; 0: no average. Training continues from the
  /// parameters themselves.
  float ema = 0;
  /// Globs over parameter names, such as "conv*": parameters that are not trained
  /// (model::Network::freeze).
  std::vector<std::string> freeze = {};
  /// Own learning rates and weight decays; of several groups with a parameter the last one counts.
  std::vector<ParameterGroup> groups = {};
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
  /// Which activations are kept for the backward pass; the others are computed again.
  model::Recompute recompute = model::Recompute::none;
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

/// `network` with the groups and the frozen parameters of `options`. Throws Error (input).
model::Network prepared(model::Network network, const TrainerOptions& options);

/// The options that all ranks must have in common, with their values in words. Of metrics and
/// losses of the user's own the names.
std::vector<std::pair<std::string, std::string>> settings_of(const TrainerOptions& options);
/// Same, as lines "OPTION: VALUE", for job::Agreement::require_same_lines().
std::string describe(const TrainerOptions& options);

/// What a training with some TrainerOptions minimizes and reports.
struct LossPlan {
  model::TotalLoss loss;                  ///< a term for each loss
  model::Metrics metrics;                 ///< all: those of the options, then of each loss
  std::vector<std::size_t> metric_terms;  ///< the term of the loss that each metric reads
};
/// The plan for `network`. Throws Error (input) for an output that it does not have, or that is
/// named twice, and for a weight that is not above 0.
LossPlan loss_plan(const TrainerOptions& options, const model::Network& network);

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
  /// The checkpoint of the epoch, or validation, with the best value of this metric is kept beside
  /// the newest ones, until a better one is saved; it is saved also if `save_every` would not.
  std::optional<MonitoredMetric> keep_best = {};
  /// With `keep_best`: fit() ends with the parameters and moving statistics of the best checkpoint,
  /// like Keras's restore_best_weights, unless a signal ended it or there is none.
  bool restore_best = false;
  /// Whether to resume from an existing checkpoint.
  checkpoint::Resume resume = checkpoint::Resume::automatic;
  /// With `never`: the first checkpoint of this training replaces those that the directory has,
  /// which are an Error (checkpoint) otherwise.
  bool overwrite = false;
  /// How the ranks' replicas are compared at each save.
  checkpoint::VerifyCheckpoint verify = checkpoint::VerifyCheckpoint::automatic;
  checkpoint::Configuration configuration = {};  ///< stored in state.json
  /// The TorchScript file of the network, which each checkpoint then contains; null if there is
  /// none, or if the program that restores the checkpoint has the network itself.
  std::shared_ptr<const std::string> script = {};
};

/// Options of Trainer::fit().
struct FitOptions {
  /// Both count from the beginning of the training, also if it resumes from a checkpoint.
  std::int64_t epochs = 1;  ///< 0: no limit; then `steps` is required
  std::int64_t steps = 0;   ///< 0: no limit. The limit that is reached first applies
  std::optional<data::Dataset> validation = {};  ///< evaluated at the end of each epoch; batched
  /// Number of steps between further validations within epochs; 0: none.
  std::int64_t validate_every = 0;
  /// Number of images of the validation data, from its first record on, that are passed to
  /// Callback::on_predictions() with the predicted classes; at most 1000, 0: none.
  std::int64_t prediction_images = 0;
  CheckpointPlan checkpoint = {};                         ///< where and when to save
  std::vector<std::shared_ptr<Callback>> callbacks = {};  ///< called in this order
  /// The chief prints the progress to standard output (ProgressBar), unless `callbacks` has a
  /// ProgressBar or the session is quiet.
  bool progress = true;
  int prefetch = 2;  ///< number of global batches to read ahead
  /// Maximum number of background threads that read; 0: one, and for replicas on GPUs as many as
  /// the process has cores, up to 16 per replica.
  int data_threads = 0;
  /// Number of steps between checks that all replicas have the same values; 0 checks only at
  /// checkpoints.
  std::int64_t check_replicas = 1000;
  /// A file for the time of each layer, of the loss, the reduction and the update, as JSON lines;
  /// empty: none. Times the chief's first replica, whose steps are then not recorded
  /// (docs/performance.md). Written at the end; must have a name on all ranks or on none.
  std::filesystem::path profile = {};
  /// A trace of some steps, which the chief writes after the last of them, and then still trains. A
  /// trace that cannot be written is a warning then, and an Error (output) at the end.
  /// The same on all ranks.
  TraceOptions trace = {};
  /// Initial weights from another training; ignored if this run resumes from a checkpoint.
  std::optional<Pretrained> pretrained = {};
  /// The signals, such as SIGTERM, SIGINT and SIGHUP, that end the training after a step with a
  /// checkpoint. fit() handles them while it runs (SignalWatch). Empty: none; the process keeps its
  /// own handlers.
  std::vector<int> signals = {};
};

/// How Trainer::evaluate() and Trainer::predict() read their data.
struct ReadOptions {
  int prefetch = 2;  ///< number of global batches to read ahead
  /// Maximum number of background threads that read; 0: one, and for replicas on GPUs as many as
  /// the process has cores, up to 16 per replica.
  int data_threads = 0;
};

/// The result of Trainer::fit().
struct History {
  std::vector<EpochLogs> epochs;  ///< the epochs of this run
  TrainEnd end;                   ///< how it ended
};

/// The result of Trainer::evaluate().
struct Evaluation : model::MetricSums {
  std::vector<model::MetricValue> values = {};  ///< of TrainerOptions::metrics, in their order
  /// The unreadable records that Dataset::skip_bad_records() tolerated: no sum has them.
  std::vector<BadFile> bad_files = {};

  /// The value called `name`, as EpochLogs::metric().
  std::optional<double> metric(std::string_view name) const {
    return find_metric(*this, values, name);
  }
};

/// One output of a network for one global batch.
struct OutputValues {
  std::string_view name;          ///< as in Network::outputs()
  std::span<const float> values;  ///< [samples, width]
  std::int64_t width = 0;         ///< elements of one sample
};

/// The outputs for one global batch.
struct Predictions {
  std::span<const std::int64_t> record_ids;  ///< [samples]
  std::span<const float> outputs;            ///< [samples, width], the first output of the network
  std::int64_t width = 0;                    ///< elements of one output
  /// All outputs, in the order of Network::outputs().
  std::span<const OutputValues> all = {};
  /// Records between those of `record_ids` that are unreadable, which Dataset::skip_bad_records()
  /// tolerates; ascending.
  std::span<const data::BadRecord> bad = {};
};
/// Receives predictions in record order.
using PredictionSink = std::function<void(const Predictions&)>;

}  // namespace lockstep::strategy
