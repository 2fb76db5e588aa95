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
          fmt::format("Network to train: {}; mlp:10,10 sets the sizes of the hidden layers; FILE.json describes the "
                      "layers",
                      list_names(names)))
      ->group(group);
  command
      .add_option("--init-from", a.init_from,
                  "Initial weights: a safetensors file with the names of torchvision or Lockstep, a checkpoint, or a "
                  "directory of checkpoints. Ignored when the run resumes from a checkpoint")
      ->group(group);
  command
      .add_flag("--reset-head", a.reset_head,
                "With --init-from, do not load the last layer that has parameters, so that the number of classes may "
                "differ")
      ->group(group);
  command.add_option("--loss", a.loss, "Loss function: sparse-categorical-crossentropy or mean-squared-error")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--label-smoothing", a.label_smoothing,
                  "Fraction of the label that is spread over all classes, 0 to 1")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--mixup", a.mixup,
          "Mix each sample with another one of the epoch, with a weight drawn from Beta(A, A), 0 < A <= 4, such as "
          "0.2. The loss uses both labels, the accuracy only the sample's own. 0 disables mixup")
      ->capture_default_str()
      ->group(group);
  command.add_option("--precision", a.precision, kPrecisionHelp)->capture_default_str()->group(group);
  command
      .add_option("--loss-scale", a.loss_scale,
                  "Factor that the loss is multiplied by before the backward pass and the gradient is divided by after "
                  "it: none, a number, dynamic (the largest that does not overflow), or auto (dynamic for float16, "
                  "none otherwise)")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--tf32", a.tf32,
                "Allow TF32 on GPUs: float32 products round their operands to a 10-bit mantissa, which is faster")
      ->group(group);
  command
      .add_flag("--deterministic", a.deterministic,
                "Use only GPU algorithms that give the same bits in every run; the CPU always does")
      ->group(group);
  command
      .add_flag("--graph,!--no-graph", a.graph,
                "Record the training step as a CUDA graph and replay it. Steps with micro-batches are not recorded")
      ->default_str("true")
      ->group(group);
  command.add_option("--seed", a.seed, "Seed of all randomness: initial weights, dropout, the order of records")
      ->capture_default_str()
      ->group(group);
}

void add_run_options(CLI::App& command, TrainArguments& a) {
  command
      .add_option("--validation-data", a.validation_data,
                  "Data to evaluate after each epoch, in the same forms as --data")
      ->group("Data");
  command.add_flag("--shuffle,!--no-shuffle", a.shuffle, "Shuffle the records in each epoch")
      ->default_str("true")
      ->group("Data");
  command
      .add_option(
          "--shard-policy", a.shard_policy,
          "How records are distributed over ranks: auto (evenly, independent of the files; each record is seen once, "
          "in an order that does not depend on the number of ranks), file (whole files, round-robin), data (equal "
          "slices of each batch), off (every rank reads all records)")
      ->capture_default_str()
      ->group("Data");
  command
      .add_option("--bad-records", a.data.bad_records,
                  "What to do about records of --data that cannot be read: fail at the first one, or skip:N to "
                  "tolerate up to N. A skipped record is replaced by the next one, each affected file is reported, and "
                  "a truncated file is used up to the point where it ends")
      ->capture_default_str()
      ->group("Data");
  const char* group = "Training";
  command.add_option("--epochs", a.epochs, "Number of passes over the data; 1 unless --steps is given")->group(group);
  command
      .add_option("--steps", a.steps,
                  "Maximum number of steps; with --epochs, training ends at whichever limit is reached first")
      ->group(group);
  command
      .add_option(
          "--accumulate", a.accumulate,
          "Micro-batches per step on each replica. Batch normalization uses the statistics of each micro-batch; no "
          "other result depends on this number")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--bn", a.bn,
                  "Scope of the batch-normalization statistics: local (each replica), sync (all replicas), or group:K "
                  "(groups of K consecutive replicas)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--clip-norm", a.clip_norm,
                  "Maximum norm of the gradient over all parameters and replicas; 0 disables clipping")
      ->capture_default_str()
      ->group(group);
}

void add_communication_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Replicas";
  command
      .add_option("--comm-dtype", a.comm_dtype,
                  "Data type in which gradients are exchanged between replicas: float32, bfloat16 or float16")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--bucket-mib", a.bucket_mib,
          "Size of a gradient bucket in MiB. When ranks are on different nodes, each bucket is reduced as a unit, "
          "overlapped with the backward pass; the first bucket has at most 1 MiB. auto tries six sizes in the first "
          "90 steps and keeps the fastest")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--check-replicas", a.check_replicas,
          "Number of steps between checks that all replicas have the same parameters and optimizer slots; 0 checks "
          "only at checkpoints")
      ->capture_default_str()
      ->group(group);
}

