// Options of `lockstep train`, in the structs that the library takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/command_line/output_arguments.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/trainer_options.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/metrics_exporter.h"
#include "lockstep/train/callbacks/plateau.h"
#include "lockstep/train/tensorboard/summaries.h"

namespace lockstep::inline v0::apps {

/// The optimizer, and the constants of any: nullopt for one that was not given.
struct OptimizerArguments {
  model::OptimizerOptions kind = model::Adam{};  ///< with its defaults
  std::optional<float> momentum;
  bool nesterov = false;
  std::optional<float> beta1;
  std::optional<float> beta2;
  std::optional<float> rho;
  std::optional<float> initial_accumulator;
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
  OptimizerArguments optimizer;
  LossArguments loss;
  /// complete() sets the losses, the optimizer and the class weights.
  strategy::TrainerOptions trainer;
  double label_smoothing = 0;
  std::string class_weights;  ///< "auto": as balanced_class_weights(); else also in `trainer`

  double mixup = 0;
  bool scale_targets = true;
  bool autoencoder = false;
  std::string validation_data;
  data::RecordSplit split;  ///< complete() sets the seed
  bool shuffle = true;
  data::ShardPolicy shard_policy = data::ShardPolicy::automatic;

  /// The validation data, the callbacks and the configuration are set by the command, as is the
  /// directory of checkpoints if it chooses one.
  train::FitOptions fit;
  /// "none", or empty: the command chooses one.
  std::string checkpoint_dir;
  bool chooses_directory = false;  ///< as RunDirectory: --checkpoint-dir was not given
  /// A metric, "none", or empty: that of --early-stop if it is of the validation, or the accuracy
  /// of the validation, or its loss.
  std::string keep_best;
  train::Pretrained pretrained;  ///< an empty path: none

  std::string early_stop;  ///< as given; parsed:
  std::optional<train::EarlyStoppingOptions> early_stopping = {};
  std::string reduce_on_plateau;  ///< as given; parsed:
  std::optional<train::PlateauOptions> plateau = {};

  std::string csv_log;
  std::string metrics_port;                ///< as given; parsed in:
  train::MetricsExporterOptions exporter;  ///< without an address and a file: none
  std::string metrics;                     ///< names
  std::string summary_dir;
  train::SummaryOptions summaries;
  std::int64_t log_every = 100;
  std::string length;  ///< choose_defaults() sets it: the length that it chose, for the start
  std::string events;  ///< a file; empty: none

