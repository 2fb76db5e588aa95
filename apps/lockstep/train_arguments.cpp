#include "apps/lockstep/train_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::apps {
namespace {

/// The optimizers, with their defaults, that have a hyperparameter of this name.
std::vector<model::OptimizerOptions> optimizers_with(std::string_view hyperparameter) {
  std::vector<model::OptimizerOptions> all = model::all_optimizers();
  std::erase_if(all, [&](model::OptimizerOptions& optimizer) {
    return model::find_hyperparameter(optimizer, hyperparameter) == nullptr;
  });
  return all;
}

/// "adam, adamw or lamb", with `last` " or ".
std::string list_optimizers(std::span<const model::OptimizerOptions> optimizers,
                            std::string_view last) {
  std::vector<std::string> names;
  for (const model::OptimizerOptions& optimizer : optimizers)
    names.push_back(model::name_of(optimizer));
  return list_names(std::vector<std::string_view>(names.begin(), names.end()), last);
}

/// "sgd (default 0) and lars (default 0.9)": the optimizers that have a hyperparameter.
std::string list_defaults(std::string_view hyperparameter) {
  std::vector<std::string> texts;
  auto rest = optimizers_with(hyperparameter);
  const auto default_of = [&](model::OptimizerOptions& optimizer) {
    return *model::find_hyperparameter(optimizer, hyperparameter);
  };
  while (!rest.empty()) {
    const auto others = std::ranges::stable_partition(
        rest, [&, value = default_of(rest[0])](auto& other) { return default_of(other) == value; });
    texts.push_back(fmt::format("{} (default {})",
                                list_optimizers({rest.begin(), others.begin()}, " and "),
                                default_of(rest[0])));
    rest.erase(rest.begin(), others.begin());
  }
  return list_names(std::vector<std::string_view>(texts.begin(), texts.end()), " and ");
}

model::OptimizerOptions parse_optimizer(std::string_view name) {
  std::vector<std::string> names;
  for (const model::OptimizerOptions& optimizer : model::all_optimizers()) {
    if (model::name_of(optimizer) == name) return optimizer;
    names.push_back(model::name_of(optimizer));
  }
  refuse_name("--optimizer", name, std::vector<std::string_view>(names.begin(), names.end()));
}

constexpr auto kFusedStatistics = enum_names<model::FusedStatistics>(
    {{model::FusedStatistics::never, "never"}, {model::FusedStatistics::where_faster, "measure"}});

constexpr auto kConvolutions =
    enum_names<model::Convolutions>({{model::Convolutions::automatic, "auto"},
                                     {model::Convolutions::graph, "graph"},
                                     {model::Convolutions::legacy, "legacy"}});

[[noreturn]] void refuse_arguments(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "command line", expected, actual);
}

/// Sets the size of buckets to `mebibytes`, a number or "auto".
void set_bucket_size(strategy::TrainerOptions& options, const std::string& mebibytes) {
  constexpr double kMebibyte = 1 << 20;
  allreduce::BucketOptions buckets{.wire = options.buckets.wire};
  options.tune_buckets = mebibytes == "auto";
  if (!options.tune_buckets) {
    const double value = parse_number<double>(mebibytes).value_or(0);
    if (!(value > 0 && value <= kMebibyte))
      refuse_arguments("expected --bucket-mib to be a number above 0, or auto",
                       fmt::format("got \"{}\"", mebibytes));
    buckets.bytes = static_cast<std::size_t>(value * kMebibyte);
  }
  buckets.first_bytes = std::min(buckets.first_bytes, buckets.bytes);
  options.buckets = buckets;
}

void set_label_smoothing(LossArguments& arguments, double smoothing) {
  if (smoothing == 0) return;
  if (arguments.is_named())
    refuse_arguments("expected the setting label_smoothing=S of --loss OUTPUT=LOSS",
                     "got --label-smoothing");
  model::Loss& loss = arguments.loss;
  for (const auto& [name, value] : model::loss_parameters(loss))
    if (name == "label_smoothing") {
      *value = static_cast<float>(smoothing);
      return;
    }
  refuse_arguments("expected a cross-entropy as --loss with --label-smoothing",
                   fmt::format("got {}", model::name_of(loss)));
}

