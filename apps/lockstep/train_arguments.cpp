#include "apps/lockstep/train_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "apps/lockstep/model_source.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::apps {
namespace {

constexpr double kMebibyte = 1 << 20;

void add_model_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Model";
  const auto names = zoo::names();
  command
      .add_option(
          "--model", a.model,
          fmt::format("{}; mlp:10,10 for hidden layers of these sizes; or FILE.json with a description of layers",
                      list_names(names)))
      ->group(group);
  command
      .add_option("--init-from", a.init_from,
                  "Initial weights: a safetensors file with torchvision's names or Lockstep's, a checkpoint, or a "
                  "directory of checkpoints. A checkpoint to resume from comes first")
      ->group(group);
  command
      .add_flag("--reset-head", a.reset_head,
                "Leave out the last layer with parameters, for --init-from: so other classes fit")
      ->group(group);
  command.add_option("--loss", a.loss, "sparse-categorical-crossentropy or mean-squared-error")
      ->capture_default_str()
      ->group(group);
  command.add_option("--label-smoothing", a.label_smoothing, "Share of the label that goes to all classes, 0 to 1")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--mixup", a.mixup,
          "Mix each sample with another of its epoch, by a weight from Beta(A, A), 0 < A <= 4, such as 0.2; both "
          "labels count in the loss, the own one in the accuracy. 0 for none")
      ->capture_default_str()
      ->group(group);
  command.add_option("--precision", a.precision, kPrecisionHelp)->capture_default_str()->group(group);
  command
      .add_option("--loss-scale", a.loss_scale,
                  "What the loss is multiplied by before backward, and the gradient divided by after it: none, a "
                  "number, dynamic (as large as fits), or auto: dynamic for float16, none otherwise")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--tf32", a.tf32, "Let GPUs round what they multiply in float32 to 10 bits, which is faster")
      ->group(group);
  command
      .add_flag("--deterministic", a.deterministic,
                "Take only algorithms of a GPU that give the same bits in every run; the CPU always does")
      ->group(group);
  command
      .add_flag("--graph,!--no-graph", a.graph,
                "Record the step of a GPU once and repeat it (CUDA graphs), where it has no micro-batches")
      ->default_str("true")
      ->group(group);
  command.add_option("--seed", a.seed, "The only source of randomness: initial weights, dropout, the order of records")
      ->capture_default_str()
      ->group(group);
}

void add_run_options(CLI::App& command, TrainArguments& a) {
  command.add_option("--validation-data", a.validation_data, "Data evaluated after each epoch; written as --data")
      ->group("Data");
  command.add_flag("--shuffle,!--no-shuffle", a.shuffle, "Visit the records of each epoch in another order")
      ->default_str("true")
      ->group("Data");
  command
      .add_option(
          "--shard-policy", a.shard_policy,
          "How records are dealt to ranks: auto (evenly, whatever the files; each is seen once, in an order that "
          "does not depend on the ranks), file (whole files, in turn), data (equal slices of each batch), off "
          "(all records to each rank)")
      ->capture_default_str()
      ->group("Data");
  command
      .add_option("--bad-records", a.data.bad_records,
                  "Records of --data that cannot be read: fail at the first, or skip:N, replace up to N of them by the "
                  "records that follow them and tell of each file; a file that is cut off is used up to there then")
      ->capture_default_str()
      ->group("Data");
  const char* group = "Training";
  command.add_option("--epochs", a.epochs, "Passes over the data; 1 unless --steps is given")->group(group);
  command.add_option("--steps", a.steps, "Steps at most; the first of both limits counts")->group(group);
  command
      .add_option(
          "--accumulate", a.accumulate,
          "Micro-batches of a step on each replica; batch normalization is of each, no other result depends on it")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--bn", a.bn,
                  "Whose samples batch normalization takes together: local, each replica's own; sync, those of all "
                  "replicas; group:K, those of K replicas that follow each other")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--clip-norm", a.clip_norm,
                  "Largest norm of the gradient of a step, over all parameters and replicas; 0 for no clipping")
      ->capture_default_str()
      ->group(group);
}

void add_communication_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Replicas";
  command
      .add_option("--comm-dtype", a.comm_dtype,
                  "What gradients travel as between replicas: float32, bfloat16 or float16")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--bucket-mib", a.bucket_mib,
          "MiB of gradients that are reduced together, beside backward, where a wire lies between replicas (the "
          "first bucket has at most 1), or auto: the best of six sizes, tried in the first 90 steps")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--check-replicas", a.check_replicas,
          "Steps between checks that all replicas hold the same parameters and optimizer slots; 0 for checks at "
          "checkpoints only")
      ->capture_default_str()
      ->group(group);
}

