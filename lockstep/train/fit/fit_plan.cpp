#include "lockstep/train/fit/fit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/job/agreement.h"
#include "lockstep/train/fit/prediction_images.h"
#include "lockstep/train/input/check_data.h"
#include "lockstep/train/input/data_names.h"

namespace lockstep::inline v0::train {
namespace {

/// Size of the gradient of all trained parameters, in the wire type.
std::int64_t gradient_bytes(const model::Network& network,
                            const strategy::TrainerOptions& options) {
  std::size_t bytes =
      options.buckets.wire == allreduce::WireType::float32 ? sizeof(float) : sizeof(float) / 2;
  // After local steps, the slots are averaged too.
  if (options.local.steps) bytes += sizeof(float) * model::slot_names(options.optimizer).size();
  return static_cast<std::int64_t>(network.trained().element_count() * bytes);
}

std::int64_t planned_steps(const FitOptions& fit, std::int64_t steps_per_epoch) {
  const std::int64_t epochs = fit.epochs.value_or(fit.steps > 0 ? 0 : 1);
  if (epochs <= 0 && fit.steps <= 0)
    throw Error(ErrorCategory::input, "fit", "expected a number of epochs or of steps",
                "both are 0");
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t steps_of_epochs = kUnlimited;
  if (epochs > 0 && epochs <= kUnlimited / std::max(steps_per_epoch, std::int64_t{1}))
    steps_of_epochs = epochs * steps_per_epoch;
  return std::min(steps_of_epochs, fit.steps > 0 ? fit.steps : kUnlimited);
}

/// Returns the hyperparameters of the training, followed by the options that a resuming run
/// compares.
std::vector<Hyperparameter> hyperparameters(const FitPlan& plan,
                                            const strategy::LocalReplicas& replicas) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  std::vector<Hyperparameter> values = {
      {"model", replicas.network().name()},
      {"parameters", number(replicas.network().parameters().element_count())},
      {"global_batch", number(plan.dataset.global_batch())},
      {"replicas", number(replicas.strategy().num_replicas_in_sync())},
      {"steps", number(plan.last_step)},
      {"mixup", plan.dataset.mixup_alpha()},
      {"initial_weights", plan.fit.pretrained ? "pretrained" : "random"}};
  for (const BoundField& field : fields_of(plan.trainer)) {
    if (field.text->role < Role::resume_warn) continue;
    const bool is_optimizer = field.text->key == "optimizer";
    values.push_back({std::string(field.text->key),
                      is_optimizer ? model::name_of(plan.trainer.optimizer) : field.value()});
    if (!is_optimizer) continue;
    for (const auto& [name, value] : model::hyperparameters_of(plan.trainer.optimizer))
      std::visit([&, &name = name](auto constant) { values.push_back({name, constant}); }, value);
  }
  return values;
}

void check_trainable(const model::Network& network) {
  if (network.parameters().element_count() == 0)
    throw Error(ErrorCategory::input, "model", "expected a layer with parameters to train",
                fmt::format("got none in {}", network.name()));
}

/// Throws Error (input) for a metric that this training does not have.
void check_keep_best(const CheckpointPlan& saving, const std::vector<std::string>& known_metrics) {
  if (!saving.keep_best) return;
  if (saving.directory.empty())
    throw Error(ErrorCategory::input, "keep-best", "expected a directory for checkpoints",
                "it is not set");
  saving.keep_best->check("keep-best", known_metrics);
}

/// Shard policies that distribute records over ranks require the same number of replicas on every
/// rank. All ranks see the same placements and throw the same error.
data::ReplicaLayout layout_of(const strategy::Strategy& strategy, data::ShardPolicy policy) {
  std::vector<int> rank_replicas(strategy.session().size());
  for (const job::Placement& place : strategy.placements()) ++rank_replicas[place.rank];
  const auto [least, most] = std::ranges::minmax(rank_replicas);
  if (policy != data::ShardPolicy::automatic && least != most)
    throw Error(ErrorCategory::input, fmt::format("shard-policy {}", to_string(policy)),
                "expected the same number of replicas on every rank",
                fmt::format("some have {} and some {}", least, most));
  return {strategy.num_replicas_in_sync(), least == most ? least : strategy.num_replicas_in_sync()};
}

std::string describe_weights(const Pretrained& weights) {
  std::string text =
      fmt::format("{}{}{}", weights.path.string(), weights.reset_head ? " without the head" : "",
                  weights.partial ? " that fit" : "");
  for (const NameMap& rule : weights.map) text += fmt::format(", {} as {}", rule.from, rule.to);
  return text;
}

std::vector<std::string> single_metrics(const model::Metrics& metrics) {
  std::vector<std::string> names;
  for (const model::MetricValue& value : model::values_of(metrics, {}))
    if (value.is_single()) names.push_back(value.name);
  return names;
}

}  // namespace

FitPlan::FitPlan(const strategy::Strategy& strategy,
                 const strategy::TrainerOptions& trainer_options, const data::Dataset& data,
                 const FitOptions& fit_options)
    : trainer(trainer_options),
      dataset(data),
      fit(fit_options),
      layout(layout_of(strategy, dataset.shard_policy())),
      steps_per_epoch(dataset.steps_per_epoch(layout)) {}