/// Of the numbers "1,2.5"; none for "auto" and "".
std::vector<float> class_weights_of(std::string_view text) {
  std::vector<float> weights;
  if (text.empty() || text == "auto") return weights;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const auto weight = parse_number<float>(rest.substr(0, comma));
    if (!weight)
      refuse_arguments(
          "expected --class-weights to be auto or a number for each class, such as 1,2.5",
          fmt::format("got \"{}\"", text));
    weights.push_back(*weight);
    if (comma == std::string_view::npos) return weights;
    rest.remove_prefix(comma + 1);
  }
}

void add_model_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Model");
  const auto names = zoo::names();
  command
      .add_option(
          "--model", a.model,
          fmt::format("Network to train (required): {}; mlp:10,10 sets the sizes of the hidden "
                      "layers, mobilenet_v2:0.5 a factor on the number of filters, "
                      "wide_deep:128x64,embedding=8 the sizes of hidden layers and embeddings, "
                      "lstm:2x256,embedding=64 the number of layers and their sizes, and "
                      "with ,return_sequences predicts at each position; "
                      "gpt:4x128x2,dropout=0.1 the layers, the width, the heads and the dropout, "
                      "with ,ffn=swiglu a gated hidden layer, "
                      "vit:4x128,patch=4 also the side of its squares; "
                      "seq2seq:1x256,embedding=128,dropout=0.1 the layers, the units, the "
                      "embeddings and the dropout; "
                      "caption:256,dropout=0.3,cnn=resnet18 the width, the dropout and the network "
                      "of the images; "
                      "FILE.json describes the layers; FILE.onnx is a network of ONNX with its "
                      "initial weights; FILE.pt is a TorchScript file, which is a program and "
                      "is run",
                      list_names(names)))
      ->type_name("NAME|FILE")
      ->group(kCommonOptions);
  command
      .add_option("--init-from", a.pretrained.path,
                  "Initial weights: a safetensors file with the names of torchvision or Lockstep, "
                  "a FILE.onnx, a checkpoint, a directory of checkpoints, or DIR:best. Ignored "
                  "when the run resumes from a checkpoint")
      ->type_name("PATH");
  command.add_flag("--reset-head", a.pretrained.reset_head,
                   "With --init-from or --model FILE.onnx, do not load the last layer that has "
                   "parameters, so that the number of classes may differ");
  command.add_flag("--partial", a.pretrained.partial,
                   "With --init-from, load the tensors that fit and print a table of the others");
  command
      .add_option_function<std::vector<std::string>>(
          "--map",
          [&map = a.pretrained.map](const std::vector<std::string>& rules) {
            map.clear();
            for (const std::string& rule : rules) map.push_back(strategy::NameMap::parse(rule));
          },
          "With --init-from, rename tensors: OLD is a name in the file, NEW that in the network, "
          "such as 'backbone.*=*', where * is any text. May be given several times; the first that "
          "matches counts (default: none)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->delimiter(',');
  command
      .add_option(
          "--freeze", a.trainer.freeze,
          "Parameters to exclude from training: patterns of names, such as 'conv*' or '*/bias'. "
          "May be given several times. Batch normalization whose parameters are frozen uses "
          "its moving statistics (default: none)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->delimiter(',');
  const auto losses = model::loss_names();
  command
      .add_option_function<std::vector<std::string>>(
          "--loss",
          [&loss = a.loss](const std::vector<std::string>& texts) { loss = parse_losses(texts); },
          fmt::format(
              "Loss function: {}. Parameters follow a colon: huber:delta=2 (default 1), "
              "binary-crossentropy:label_smoothing=0.1. For a network of several outputs, "
              "OUTPUT=LOSS for each of them, such as price=mse:weight=0.5,target=cost: a factor "
              "on the loss (default 1), and the target in the data (default: the name of the "
              "output); OUTPUT=none does not train it",
              list_names(losses)))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->default_str("sparse-categorical-crossentropy");
  add_metrics_option(command, a.metrics);
  add_between(command, "--label-smoothing", a.label_smoothing, 0.0, 1.0,
              "Fraction of the label that is spread over all classes, 0 to 1")
      ->default_str("0");
  command.add_option("--class-weights", a.class_weights,
                     "Weight of each class in the training loss: W0,W1,..., or auto, with which "
                     "all classes count the same (reads every record once before the training, "
                     "each rank its part) (default: none)");
  add_between(command, "--mixup", a.mixup, 0.0, 4.0,
              "Mix each sample with another one of the epoch, with a weight drawn from Beta(A, A), "
              "0 < A <= 4, such as 0.2. The loss uses both labels, the accuracy only the sample's "
              "own. 0 disables mixup")
      ->default_str("0");
  add_precision_option(command, a.trainer.precision);
  add_parsed(command, "--loss-scale", a.trainer.loss_scaling, strategy::parse_loss_scaling, "auto",
             "Factor that the loss is multiplied by before the backward pass and the gradient is "
             "divided by after it: none, a number, dynamic (the largest that does not overflow), "
             "or auto (dynamic for float16, none otherwise)");
  command.add_flag(
      "--tf32", a.trainer.tf32,
      "Allow TF32 on GPUs: float32 products round their operands to a 10-bit mantissa, "
      "which is faster");
  command.add_flag(
      "--deterministic", a.trainer.deterministic,
      "Use only GPU algorithms that give the same bits in every run; the CPU always does");
  add_parsed(
      command, "--fused-statistics", a.trainer.fused_statistics,
      [](std::string_view name) { return kFusedStatistics.parse("fused-statistics", name); },
      "measure",
      "On GPUs in 16 bits, whether a convolution also sums its output for the normalization after "
      "it: never, or measure (where that is faster; tried once per shape, and stored)");
  add_parsed(
      command, "--convolutions", a.trainer.convolutions,
      [](std::string_view name) { return kConvolutions.parse("convolutions", name); }, "auto",
      "On GPUs, the interface of cuDNN that computes convolutions: graph (its graph API), legacy, "
      "or auto (the faster one for each shape; tried once, and stored)");
  add_parsed(
      command, "--recompute", a.trainer.recompute, model::parse_recompute, "none",
      "Activations to compute again in the backward pass, which saves memory and takes time: none, "
      "or blocks (keep only those between blocks of a transformer, or parts of another network)");
  command
      .add_flag("--graph,!--no-graph", a.trainer.records_steps,
                "Record the training step as a CUDA graph and replay it. Steps with micro-batches "
                "are not recorded")
      ->default_str("true");
  add_seed(command, a.trainer.seed,
           "Seed of all randomness: initial weights, dropout, the order of records");
}

void add_run_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Data");
  command
      .add_option("--validation-data", a.validation_data,
                  "Data to evaluate after each epoch, in the same forms as --data")
      ->group(kCommonOptions);
  command
      .add_option("--features", a.data.open.features,
                  "JSON file that describes the features of a csv: table: numbers, dates, buckets, "
                  "words, hashed and crossed columns (docs/data.md). Stored in checkpoints")
      ->type_name("FILE.json");
  command.add_flag("--shuffle,!--no-shuffle", a.shuffle, "Shuffle the records in each epoch")
      ->default_str("true");
  add_parsed(
      command, "--shard-policy", a.shard_policy, data::parse_shard_policy, "auto",
      "How records are distributed over ranks: auto (evenly, independent of the files; each record "
      "is seen once, in an order that does not depend on the number of ranks), file (whole files, "
      "round-robin), data (equal slices of each batch), off (every rank reads all records)");
  add_parsed(
      command, "--bad-records", a.data.bad_records, parse_bad_records, "fail",
      "What to do about records of --data that cannot be read: fail at the first one, or skip:N to "
      "tolerate up to N. A skipped record is replaced by the next one, each affected file is "
      "reported, and a truncated file is used up to the point where it ends");
  command.option_defaults()->group("Training");
  a.fit.epochs = 0;  // until it is known whether --steps is given
  add_at_least(command, "--epochs", a.fit.epochs, 1,
               "Number of passes over the data; 1 unless --steps is given")
      ->group(kCommonOptions);
  add_at_least(
      command, "--steps", a.fit.steps, 1,
      "Maximum number of steps; with --epochs, training ends at whichever limit is reached first");
  add_at_least(command, "--accumulate", a.trainer.accumulate, 1,
               "Micro-batches per step on each replica. Batch normalization uses the statistics of "
               "each micro-batch; no other result depends on this number")
      ->default_str("1");
  add_parsed(command, "--bn", a.trainer.normalization, strategy::parse_normalization_scope, "local",
             "Scope of the batch-normalization statistics: local (each replica), sync (all "
             "replicas), or group:K (groups of K consecutive replicas)");
  command
      .add_option(
          "--clip-norm", a.trainer.clip_norm,
          "Maximum norm of the gradient over all parameters and replicas; 0 disables clipping")
      ->capture_default_str();
}