void add_optimizer_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Optimizer";
  command.add_option("--optimizer", a.optimizer, "Optimizer: sgd, adam, adamw, lars or lamb")
      ->capture_default_str()
      ->group(group);
  command.add_option("--learning-rate", a.learning_rate, "Peak learning rate, before --lr-scaling")
      ->capture_default_str()
      ->group(group);
  command.add_option("--momentum", a.momentum, "Momentum of sgd (default 0) and lars (default 0.9)")->group(group);
  command.add_flag("--nesterov", a.nesterov, "Use Nesterov momentum, for sgd")->group(group);
  command.add_option("--beta1", a.beta1, "Decay rate of the first moment, for adam, adamw and lamb")
      ->capture_default_str()
      ->group(group);
  command.add_option("--beta2", a.beta2, "Decay rate of the second moment, for adam, adamw and lamb")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--epsilon", a.epsilon,
                  "Term added to a denominator: the square root of the second moment for adam and adamw (default 1e-7) "
                  "and lamb (default 1e-6), the norm that divides a layer's learning rate for lars (default 1e-9)")
      ->group(group);
  command
      .add_option("--trust-coefficient", a.trust_coefficient,
                  "Update size of a layer as a fraction of its weight norm at learning rate 1, for lars (default "
                  "0.001)")
      ->group(group);
  command
      .add_option("--weight-decay", a.weight_decay,
                  "Weight decay of all parameters except biases and normalization: decoupled for adamw and lamb "
                  "(default 0.01), L2 for sgd and adam (default 0) and lars (default 0.0005)")
      ->group(group);
}

void add_schedule_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Learning rate";
  command.add_option("--lr-schedule", a.lr_schedule, "Learning-rate schedule: constant, cosine, step or linear")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--warmup-steps", a.warmup_steps, "Number of steps over which the learning rate rises to its peak")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-final", a.lr_final,
                  "Final learning rate as a fraction of the peak, for --lr-schedule cosine and linear")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-step-every", a.lr_step_every,
                  "Number of steps between reductions of the learning rate, for --lr-schedule step")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-step-factor", a.lr_step_factor,
                  "Factor of each reduction of the learning rate, for --lr-schedule step")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-scaling", a.lr_scaling,
                  "How the learning rate scales with --global-batch: none, linear or sqrt")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--lr-base-batch", a.lr_base_batch,
                  "Global batch size that --learning-rate refers to, for --lr-scaling")
      ->capture_default_str()
      ->group(group);
}

void add_keeping_options(CLI::App& command, TrainArguments& a) {
  const char* group = "Checkpoints and summaries";
  command.add_option("--checkpoint-dir", a.checkpoint_dir, "Directory to write checkpoints to and to resume from")
      ->group(group);
  command
      .add_option("--save-every", a.save_every,
                  "Number of steps between checkpoints; 0 saves at the end of each epoch. The last step is always "
                  "saved")
      ->capture_default_str()
      ->group(group);
  command.add_option("--keep", a.keep, "Number of healthy checkpoints to keep")->capture_default_str()->group(group);
  command
      .add_option("--resume", a.resume,
                  "Resume from the newest checkpoint: auto (if there is one), never, or require (fail without one)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--verify-checkpoint", a.verify_checkpoint,
          "How ranks other than 0 verify at each save that their replicas match: full (each rank writes its own "
          "checkpoint to TMPDIR or /tmp of its node, compares it and removes it), hash (each rank compares hashes and "
          "writes nothing), none, or auto (full up to 256 MB per rank, hash above)")
      ->capture_default_str()
      ->group(group);
  command.add_option("--summary-dir", a.summary_dir, "Directory for TensorBoard event files, which the chief writes")
      ->group(group);
  command.add_option("--log-every", a.log_every, "Number of steps between progress reports; 0 disables them")
      ->capture_default_str()
      ->group("Output");
}

[[noreturn]] void refuse(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "command line", expected, actual);
}

void check_between(const char* option, double value, double least, double most) {
  if (value < least || value > most)
    refuse(fmt::format("expected {} to be from {} to {}", option, least, most), fmt::format("got {}", value));
}

std::size_t bucket_bytes(const std::string& mebibytes) {
  double value = 0;
  const auto [end, error] = std::from_chars(mebibytes.data(), mebibytes.data() + mebibytes.size(), value);
  if (error != std::errc{} || end != mebibytes.data() + mebibytes.size() || !(value > 0 && value <= kMebibyte))
    refuse("expected --bucket-mib to be a number above 0, or auto", fmt::format("got \"{}\"", mebibytes));
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
    refuse("expected --optimizer sgd or lars with --momentum", given);
  if (a.nesterov && a.optimizer != "sgd") refuse("expected --optimizer sgd with --nesterov", given);
  if (a.trust_coefficient && !lars) refuse("expected --optimizer lars with --trust-coefficient", given);
}

model::OptimizerOptions optimizer_options(const TrainArguments& a) {
  constexpr std::array<std::string_view, 5> kNames{"sgd", "adam", "adamw", "lars", "lamb"};
  if (std::ranges::find(kNames, a.optimizer) == kNames.end())
    refuse(fmt::format("expected --optimizer to be one of {}", list_names(kNames)), got_name(a.optimizer, kNames));
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
  if (a.model.empty()) refuse("expected --model NAME or --model FILE.json", "it was not given");
  if (a.data.data.empty()) refuse("expected --data", "it was not given");
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
    refuse("expected --checkpoint-dir with --resume require", "it was not given");
  (void)checkpoint::parse_verify_checkpoint(a.verify_checkpoint);
  if (a.reset_head && a.init_from.empty()) refuse("expected --init-from with --reset-head", "it was not given");
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