data::Dataset FitPlan::evaluated(const data::Dataset& data,
                                 const strategy::LocalReplicas& replicas) const {
  data::Dataset records = matched(data, DataNames::of(dataset));
  check_data_fits(records, replicas.network(), replicas.loss(), DataUse::evaluation);
  if (records.bad_records_allowed())
    throw Error(ErrorCategory::input, "data", "expected each record once for validation",
                "bad records may be skipped");
  return records;
}

void FitPlan::agree(const strategy::LocalReplicas& replicas) {
  const strategy::Strategy& strategy = replicas.strategy();
  const model::Network& network = replicas.network();
  check_trainable(network);
  check_data_fits(dataset, network, replicas.loss());
  if (fit.validation) validation = evaluated(*fit.validation, replicas);
  if (fit.test) test = evaluated(*fit.test, replicas);
  check_fields("fit", fields_of(fit));
  check_keep_best(fit.checkpoint, known_metrics(replicas));
  check_prediction_images(fit, network, replicas.loss());
  last_step = planned_steps(fit, steps_per_epoch);
  job::Agreement(strategy.ranks()).require_same_lines("ranks", describe());
  const std::int64_t updates_of_step = trainer.local.steps.value_or(1);
  schedule = strategy::effective_schedule(
      trainer, std::max<std::int64_t>(1, dataset.global_batch() / updates_of_step), last_step);
}

std::vector<std::string> FitPlan::known_metrics(const strategy::LocalReplicas& replicas) const {
  return metric_names(replicas.classes(), fit.validation.has_value(),
                      single_metrics(replicas.metrics()));
}

std::string FitPlan::describe() const {
  std::string plan = describe_plan(dataset);
  const auto add = [&](std::string_view what, const std::string& value) {
    plan += fmt::format("{}: {}\n", what, value);
  };
  add("order of records", dataset.order(layout));
  add("shard policy", std::string(to_string(dataset.shard_policy())));
  add("number of steps", fmt::format("{}", last_step));
  const auto add_data = [&](std::string_view what, const std::optional<data::Dataset>& data) {
    std::string text = data ? describe_plan(*data) : "none";
    std::ranges::replace(text, '\n', ' ');
    add(what, text);
  };
  add_data("validation", validation);
  add_data("test data", test);
  add("initial weights", fit.pretrained ? describe_weights(*fit.pretrained) : "random");
  add("checkpoints", fit.checkpoint.directory.empty() ? "none" : "a directory");
  add("profile", fit.profile.empty() ? "none" : "a file");
  add("trace", fit.trace.file.empty() ? "none"
                                      : fmt::format("of steps {} to {} (0: the end)",
                                                    fit.trace.first_step, fit.trace.last_step));
  plan += lines_of(fields_of(fit));
  return plan;
}

TrainBegin FitPlan::announcement(strategy::LocalReplicas& replicas,
                                 const Position& position) const {
  const strategy::Strategy& strategy = replicas.strategy();
  const std::int64_t world = strategy.num_replicas_in_sync();
  const std::int64_t part = (dataset.global_batch() + world - 1) / world;
  const DataNames names = DataNames::of(dataset);
  const auto class_output = output_of_classes(replicas.network(), replicas.loss(), names);
  return {.model = replicas.network().name(),
          .parameters = static_cast<std::int64_t>(replicas.network().parameters().element_count()),
          .frozen_parameters =
              static_cast<std::int64_t>(replicas.network().parameters().element_count() -
                                        replicas.network().trained().element_count()),
          .precision = to_string(trainer.compute.precision),
          .normalization = to_string(trainer.normalization),
          .strategy = strategy.name(),
          .caveat = strategy.caveat(trainer),
          .allreduce = strategy.route(),
          .allreduce_reason = strategy.selection().reason,
          .transport = strategy.session().transport(),
          .transport_reason = strategy.session().transport_reason(),
          .world_size = static_cast<int>(world),
          .ranks = strategy.session().size(),
          .nodes = strategy.session().nodes(),
          .is_chief = strategy.is_chief(),
          .placements = strategy.placements(),
          .data = dataset.description(),
          .records = dataset.size(),
          .table = dataset.source().info().table,
          .shard_policy = std::string(to_string(dataset.shard_policy())),
          .files = dataset.source().info().files,
          .shares = strategy.is_chief() ? dataset.shares(layout, trainer.seed, position.epochs_done)
                                        : std::vector<data::WorkerShare>(),
          .damaged_files = dataset.source().info().damage,
          .has_validation = fit.validation.has_value(),
          .split = dataset.source().info().split,
          .metrics = single_metrics(replicas.metrics()),
          .class_names = class_output ? names.classes : std::vector<std::string>(),
          .class_output = class_output.value_or(""),
          .global_batch = dataset.global_batch(),
          .per_replica_batch = part,
          .gradient_bytes = gradient_bytes(replicas.network(), trainer),
          .has_narrow_gradients = trainer.buckets.wire != allreduce::WireType::float32,
          .micro_batch = (part + trainer.micro_batches() - 1) / trainer.micro_batches(),
          .steps_per_epoch = steps_per_epoch,
          .first_step = position.step,
          .last_step = last_step,
          .learning_rate = schedule.peak_rate(),
          .seed = trainer.seed,
          .start_seconds = strategy.session().seconds(),
          .known_metrics = known_metrics(replicas),
          .restored_from = {},
          .initialized_from = {},
          .uninitialized_head = "",
          .hyperparameters = hyperparameters(*this, replicas),
          .replicas = &replicas};
}

}  // namespace lockstep::inline v0::train