/// `parse` for an option that an empty text leaves out, as in a file of --print-config.
template <typename Parse>
auto unless_empty(Parse parse) {
  return [parse](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(parse(text));
  };
}

void add_control_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Training");
  add_at_least(command, "--validate-every", a.fit.validate_every, 0,
               "Number of steps between validations within epochs, in addition to that at the end "
               "of each epoch; 0 disables them")
      ->default_str("0");
  add_parsed(command, "--early-stop", a.early_stopping,
             unless_empty(strategy::parse_early_stopping),
             "End the training when a metric has not improved by more than min_delta (default 0) "
             "for patience (default 3) epochs, or validations with --validate-every: "
             "METRIC[:patience=N,min_delta=X], such as validation_loss:patience=5; METRIC:max or "
             "METRIC:min sets the better direction (default: none)")
      ->type_name("METRIC");
  add_parsed(command, "--reduce-on-plateau", a.plateau, unless_empty(strategy::parse_plateau),
             "Multiply the learning rate by factor (default 0.1) when a metric has not improved "
             "for patience (default 3) epochs: METRIC[:KEY=VALUE,...], such as "
             "validation_loss:factor=0.5,patience=2. Further keys: min_delta, as for --early-stop; "
             "cooldown, the number of epochs after a reduction that do not count (default 0); "
             "min_lr, the lower bound of a reduced rate (default 0) (default: none)")
      ->type_name("METRIC");
}