  /// The samples of a step over all replicas: those of all local steps, if it is a round of these.
  std::int64_t samples_of_step() const {
    if (place.strategy != "local-steps") return data.global_batch;
    return data.global_batch * trainer.local.steps.value_or(strategy::LocalSteps::kStandard);
  }
};

/// Declares the options.
void add_train_options(CLI::App& command, TrainArguments& arguments,
                       const char* quiet = "Print only warnings and errors");

/// Derives what depends on several options. Throws Error (input) if a required option is missing,
/// or if options contradict each other.
void complete(TrainArguments& arguments);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// The optimizer. Of the constants, each names the optimizers that have it.
template <>
struct Fields<apps::OptimizerArguments> {
  using Options = apps::OptimizerArguments;
  static void parse_kind(Options& options, std::string_view name,
                         std::span<const std::string> values);
  static std::string list_kinds();
  /// "sgd (default 0) and lars (default 0.9)"
  static std::string list_defaults(std::string_view constant);
  static constexpr std::tuple list{
      TextField<Options>{
          {"optimizer", "Optimizer", "Optimizer: {}"},
          parse_kind,
          [](const Options& options) { return std::vector{model::name_of(options.kind)}; },
          {.value = "NAME", .names = list_kinds}},
      Field{&Options::momentum,
            {"momentum", "Optimizer", "Momentum of {}"},
            {{.min = 0, .max = 1}},
            {.names = [] { return list_defaults("momentum"); }}},
      Field{&Options::nesterov,
            {"nesterov", "Optimizer", "Use Nesterov momentum, for sgd"},
            {},
            {.needs = "optimizer=sgd"}},
      Field{&Options::beta1,
            {"beta1", "Optimizer", "Decay rate of the first moment, for {}"},
            {{.min = 0, .max = 1}},
            {.names = [] { return list_defaults("beta1"); }}},
      Field{&Options::beta2,
            {"beta2", "Optimizer", "Decay rate of the second moment, for {}"},
            {{.min = 0, .max = 1}},
            {.names = [] { return list_defaults("beta2"); }}},
      Field{&Options::rho,
            {"rho", "Optimizer", "Decay rate of the mean square of the gradient, for {}"},
            {{.min = 0, .max = 1}},
            {.names = [] { return list_defaults("rho"); }}},
      Field{&Options::initial_accumulator,
            {"initial_accumulator", "Optimizer", "Initial sum of squared gradients, for {}"},
            {},
            {.names = [] { return list_defaults("initial_accumulator"); }}},
      Field{&Options::epsilon,
            {"epsilon", "Optimizer",
             "Term added to a denominator, which is the norm that divides a layer's "
             "learning rate for lars, and the square root of the second moment or of the "
             "sum of squares for the others: {}"},
            {},
            {.names = [] { return list_defaults("epsilon"); }}},
      Field{&Options::trust_coefficient,
            {"trust_coefficient", "Optimizer",
             "Update size of a layer as a fraction of its weight norm at learning rate 1, "
             "for {}"},
            {},
            {.names = [] { return list_defaults("trust_coefficient"); }}},
      Field{&Options::weight_decay,
            {"weight_decay", "Optimizer",
             "Weight decay of all parameters except biases and normalization, decoupled "
             "for adamw and lamb, L2 for the others: {}"},
            {{.min = 0}},
            {.names = [] { return list_defaults("weight_decay"); }}}};
};

/// All options of `lockstep train`.
template <>
struct Fields<apps::TrainArguments> {
  using Options = apps::TrainArguments;
  using Values = std::span<const std::string>;
  static std::string list_networks();
  static std::string list_losses();
  static void parse_losses(Options& options, std::string_view name, Values values);
  static void parse_metrics(Options& options, std::string_view name, Values values);
  static void parse_bad_records(Options& options, std::string_view name, Values values);
  static std::vector<std::string> print_bad_records(const Options& options);
  static void parse_early_stop(Options& options, std::string_view name, Values values);
  static void parse_plateau(Options& options, std::string_view name, Values values);
  static void parse_metrics_port(Options& options, std::string_view name, Values values);
  /// Those of a text that may be empty.
  static std::vector<std::string> unless_empty(std::string text) {
    return text.empty() ? std::vector<std::string>() : std::vector{std::move(text)};
  }
  static constexpr std::tuple list{
      Field{&Options::model,
            {"model", kCommonOptions,
             "Network to train (required): {}; mlp:10,10,dropout=0.2 sets the sizes of "
             "the hidden layers and the dropout after each, mobilenet_v2:0.5 a factor on the "
             "number of filters, "
             "wide_deep:128x64,embedding=8 the sizes of hidden layers and embeddings, "
             "lstm:2x256,embedding=64 the number of layers and their sizes, and with "
             ",return_sequences predicts at each position; gpt:4x128x2,dropout=0.1 the "
             "layers, the width, the heads and the dropout, with ,ffn=swiglu a gated "
             "hidden layer, vit:4x128,patch=4 also the side of its squares, and with "
             ",class_token a class token; "
             "seq2seq:1x256,embedding=128,dropout=0.1 the layers, the units, the "
             "embeddings and the dropout; caption:256,dropout=0.3,cnn=resnet18 the width, "
             "the dropout and the network of the images; FILE.json describes the layers; "
             "FILE.onnx is a network of ONNX with its initial weights; FILE.pt is a "
             "TorchScript file, which is a program and is run"},
            {},
            {.value = "NAME|FILE", .names = list_networks}},
      Part{&Options::data},
      Part{&Options::pretrained},
      TextField<Options>{
          {"loss", "Model",
           "Loss function: {}. Parameters follow a colon: huber:delta=2 (default 1), "
           "binary-crossentropy:label_smoothing=0.1. For a network of several outputs, "
           "OUTPUT=LOSS for each of them, such as price=mse:weight=0.5,target=cost: a "
           "factor on the loss (default 1), and the target in the data (default: the name "
           "of the output); OUTPUT=none does not train it"},
          parse_losses,
          [](const Options& options) { return options.loss.texts; },
          {.value = "NAME[:KEY=X]", .repeats = true, .names = list_losses}},
      TextField<Options>{{"metrics", "Model", apps::kMetricsHelp},
                         parse_metrics,
                         [](const Options& options) { return unless_empty(options.metrics); },
                         {.value = "LIST", .repeats = true, .names = model::metric_names}},
      Field{&Options::label_smoothing,
            {"label_smoothing", "Model",
             "Fraction of the label that is spread over all classes, 0 to 1"},
            {.min = 0, .max = 1}},
      Field{&Options::class_weights,
            {"class_weights", "Model",
             "Weight of each class in the training loss: W0,W1,..., or auto, with which "
             "all classes count the same (reads every record once before the training, "
             "each rank its part) (default: none)"},
            {},
            {.value = "auto|W0,W1,..."}},
      Field{&Options::mixup,
            {"mixup", "Model",
             "Mix each sample with another one of the epoch, with a weight drawn from "
             "Beta(A, A), 0 < A <= 4, such as 0.2. The loss uses both labels, the accuracy "
             "only the sample's own. 0 disables mixup"},
            {.min = 0, .max = 4}},
      Field{&Options::scale_targets,
            {"scale_targets", "Model",
             "Standardize the target of a regression on a table with one column of targets, with "
             "the losses mse, mae and huber in float32. The last step of the network is their mean "
             "and deviation, so that losses, metrics and predictions are in the target's unit"}},
      Field{&Options::autoencoder,
            {"autoencoder", "Model",
             "Train the network to reproduce its input: the target is the first input, and labels "
             "are not read. The loss is mean-squared-error unless --loss is given"}},
      Part{&Options::trainer},
      Field{&Options::validation_data,
            {"validation_data", kCommonOptions,
             "Data to evaluate after each epoch, in the same forms as --data"},
            {},
            {.value = "SPEC"}},
      Part{&Options::split},
      TextField<Options>{
          {"features", "Data",
           "JSON file that describes the features of a csv: table: numbers, dates, "
           "buckets, words, hashed and crossed columns (docs/data.md). Stored in "
           "checkpoints"},
          [](Options& options, std::string_view /*name*/, Values values) {
            options.data.open.features = values.back();
          },
          [](const Options& options) { return unless_empty(options.data.open.features.string()); },
          {.value = "FILE.json"}},
      Field{&Options::shuffle, {"shuffle", "Data", "Shuffle the records in each epoch"}},
      Field{&Options::shard_policy,
            {"shard_policy", "Data",
             "How records are distributed over ranks: auto (evenly, independent of the "
             "files; each record is seen once, in an order that does not depend on the "
             "number of ranks), file (whole files, round-robin), data (equal slices of "
             "each batch), off (every rank reads all records)"}},
      TextField<Options>{
          {"bad_records", "Data",
           "What to do about records of --data that cannot be read: fail at the first one, "
           "or skip:N to tolerate up to N. A skipped record is replaced by the next one, "
           "each affected file is reported, and a truncated file is used up to the point "
           "where it ends"},
          parse_bad_records,
          print_bad_records,
          {.value = "fail|skip:N"}},
      Part{&Options::fit},
      TextField<Options>{
          {"early_stop", "Training",
           "End the training when a metric has not improved by more than min_delta "
           "(default 0) for patience (default 3) epochs, or validations with "
           "--validate-every: METRIC[:patience=N,min_delta=X], such as "
           "validation_loss:patience=5; METRIC:max or METRIC:min sets the better direction "
           "(default: none)"},
          parse_early_stop,
          [](const Options& options) { return unless_empty(options.early_stop); },
          {.value = "METRIC"}},
      TextField<Options>{
          {"reduce_on_plateau", "Training",
           "Multiply the learning rate by factor (default 0.1) when a metric has not "
           "improved for patience (default 3) epochs: METRIC[:KEY=VALUE,...], such as "
           "validation_loss:factor=0.5,patience=2. Further keys: min_delta, as for "
           "--early-stop; cooldown, the number of epochs after a reduction that do not "
           "count (default 0); min_lr, the lower bound of a reduced rate (default 0) "
           "(default: none)"},
          parse_plateau,
          [](const Options& options) { return unless_empty(options.reduce_on_plateau); },
          {.value = "METRIC"}},
      Part{&Options::place},
      Part{&Options::optimizer},
      Field{&Options::checkpoint_dir,
            {"checkpoint_dir", kCommonOptions,
             "Directory to write checkpoints to and to resume from; none saves nothing "
             "(default: a new directory runs/NETWORK-N)"},
            {},
            {.value = "DIR"}},
      Field{&Options::keep_best,
            {"keep_best", "Checkpoints and summaries",
             "Save a checkpoint after each epoch, or validation, in which a metric is the "
             "best so far, and keep the best one in addition to the newest: METRIC, such "
             "as validation_accuracy, METRIC:max, METRIC:min, or none. DIR:best names it "
             "in other commands (default: with validation data the metric of "
             "--early-stop, or validation_accuracy, or validation_loss)"},
            {},
            {.value = "METRIC"}},
      Field{&Options::summary_dir,
            {"summary_dir", "Checkpoints and summaries",
             "Directory for TensorBoard event files, which rank 0 writes (default: none)"},
            {},
            {.value = "DIR"}},
      Part{&Options::summaries},
      Field{&Options::csv_log,
            {"csv_log", "Checkpoints and summaries",
             "CSV file with a row of all metrics per epoch. Rank 0 writes it; a run that "
             "resumes continues it (default: none)"},
            {},
            {.value = "FILE"}},
      TextField<Options>{
          {"metrics_port", "Output",
           "Port or address, such as 0.0.0.0:9400, where rank 0 serves metrics for "
           "Prometheus at /metrics. A port alone is of 127.0.0.1; 0 is any free one, which "
           "is printed (default: none)"},
          parse_metrics_port,
          [](const Options& options) { return unless_empty(options.metrics_port); },
          {.value = "PORT"}},
      TextField<Options>{
          {"metrics_file", "Output",
           "File for the same metrics as OpenMetrics text, which rank 0 replaces every 5 "
           "seconds (default: none)"},
          [](Options& options, std::string_view /*name*/, Values values) {
            options.exporter.file = values.back();
          },
          [](const Options& options) { return unless_empty(options.exporter.file.string()); },
          {.value = "FILE"}},
      Field{&Options::log_every,
            {"log_every", "Output", "Number of steps between progress reports; 0 disables them"},
            {.min = 0}},
      Field{&Options::events,
            {"events", "Output",
             "File for the lines that --json prints, in addition to what is printed; lockstep "
             "report reads it. Rank 0 writes it; a run that resumes continues it (default: none)"},
            {},
            {.value = "FILE"}},
      Part{&Options::output},
      Field{&Options::verbose,
            {"verbose", "Output",
             "Also print where replicas are, what each rank reads, why the all-reduce was "
             "chosen, and how much of each epoch was waiting"}}};
};

}  // namespace lockstep::inline v0
