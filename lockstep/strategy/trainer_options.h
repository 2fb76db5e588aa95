// Options of Trainer, like those of compile() in Keras.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/metrics/metric.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/optimizer/schedule.h"
#include "lockstep/model/tensor/compute_options.h"
#include "lockstep/strategy/step/local_steps.h"
#include "lockstep/strategy/step/loss_scaler.h"
#include "lockstep/strategy/step/normalization.h"

namespace lockstep::inline v0::strategy {

/// How the learning rate scales with the global batch: constant, linear (Goyal et al., 2017), or
/// with the square root.
enum class RateScaling { none, linear, sqrt };

/// Parameters with their own learning rate or weight decay.
struct ParameterGroup {
  std::string pattern;  ///< a glob over parameter names, such as "head/*"
  /// Peak learning rate, with the same schedule and scaling; nullopt: that of the other parameters.
  std::optional<float> learning_rate = {};
  /// Weight decay of the parameters that have decay; nullopt: that of the optimizer.
  std::optional<float> weight_decay = {};
};
/// "head/*:lr=0.1,decay=0", as `--group` reads it.
std::string to_string(const ParameterGroup& group);
/// Parses "fc/*:lr=0.1,decay=0"; lr or decay may be omitted. Throws Error (input).
ParameterGroup parse_group(std::string_view text);

/// The loss of one output of a network.
struct OutputLoss {
  std::string output;  ///< the name in Network::outputs()
  /// Name of the target in the data set; empty: that of the output. A single loss uses a single
  /// target regardless of its name.
  std::string target = {};
  model::Loss loss = model::SparseCategoricalCrossentropy{};  ///< loss function
  float weight = 1;  ///< factor on the loss and its gradient; above 0
  /// Metrics of this output, reported with its name as a prefix: "price_mae".
  model::Metrics metrics = {};
};

/// Options of the model and its updates.
struct TrainerOptions {
  /// The loss between the first output and the first target.
  model::Loss loss = model::SparseCategoricalCrossentropy{};
  /// Replaces `loss`: training minimizes the weighted sum of these, reported as "loss". Accuracy
  /// and `metrics` use the output of the first one. With several losses, each is also reported as
  /// OUTPUT_loss and, if it has classes, OUTPUT_accuracy. Network outputs without a loss are not
  /// trained.
  std::vector<OutputLoss> losses = {};
  /// Further metrics of training and evaluation: those of model::make_metrics(), or user-defined
  /// ones. The same names on all ranks.
  model::Metrics metrics = {};
  /// Factor on loss and gradient per class, only in training; empty: all are 1. The mean is over
  /// the sum of weights, so only their ratios matter. balanced_class_weights() computes them from
  /// data.
  std::vector<float> class_weights = {};
  /// The optimizer. Its learning_rate, if set, is the peak of `schedule`.
  model::OptimizerOptions optimizer = model::Adam{};
  model::Schedule schedule = {};  ///< total_steps 0: the number of steps of the training
  /// How the learning rate scales with the global batch.
  RateScaling rate_scaling = RateScaling::none;
  /// Global batch that the learning rate refers to; required unless rate_scaling is none.
  std::int64_t base_batch = 0;
  /// Decay per update of an exponential moving average of the parameters, such as 0.999.
  /// Validation, evaluate() and predict() use the average; training does not. 0: no average.
  float ema = 0;
  /// Globs over parameter names, such as "conv*": parameters that are not trained
  /// (model::Network::freeze).
  std::vector<std::string> freeze = {};
  /// Groups with their own learning rates and weight decays. The last group that matches applies.
  std::vector<ParameterGroup> groups = {};
  double clip_norm = 0;  ///< maximum norm of the reduced gradient; 0 disables clipping
  /// Micro-batches per step on each replica. Only batch normalization depends on this number: it
  /// normalizes each micro-batch.
  int accumulate = 1;
  /// The rounds of LocalStepsStrategy: each step is one, and each of its micro-batches is a local
  /// step, with the learning rate of the round.
  LocalSteps local = {};
  /// Micro-batches per step on each replica.
  int micro_batches() const { return local.steps.value_or(accumulate); }
  model::ComputeOptions compute = {};  ///< precision, algorithms, recomputation
  /// Allows a GPU to replay a recorded step (CUDA graph); the results are the same.
  bool records_steps = true;
  std::optional<LossScaling> loss_scaling = {};  ///< nullopt: dynamic for float16, none otherwise
  NormalizationScope normalization = {};         ///< scope of the batch-normalization statistics
  std::uint64_t seed = 1;  ///< seed of initial weights, dropout and the order of records
  allreduce::BucketOptions buckets = {};  ///< size and data type of gradient buckets
  /// When ranks are on different nodes, tries several bucket sizes in the first steps and keeps the
  /// fastest (BucketTuner). A run that resumes from a checkpoint reuses its size.
  bool tune_buckets = false;
};

/// Returns the learning rate of the optimizer if it is set, else of the schedule. Throws Error
/// (input) if they differ.
float peak_rate(const TrainerOptions& options);

/// Returns `network` with the groups and the frozen parameters of `options`. Throws Error (input).
model::Network prepared(model::Network network, const TrainerOptions& options);

/// The loss of one output as `--loss` reads it, without a default target or weight.
std::string to_string(const OutputLoss& loss);

/// The loss and the metrics of a training.
struct LossPlan {
  model::TotalLoss loss;                  ///< one term per loss
  model::Metrics metrics;                 ///< metrics of the options, then of each loss
  std::vector<std::size_t> metric_terms;  ///< index of the loss term of each metric
};
/// Returns the plan for `network`. Throws Error (input) for an output that is unknown or named
/// twice, and for a weight that is not above 0.
LossPlan loss_plan(const TrainerOptions& options, const model::Network& network);

/// Returns `options.schedule` for a training of `total_steps` with `global_batch`. Throws Error
/// (input) if base_batch is required and missing, if the optimizer and the schedule set different
/// learning rates, or if the schedule is incomplete for its kind.
model::Schedule effective_schedule(const TrainerOptions& options, std::int64_t global_batch,
                                   std::int64_t total_steps);

}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<strategy::RateScaling> =
    enum_names<strategy::RateScaling>({{strategy::RateScaling::none, "none"},
                                       {strategy::RateScaling::linear, "linear"},
                                       {strategy::RateScaling::sqrt, "sqrt"}});