void add_communication_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Replicas");
  add_parsed(
      command, "--comm-dtype", a.trainer.buckets.wire, allreduce::parse_wire_type, "float32",
      "Data type in which gradients are exchanged between replicas: float32, bfloat16 or float16");
  command
      .add_option_function<std::string>(
          "--bucket-mib", [&a](const std::string& text) { set_bucket_size(a.trainer, text); },
          "Size of a gradient bucket in MiB. When ranks are on different nodes, each bucket is "
          "reduced as a unit, overlapped with the backward pass; the first bucket has at most 1 "
          "MiB. auto tries six sizes in the first 90 steps and keeps the fastest")
      ->default_str("25");
  add_at_least(command, "--check-replicas", a.fit.check_replicas, 0,
               "Number of steps between checks that all replicas have the same parameters, "
               "optimizer slots and, with --bn sync, moving statistics; 0 checks only at "
               "checkpoints")
      ->default_str(std::to_string(a.fit.check_replicas));
}

/// The groups of "a/*:lr=0.1,decay=0,b/*:lr=0.2": a part with a colon begins the next one.
void add_groups(std::vector<strategy::ParameterGroup>& groups, const std::string& text) {
  const auto refuse_group = [&] {
    refuse_arguments("expected --group PATTERN:lr=X,decay=Y, or one of the two",
                     fmt::format("got \"{}\"", text));
  };
  std::string_view rest = text;
  bool is_first = true;
  while (is_first || !rest.empty()) {
    std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (const std::size_t colon = part.rfind(':'); colon != std::string_view::npos) {
      groups.push_back({.pattern = std::string(part.substr(0, colon))});
      part.remove_prefix(colon + 1);
    } else if (is_first) {
      refuse_group();
    }
    is_first = false;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse_group();
    const std::optional<float> value = parse_number<float>(part.substr(equals + 1));
    const std::string_view key = part.substr(0, equals);
    if (!value || (key != "lr" && key != "decay")) refuse_group();
    (key == "lr" ? groups.back().learning_rate : groups.back().weight_decay) = value;
  }
}