void add_optimizer_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Optimizer";
  command.add_option("--optimizer", a.optimizer, "sgd, adam, adamw, lars or lamb")->capture_default_str()->group(group);
  command.add_option("--learning-rate", a.learning_rate, "Rate after warm-up, before scaling")
      ->capture_default_str()
      ->group(group);
  command.add_option("--momentum", a.momentum, "Of sgd (0) and lars (0.9)")->group(group);
  command.add_flag("--nesterov", a.nesterov, "Nesterov's momentum, for sgd")->group(group);
  command.add_option("--beta1", a.beta1, "Decay of the first moment, for adam, adamw and lamb")
      ->capture_default_str()
      ->group(group);
  command.add_option("--beta2", a.beta2, "Decay of the second moment, for adam, adamw and lamb")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--epsilon", a.epsilon,
                  "Added to the root of the second moment, for adam and adamw (1e-7) and lamb (1e-6), or to the norms "
                  "that a layer's rate is divided by, for lars (1e-9)")
      ->group(group);
  command
      .add_option("--trust-coefficient", a.trust_coefficient,
                  "How far a layer may move in a step of rate 1, as a share of its norm, for lars (0.001)")
      ->group(group);
  command
      .add_option("--weight-decay", a.weight_decay,
                  "Decay of all parameters but biases and normalization: decoupled for adamw and lamb (0.01), L2 for "
                  "sgd and adam (0) and lars (0.0005)")
      ->group(group);
}

void add_schedule_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Learning rate";
  command.add_option("--lr-schedule", a.lr_schedule, "constant, cosine, step or linear")
      ->capture_default_str()
      ->group(group);
  command.add_option("--warmup-steps", a.warmup_steps, "Steps over which the rate grows to its full value")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-final", a.lr_final, "Share of the rate that is left at the last step, for cosine and linear")
      ->capture_default_str()
      ->group(group);
  command.add_option("--lr-step-every", a.lr_step_every, "Steps between drops, for step")
      ->capture_default_str()
      ->group(group);
  command.add_option("--lr-step-factor", a.lr_step_factor, "Factor of a drop, for step")
      ->capture_default_str()
      ->group(group);
  command.add_option("--lr-scaling", a.lr_scaling, "How the rate follows --global-batch: none, linear or sqrt")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-base-batch", a.lr_base_batch,
                  "Global batch that --learning-rate is meant for, for --lr-scaling")
      ->capture_default_str()
      ->group(group);
}

void add_keeping_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Checkpoints and summaries";
  command.add_option("--checkpoint-dir", a.checkpoint_dir, "Directory of checkpoints")->group(group);
  command
      .add_option("--save-every", a.save_every,
                  "Steps between checkpoints; 0 for the end of each epoch. The last step is always saved")
      ->capture_default_str()
      ->group(group);
  command.add_option("--keep", a.keep, "Number of healthy checkpoints to keep")->capture_default_str()->group(group);
  command
      .add_option("--resume", a.resume, "Go on from the newest checkpoint: auto (if there is one), never, or require")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--verify-checkpoint", a.verify_checkpoint,
          "How ranks other than 0 show at each save that their replicas are the same: full (each writes its own "
          "checkpoint to TMPDIR or /tmp of its node, compares and removes it), hash (each compares hashes and "
          "writes nothing), none, or auto: full up to 256 MB a rank, hash above")
      ->capture_default_str()
      ->group(group);
  command.add_option("--summary-dir", a.summary_dir, "Directory of event files for TensorBoard, written by the chief")
      ->group(group);
  command.add_option("--log-every", a.log_every, "Steps between reports; 0 for none")
      ->capture_default_str()
      ->group("Output");
}

[[noreturn]] void refuse(std::string_view needed, std::string_view given) {
  throw Error(ErrorCategory::input, "command line", needed, given);
}

void check_between(const char* option, double value, double least, double most) {
  if (value < least || value > most)
    refuse(fmt::format("{} needs a number from {} to {}", option, least, most), fmt::format("got {}", value));
}

std::size_t bucket_bytes(const std::string& mebibytes) {
  double value = 0;
  const auto [end, error] = std::from_chars(mebibytes.data(), mebibytes.data() + mebibytes.size(), value);
  if (error != std::errc{} || end != mebibytes.data() + mebibytes.size() || !(value > 0 && value <= kMebibyte))
    refuse("--bucket-mib needs a number above 0, or auto", fmt::format("got \"{}\"", mebibytes));
  return static_cast<std::size_t>(value * kMebibyte);
}

float narrow(double value) { return static_cast<float>(value); }

template <typename AdamLike>
AdamLike adam_options(const TrainArguments& a) {
  AdamLike options;
  options.beta1 = narrow(a.beta1);
  options.beta2 = narrow(a.beta2);
  if (a.epsilon) options.epsilon = narrow(*a.epsilon);
  if (a.weight_decay >= 0) options.weight_decay = narrow(a.weight_decay);
  return options;
}

model::Sgd sgd_options(const TrainArguments& a) {
  return {narrow(a.momentum.value_or(0)), a.nesterov, narrow(std::max(0.0, a.weight_decay))};
}

model::Lars lars_options(const TrainArguments& a) {
  model::Lars options;
  if (a.momentum) options.momentum = narrow(*a.momentum);
  if (a.epsilon) options.epsilon = narrow(*a.epsilon);
  if (a.trust_coefficient) options.trust_coefficient = narrow(*a.trust_coefficient);
  if (a.weight_decay >= 0) options.weight_decay = narrow(a.weight_decay);
  return options;
}