/// The options of a training's model and updates. The command line builds losses, metrics and the
/// optimizer from other options.
template <>
struct Fields<strategy::TrainerOptions> {
  using Options = strategy::TrainerOptions;                                  ///< the struct
  static std::vector<std::string> print_losses(const Options& options);      ///< all of them
  static std::vector<std::string> print_metrics(const Options& options);     ///< their names
  static std::vector<std::string> print_optimizer(const Options& options);   ///< with constants
  static std::vector<std::string> print_loss_scale(const Options& options);  ///< its text
  static std::vector<std::string> print_groups(const Options& options);      ///< all of them
  static std::vector<std::string> print_bucket(const Options& options);      ///< MiB, or "auto"
  /// Throws Error (input), as all parse functions.
  static void parse_loss_scale(Options& options, std::string_view name,
                               std::span<const std::string> values);
  static void parse_groups(Options& options, std::string_view name,
                           std::span<const std::string> values);  ///< see parse_loss_scale()
  static void parse_bucket(Options& options, std::string_view name,
                           std::span<const std::string> values);  ///< see parse_loss_scale()
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::seed,
            {"seed", "Model",
             "Seed of all randomness: initial weights, dropout, the order of records",
             Role::resume_exact}},
      TextField<Options>{{"loss", {}, {}, Role::resume_warn, "losses"}, nullptr, print_losses},
      Field{&Options::class_weights, {"class_weights", {}, {}, Role::resume_warn, "class weights"}},
      TextField<Options>{{"metrics", {}, {}, Role::agree}, nullptr, print_metrics},
      TextField<Options>{{"optimizer", {}, {}, Role::resume_warn}, nullptr, print_optimizer},
      Part{&Options::schedule},
      Field{&Options::rate_scaling,
            {"lr_scaling", "Learning rate",
             "How the learning rate scales with --global-batch: none, linear or sqrt",
             Role::resume_warn, "scaling of the learning rate"}},
      Field{&Options::base_batch,
            {"lr_base_batch", "Learning rate",
             "Global batch size that --learning-rate refers to; required by --lr-scaling "
             "linear and sqrt",
             Role::resume_warn, "batch that the learning rate refers to"},
            {},
            {.needs = "lr_scaling=linear,sqrt"}},
      Field{&Options::ema,
            {"ema", "Optimizer",
             "Decay per update of an exponential moving average of the parameters, such "
             "as 0.999. Validation, evaluate and predict use the average; 0 disables it",
             Role::resume_warn, "moving average of the parameters"}},
      Field{&Options::freeze,
            {"freeze", "Model",
             "Parameters to exclude from training: patterns of names, such as 'conv*' or "
             "'*/bias'. May be given several times. Batch normalization whose parameters "
             "are frozen uses its moving statistics (default: none)",
             Role::agree, "frozen parameters"},
            {},
            {.value = "PATTERN[,PATTERN...]", .repeats = true}},
      TextField<Options>{
          {"group", "Optimizer",
           "Parameters with their own peak learning rate or weight decay, such as "
           "'fc/*:lr=0.1,decay=0'. May be given several times; of several patterns that "
           "match, the last one counts (default: none)",
           Role::resume_warn, "groups of parameters"},
          parse_groups,
          print_groups,
          {.value = "PATTERN:lr=X,decay=Y", .repeats = true}},
      Field{&Options::clip_norm,
            {"clip_norm", "Training",
             "Maximum norm of the gradient over all parameters and replicas; 0 disables "
             "clipping",
             Role::resume_warn, "maximum gradient norm"},
            {.min = 0}},
      Field{&Options::accumulate,
            {"accumulate", "Training",
             "Micro-batches per step on each replica. Batch normalization uses the "
             "statistics of each micro-batch; no other result depends on this number",
             Role::resume_warn, "micro-batches per step"},
            {.min = 1}},
      Part{&Options::local},
      Part{&Options::compute},
      TextField<Options>{
          {"loss_scale", "Model",
           "Factor that the loss is multiplied by before the backward pass and the "
           "gradient is divided by after it: none, a number, dynamic (the largest that "
           "does not overflow), or auto (dynamic for float16, none otherwise)",
           Role::resume_warn, "loss scale"},
          parse_loss_scale,
          print_loss_scale,
          {.value = "none|X|dynamic|auto"}},
      Field{&Options::normalization,
            {"bn", "Training",
             "Scope of the batch-normalization statistics: local (each replica), sync "
             "(all replicas), or group:K (groups of K consecutive replicas)",
             Role::resume_warn, "scope of normalization"},
            {},
            {.value = "local|sync|group:K"}},
      Part{&Options::buckets},
      TextField<Options>{
          {"bucket_mib", "Replicas",
           "Size of a gradient bucket in MiB. When ranks are on different nodes, each "
           "bucket is reduced as a unit, overlapped with the backward pass; the first "
           "bucket has at most 1 MiB. auto tries six sizes in the first 90 steps and "
           "keeps the fastest",
           Role::agree, "choice of the bucket size"},
          parse_bucket,
          print_bucket,
          {.value = "MIB|auto"}},
      Field{&Options::records_steps,
            {"graph", "Model",
             "Record the training step as a CUDA graph and replay it. Steps with "
             "micro-batches are not recorded",
             Role::agree, "recording of steps"}}};
};

}  // namespace lockstep::inline v0