void add_optimizer_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Optimizer");
  OptimizerArguments& optimizer = a.optimizer;
  auto& given = optimizer.hyperparameters;
  add_parsed(command, "--optimizer", optimizer.kind, parse_optimizer, "adam",
             "Optimizer: " + list_optimizers(model::all_optimizers(), " or "));
  add_between(command, "--learning-rate,--lr", a.trainer.schedule.peak, 0.0F, {},
              "Peak learning rate, before --lr-scaling")
      ->default_str(fmt::format("{}", a.trainer.schedule.peak))
      ->group(kCommonOptions);
  add_between(command, "--momentum", given["momentum"], 0.0F, 1.0F,
              "Momentum of " + list_defaults("momentum"));
  command.add_flag("--nesterov", optimizer.nesterov, "Use Nesterov momentum, for sgd");
  add_between(
      command, "--beta1", given["beta1"], 0.0F, 1.0F,
      "Decay rate of the first moment, for " + list_optimizers(optimizers_with("beta1"), " and "))
      ->default_str("0.9");
  add_between(
      command, "--beta2", given["beta2"], 0.0F, 1.0F,
      "Decay rate of the second moment, for " + list_optimizers(optimizers_with("beta2"), " and "))
      ->default_str("0.999");
  add_between(command, "--rho", given["rho"], 0.0F, 1.0F,
              "Decay rate of the mean square of the gradient, for " + list_defaults("rho"));
  command.add_option(
      "--initial-accumulator", given["initial_accumulator"],
      "Initial sum of squared gradients, for " + list_defaults("initial_accumulator"));
  command.add_option(
      "--epsilon", given["epsilon"],
      "Term added to a denominator, which is the norm that divides a layer's "
      "learning rate for lars, and the square root of the second moment or of the sum "
      "of squares for the others: " +
          list_defaults("epsilon"));
  command.add_option("--trust-coefficient", given["trust_coefficient"],
                     "Update size of a layer as a fraction of its weight norm at learning rate 1, "
                     "for " +
                         list_defaults("trust_coefficient"));
  add_between(
      command, "--weight-decay", given["weight_decay"], 0.0F, {},
      "Weight decay of all parameters except biases and normalization, decoupled for adamw and "
      "lamb, L2 for the others: " +
          list_defaults("weight_decay"));
  command
      .add_option("--ema", a.trainer.ema,
                  "Decay per update of an exponential moving average of the parameters, such as "
                  "0.999. Validation, evaluate and predict use the average; 0 disables it")
      ->capture_default_str();
  command
      .add_option_function<std::vector<std::string>>(
          "--group",
          [&groups = a.trainer.groups](const std::vector<std::string>& texts) {
            groups.clear();
            for (const std::string& text : texts) add_groups(groups, text);
          },
          "Parameters with their own peak learning rate or weight decay, such as "
          "'fc/*:lr=0.1,decay=0'. May be given several times; of several patterns that match, the "
          "last one counts (default: none)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void add_schedule_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Learning rate");
  model::Schedule& schedule = a.trainer.schedule;
  add_parsed(command, "--lr-schedule", schedule.kind, model::parse_schedule, "constant",
             "Learning-rate schedule: constant, cosine, step, linear, polynomial, exponential, "
             "inverse-sqrt or one-cycle");
  add_at_least(command, "--warmup-steps", schedule.warmup_steps, 0,
               "Number of steps over which the learning rate rises to its peak; for "
               "--lr-schedule one-cycle, 0 means 30 % of the steps")
      ->default_str("0");
  command
      .add_option(
          "--lr-final", schedule.final_fraction,
          "Final learning rate as a fraction of the peak, for --lr-schedule cosine, linear and "
          "polynomial")
      ->capture_default_str();
  command
      .add_option("--lr-step-every", schedule.step_every,
                  "Number of steps between reductions of the learning rate; required by "
                  "--lr-schedule step and exponential")
      ->capture_default_str();
  command
      .add_option("--lr-step-factor", schedule.step_factor,
                  "Factor of each reduction of the learning rate, for --lr-schedule step (at once) "
                  "and exponential (smoothly over --lr-step-every steps)")
      ->capture_default_str();
  command
      .add_option("--lr-power", schedule.power, "Exponent of --lr-schedule polynomial; 1 is linear")
      ->capture_default_str();
  add_parsed(command, "--lr-scaling", a.trainer.rate_scaling, strategy::parse_rate_scaling, "none",
             "How the learning rate scales with --global-batch: none, linear or sqrt");
  command
      .add_option("--lr-base-batch", a.trainer.base_batch,
                  "Global batch size that --learning-rate refers to; required by --lr-scaling "
                  "linear and sqrt")
      ->capture_default_str();
}