void check_optimizer_options(const TrainArguments& a) {
  const std::string given = fmt::format("got {}", a.optimizer);
  const bool lars = a.optimizer == "lars";
  if (a.momentum.value_or(0) != 0 && a.optimizer != "sgd" && !lars)
    refuse("--momentum needs --optimizer sgd or lars", given);
  if (a.nesterov && a.optimizer != "sgd") refuse("--nesterov needs --optimizer sgd", given);
  if (a.trust_coefficient && !lars) refuse("--trust-coefficient needs --optimizer lars", given);
}

model::OptimizerOptions optimizer_options(const TrainArguments& a) {
  constexpr std::array<std::string_view, 5> kNames{"sgd", "adam", "adamw", "lars", "lamb"};
  if (std::ranges::find(kNames, a.optimizer) == kNames.end())
    refuse(fmt::format("--optimizer needs one of {}", list_names(kNames)), got_name(a.optimizer, kNames));
  check_optimizer_options(a);
  if (a.optimizer == "sgd") return sgd_options(a);
  if (a.optimizer == "adam") return adam_options<model::Adam>(a);
  if (a.optimizer == "adamw") return adam_options<model::AdamW>(a);
  if (a.optimizer == "lars") return lars_options(a);
  return adam_options<model::Lamb>(a);
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& a) {
  add_model_options(command, a);
  add_data_options(command, a.data);
  add_run_options(command, a);
  add_place_options(command, a.place);
  add_communication_options(command, a);
  add_optimizer_options(command, a);
  add_schedule_options(command, a);
  add_keeping_options(command, a);
  add_output_options(command, a.output);
}

void check_arguments(const TrainArguments& a) {
  if (a.model.empty()) refuse("needed --model NAME or --model FILE.json", "it was not given");
  if (a.data.data.empty()) refuse("needed --data", "it was not given");
  (void)data::parse_shard_policy(a.shard_policy);
  (void)parse_bad_records(a.data.bad_records);
  require_at_least("--global-batch", a.data.global_batch, 1);
  require_at_least("--data-threads", a.data.threads, 1);
  require_at_least("--prefetch", a.data.prefetch, 1);
  require_at_least("--classes", a.data.classes, 0);
  require_at_least("--epochs", a.epochs, 0);
  require_at_least("--steps", a.steps, 0);
  require_at_least("--accumulate", a.accumulate, 1);
  require_at_least("--save-every", a.save_every, 0);
  require_at_least("--keep", a.keep, 1);
  require_at_least("--log-every", a.log_every, 0);
  require_at_least("--check-replicas", a.check_replicas, 0);
  check_between("--label-smoothing", a.label_smoothing, 0, 1);
  check_between("--mixup", a.mixup, 0, 4);
  check_between("--beta1", a.beta1, 0, 1);
  check_between("--beta2", a.beta2, 0, 1);
  if (a.momentum) check_between("--momentum", *a.momentum, 0, 1);
  const checkpoint::Resume resume = checkpoint::parse_resume(a.resume);
  if (a.checkpoint_dir.empty() && resume == checkpoint::Resume::must)
    refuse("--resume require needs --checkpoint-dir", "it was not given");
  (void)checkpoint::parse_verify_checkpoint(a.verify_checkpoint);
  if (a.reset_head && a.init_from.empty()) refuse("--reset-head needs --init-from", "it was not given");
  (void)trainer_options(a);
}

strategy::TrainerOptions trainer_options(const TrainArguments& a) {
  strategy::TrainerOptions options;
  options.loss = parse_loss(a.loss, a.label_smoothing);
  options.optimizer = optimizer_options(a);
  options.schedule = {.kind = model::parse_schedule(a.lr_schedule),
                      .peak = static_cast<float>(a.learning_rate),
                      .warmup_steps = a.warmup_steps,
                      .total_steps = 0,
                      .final_fraction = static_cast<float>(a.lr_final),
                      .step_every = a.lr_step_every,
                      .step_factor = static_cast<float>(a.lr_step_factor)};
  options.rate_scaling = strategy::parse_rate_scaling(a.lr_scaling);
  options.base_batch = a.lr_base_batch;
  options.clip_norm = a.clip_norm;
  options.accumulate = a.accumulate;
  options.tf32 = a.tf32;
  options.deterministic = a.deterministic;
  options.records_steps = a.graph;
  options.normalization = strategy::parse_normalization_scope(a.bn);
  options.precision = model::parse_precision(a.precision);
  options.loss_scaling = strategy::parse_loss_scaling(a.loss_scale);
  options.seed = a.seed;
  options.tune_buckets = a.bucket_mib == "auto";
  if (!options.tune_buckets) options.buckets.bytes = bucket_bytes(a.bucket_mib);
  options.buckets.first_bytes = std::min(options.buckets.first_bytes, options.buckets.bytes);
  options.buckets.wire = allreduce::parse_wire_type(a.comm_dtype);
  return options;
}

}  // namespace lockstep::apps