/// Throws Error (input), which for a directory names the option that takes it.
checkpoint::Resume parse_resume_option(const std::string& text) try {
  return checkpoint::parse_resume(text);
} catch (const Error&) {
  std::error_code unreadable;
  if (text.find('/') == std::string::npos && !std::filesystem::is_directory(text, unreadable))
    throw;
  refuse_arguments(
      "expected --resume auto, never or require (--checkpoint-dir names the directory)",
      fmt::format("got \"{}\"", text));
}

void add_keeping_options(CLI::App& command, TrainArguments& a) {
  command.option_defaults()->group("Checkpoints and summaries");
  strategy::CheckpointPlan& checkpoint = a.fit.checkpoint;
  command
      .add_option("--checkpoint-dir", checkpoint.directory,
                  "Directory to write checkpoints to and to resume from; none saves nothing "
                  "(default: a new directory runs/NETWORK-N)")
      ->type_name("DIR")
      ->group(kCommonOptions);
  add_at_least(command, "--save-every", checkpoint.save_every, 0,
               "Number of steps between checkpoints; 0 saves at the end of each epoch if "
               "--checkpoint-dir is given. The last step and the best validation (--keep-best) are "
               "always saved")
      ->default_str("0");
  add_at_least(command, "--keep", checkpoint.keep, 1, "Number of healthy checkpoints to keep")
      ->default_str(std::to_string(checkpoint.keep));
  command
      .add_option("--keep-best", a.keep_best,
                  "Save a checkpoint after each epoch, or validation, in which a metric is the "
                  "best so far, and keep the best one in addition to the newest: METRIC, such as "
                  "validation_accuracy, METRIC:max, METRIC:min, or none. DIR:best names it in "
                  "other commands (default: with --validation-data the metric of --early-stop, "
                  "or validation_accuracy, or validation_loss)")
      ->type_name("METRIC");
  add_parsed(command, "--resume", checkpoint.resume, parse_resume_option, "auto",
             "Resume from the newest checkpoint: auto (if there is one), never, or require (fail "
             "without one)");
  command.add_flag("--overwrite", checkpoint.overwrite,
                   "With --resume never, replace the checkpoints that the directory has; without "
                   "it they are an error");
  add_parsed(command, "--verify-checkpoint", checkpoint.verify, checkpoint::parse_verify_checkpoint,
             "auto",
             "How ranks other than 0 verify at each save that their replicas match: full (each "
             "rank writes its own checkpoint to TMPDIR or /tmp of its node, compares it and "
             "removes it), hash (each rank compares hashes and writes nothing), none, or auto "
             "(full up to 256 MB per rank, hash above)");
  command
      .add_option("--summary-dir", a.summary_dir,
                  "Directory for TensorBoard event files, which rank 0 writes (default: none)")
      ->type_name("DIR");
  add_at_least(command, "--histograms", a.summaries.histogram_every, 0,
               "With --summary-dir, number of steps between histograms of the weights and "
               "gradients; 0 writes none")
      ->default_str("0");
  add_at_least(command, "--prediction-images", a.fit.prediction_images, 0,
               "With --summary-dir, number of validation images (at most 1000) to show with the "
               "predicted classes after each validation; 0 shows none")
      ->default_str("0");
  command
      .add_option(
          "--csv-log", a.csv_log,
          "CSV file with a row of all metrics per epoch. Rank 0 writes it; a run that resumes "
          "continues it (default: none)")
      ->type_name("FILE");
  add_parsed(command, "--metrics-port", a.exporter.address,
             unless_empty(strategy::parse_metrics_address),
             "Port or address, such as 0.0.0.0:9400, where rank 0 serves metrics for Prometheus at "
             "/metrics. A port alone is of 127.0.0.1; 0 is any free one, which is printed "
             "(default: none)")
      ->type_name("PORT")
      ->group("Output");
  command
      .add_option("--metrics-file", a.exporter.file,
                  "File for the same metrics as OpenMetrics text, which rank 0 replaces every 5 "
                  "seconds (default: none)")
      ->type_name("FILE")
      ->group("Output");
  add_at_least(command, "--log-every", a.log_every, 0,
               "Number of steps between progress reports; 0 disables them")
      ->default_str(std::to_string(a.log_every))
      ->group("Output");
  command
      .add_option("--profile", a.fit.profile,
                  "File for the time of each layer, of the loss, the reduction and the update, as "
                  "JSON lines: medians of rank 0 after 5 steps, beside the bytes and FLOP that "
                  "each needs. Timed steps are not recorded (--graph) (default: none)")
      ->type_name("FILE")
      ->group("Output");
  add_parsed(command, "--trace", a.fit.trace, strategy::parse_trace,
             "File for what the threads of all ranks do, on one clock, to be opened in "
             "https://ui.perfetto.dev; FILE.json for Chrome's format. Of the steps from FIRST to "
             "LAST (default: none; without steps, until the file has 1,000,000 events per rank)")
      ->type_name("FILE[:steps=FIRST-LAST]")
      ->group("Output");
}

/// Throws Error (input) for a hyperparameter that the optimizer does not have.
model::OptimizerOptions optimizer_options(const OptimizerArguments& a) {
  // Accepted with every optimizer: no momentum, and what --print-config writes.
  const std::map<std::string_view, float> harmless = {
      {"momentum", 0.0F}, {"beta1", model::Adam{}.beta1}, {"beta2", model::Adam{}.beta2}};
  model::OptimizerOptions options = a.kind;
  const std::string given = fmt::format("got {}", model::name_of(options));
  for (const auto& [name, value] : a.hyperparameters) {
    if (!value) continue;
    if (float* const found = model::find_hyperparameter(options, name)) {
      *found = *value;
    } else if (const auto allowed = harmless.find(name);
               allowed == harmless.end() || allowed->second != *value) {
      std::string option = "--" + name;
      std::ranges::replace(option, '_', '-');
      refuse_arguments(fmt::format("expected --optimizer {} with {}",
                                   list_optimizers(optimizers_with(name), " or "), option),
                       given);
    }
  }
  auto* const sgd = std::get_if<model::Sgd>(&options);
  if (a.nesterov && sgd == nullptr)
    refuse_arguments("expected --optimizer sgd with --nesterov", given);
  if (sgd != nullptr) sgd->nesterov = a.nesterov;
  return options;
}

/// Throws Error (input) for options of a learning-rate schedule that is not selected.
void check_schedule_options(const strategy::TrainerOptions& trainer) {
  using Kind = model::Schedule::Kind;
  const model::Schedule& schedule = trainer.schedule;
  const model::Schedule defaults;
  const std::string given = fmt::format("got {}", to_string(schedule.kind));
  if (schedule.final_fraction != defaults.final_fraction && schedule.kind != Kind::cosine &&
      schedule.kind != Kind::linear && schedule.kind != Kind::polynomial)
    refuse_arguments("expected --lr-schedule cosine, linear or polynomial with --lr-final", given);
  if (schedule.power != defaults.power && schedule.kind != Kind::polynomial)
    refuse_arguments("expected --lr-schedule polynomial with --lr-power", given);
  if (schedule.kind != Kind::step && schedule.kind != Kind::exponential &&
      (schedule.step_every != defaults.step_every || schedule.step_factor != defaults.step_factor))
    refuse_arguments(
        "expected --lr-schedule step or exponential with --lr-step-every or --lr-step-factor",
        given);
  if (trainer.base_batch != strategy::TrainerOptions{}.base_batch &&
      trainer.rate_scaling == strategy::RateScaling::none)
    refuse_arguments("expected --lr-scaling linear or sqrt with --lr-base-batch", "got none");
}

/// Sets the directory of checkpoints and the metric of the best one. Throws Error (input) for
/// options of checkpoints if there is no directory for them.
void complete_checkpoint_options(TrainArguments& a) {
  strategy::CheckpointPlan& checkpoint = a.fit.checkpoint;
  const bool saves = checkpoint.directory != "none";
  if (!saves) checkpoint.directory.clear();
  a.chooses_directory = saves && checkpoint.directory.empty();
  if (a.keep_best != "none")
    checkpoint.keep_best = unless_empty(strategy::parse_keep_best)(a.keep_best);
  if (checkpoint.overwrite && checkpoint.resume != checkpoint::Resume::never)
    refuse_arguments("expected --resume never with --overwrite",
                     fmt::format("got {}", to_string(checkpoint.resume)));
  if (!checkpoint.directory.empty()) return;
  const strategy::CheckpointPlan defaults;
  const char* const option = checkpoint.resume == checkpoint::Resume::must  ? "--resume require"
                             : checkpoint.overwrite                         ? "--overwrite"
                             : saves                                        ? nullptr
                             : checkpoint.save_every != defaults.save_every ? "--save-every"
                             : checkpoint.keep != defaults.keep             ? "--keep"
                             : checkpoint.keep_best                         ? "--keep-best"
                                                                            : nullptr;
  if (option != nullptr)
    refuse_arguments(fmt::format("expected --checkpoint-dir DIR with {}", option),
                     saves ? "it was not given" : "got none");
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& a, const char* quiet) {
  add_model_options(command, a);
  add_data_options(command, a.data);
  add_run_options(command, a);
  add_control_options(command, a);
  add_place_options(command, a.place);
  add_communication_options(command, a);
  add_optimizer_options(command, a);
  add_schedule_options(command, a);
  add_keeping_options(command, a);
  add_output_options(command, a.output, quiet);
  command
      .add_flag("--verbose", a.verbose,
                "Also print where replicas are, what each rank reads, why the all-reduce was "
                "chosen, and how much of each epoch was waiting")
      ->group("Output");
}

void complete(TrainArguments& a) {
  require_given("--model NAME or --model FILE.json", a.model);
  require_given("--data", a.data.data);
  check_schedule_options(a.trainer);
  complete_checkpoint_options(a);
  set_label_smoothing(a.loss, a.label_smoothing);
  a.trainer.loss = a.loss.loss;
  a.trainer.losses = a.loss.losses;
  a.trainer.class_weights = class_weights_of(a.class_weights);
  if (a.fit.profile == "-")
    refuse_arguments("expected --profile FILE, such as /dev/stderr for the screen", "got \"-\"");
  if (a.exporter.file == "-")
    refuse_arguments("expected --metrics-file FILE, such as lockstep.prom", "got \"-\"");
  if (a.fit.validate_every > 0 && a.validation_data.empty())
    refuse_arguments("expected --validation-data with --validate-every", "it was not given");
  if (const char* const option = a.summaries.histogram_every > 0 ? "--histograms"
                                 : a.fit.prediction_images > 0   ? "--prediction-images"
                                                                 : nullptr;
      option != nullptr && a.summary_dir.empty())
    refuse_arguments(fmt::format("expected --summary-dir with {}", option), "it was not given");
  if (is_onnx(a.model) && a.pretrained.path.empty()) a.pretrained.path = a.model;
  if (const char* const option = a.pretrained.reset_head     ? "--reset-head"
                                 : a.pretrained.partial      ? "--partial"
                                 : !a.pretrained.map.empty() ? "--map"
                                                             : nullptr;
      option != nullptr && a.pretrained.path.empty())
    refuse_arguments(fmt::format("expected --init-from with {}", option), "it was not given");
  a.trainer.optimizer = optimizer_options(a.optimizer);
  if (a.fit.epochs == 0 && a.fit.steps == 0) a.fit.epochs = 1;
  a.fit.prefetch = a.data.prefetch;
  a.fit.data_threads = a.data.threads;
  a.fit.signals = {SIGTERM, SIGINT, SIGHUP};
  if (!a.pretrained.path.empty()) a.fit.pretrained = a.pretrained;
}

}  // namespace lockstep::apps
