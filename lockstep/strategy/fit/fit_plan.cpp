#include "lockstep/strategy/fit/fit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/strategy/fit/data_fit.h"

namespace lockstep::strategy {
namespace {

std::int64_t planned_steps(const FitOptions& fit, std::int64_t steps_per_epoch) {
  if (fit.epochs <= 0 && fit.steps <= 0)
    throw Error(ErrorCategory::input, "fit", "expected a number of epochs or of steps",
                "both are 0");
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  return std::min(fit.epochs > 0 ? fit.epochs * steps_per_epoch : kUnlimited,
                  fit.steps > 0 ? fit.steps : kUnlimited);
}

void check_trainable(const model::Network& network) {
  if (network.parameters().element_count() == 0)
    throw Error(ErrorCategory::input, "model", "expected a layer with parameters to train",
                fmt::format("got none in {}", network.name()));
}

/// Throws Error (input) for a validation or a metric that this training does not have.
void check_monitoring(const FitOptions& fit, const std::vector<std::string>& known_metrics) {
  if (fit.validate_every < 0 || (fit.validate_every > 0 && !fit.validation))
    throw Error(ErrorCategory::input, "validate-every",
                "expected validation data and a number of steps, or 0",
                fmt::format("got {}{}", fit.validate_every,
                            fit.validation ? "" : " and no validation data"));
  const CheckpointPlan& saving = fit.checkpoint;
  if (saving.restore_best && !saving.keep_best)
    throw Error(ErrorCategory::input, "restore-best", "expected keep_best with restore_best",
                "it is not set");
  if (!saving.keep_best) return;
  if (saving.directory.empty())
    throw Error(ErrorCategory::input, "keep-best", "expected a directory for checkpoints",
                "it is not set");
  saving.keep_best->check("keep-best", known_metrics);
}

/// Shard policies that distribute records over ranks require the same number of replicas on every
/// rank. All ranks see the same placements and throw the same error.
data::ReplicaLayout layout_of(const Strategy& strategy, data::ShardPolicy policy) {
  std::vector<int> of_rank(strategy.session().size());
  for (const job::Placement& place : strategy.placements()) ++of_rank[place.rank];
  const auto [least, most] = std::ranges::minmax(of_rank);
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

FitPlan::FitPlan(const Strategy& strategy, const TrainerOptions& trainer_options,
                 const data::Dataset& data, const FitOptions& fit_options)
    : trainer(trainer_options),
      dataset(data),
      fit(fit_options),
      layout(layout_of(strategy, dataset.shard_policy())),
      steps_per_epoch(dataset.steps_per_epoch(layout)) {}

void FitPlan::agree(const LocalReplicas& replicas) {
  const Strategy& strategy = replicas.strategy();
  const model::Network& network = replicas.network();
  check_trainable(network);
  check_data_fits(dataset, network, replicas.loss());
  if (fit.validation) {
    validation = matched(*fit.validation, DataNames::of(dataset));
    check_data_fits(*validation, network, replicas.loss(), DataUse::evaluation);
  }
  check_monitoring(fit, known_metrics(replicas));
  last_step = planned_steps(fit, steps_per_epoch);
  job::Agreement(strategy.ranks()).require_same_lines("ranks", describe());
  schedule = effective_schedule(trainer, dataset.global_batch(), last_step);
}

std::vector<std::string> FitPlan::known_metrics(const LocalReplicas& replicas) const {
  return metric_names(replicas.has_accuracy(), fit.validation.has_value(),
                      single_metrics(replicas.metrics()));
}

std::string FitPlan::describe() const {
  const CheckpointPlan& saving = fit.checkpoint;
  const auto allowed = dataset.bad_records_allowed();
  std::string plan = describe_plan(dataset);
  const auto add = [&](std::string_view what, const std::string& value) {
    plan += fmt::format("{}: {}\n", what, value);
  };
  add("order of records", dataset.order(layout));
  add("shard policy", std::string(to_string(dataset.shard_policy())));
  add("bad records", allowed ? fmt::format("up to {}", *allowed) : "none");
  add("number of steps", fmt::format("{}", last_step));
  // One line, whatever it has.
  std::string evaluated = validation ? describe_plan(*validation) : "none";
  std::ranges::replace(evaluated, '\n', ' ');
  add("validation", evaluated);
  add("steps between validations", fmt::format("{} (0: none)", fit.validate_every));
  add("initial weights", fit.pretrained ? describe_weights(*fit.pretrained) : "random");
  add("checkpoints", saving.directory.empty()
                         ? "none"
                         : fmt::format("every {} steps (0: every epoch)", saving.save_every));
  add("best checkpoint", saving.keep_best ? saving.keep_best->text() : "none");
  add("profile", fit.profile.empty() ? "none" : "a file");
  add("trace", fit.trace.file.empty() ? "none"
                                      : fmt::format("of steps {} to {} (0: the end)",
                                                    fit.trace.first_step, fit.trace.last_step));
  return plan;
}

TrainBegin FitPlan::announcement(LocalReplicas& replicas, const Position& position) const {
  const Strategy& strategy = replicas.strategy();
  const std::int64_t world = strategy.num_replicas_in_sync();
  const std::int64_t part = (dataset.global_batch() + world - 1) / world;
  return {.model = replicas.network().name(),
          .parameters = static_cast<std::int64_t>(replicas.network().parameters().element_count()),
          .frozen_parameters =
              static_cast<std::int64_t>(replicas.network().parameters().element_count() -
                                        replicas.network().trained().element_count()),
          .precision = to_string(trainer.precision),
          .normalization = to_string(trainer.normalization),
          .strategy = strategy.name(),
          .allreduce = strategy.route(),
          .allreduce_reason = strategy.selection().reason,
          .world_size = static_cast<int>(world),
          .ranks = strategy.session().size(),
          .nodes = strategy.session().nodes(),
          .is_chief = strategy.is_chief(),
          .placements = strategy.placements(),
          .data = dataset.description(),
          .records = dataset.size(),
          .shard_policy = std::string(to_string(dataset.shard_policy())),
          .files = dataset.source().files(),
          .shares = strategy.is_chief() ? dataset.shares(layout, trainer.seed, position.epochs_done)
                                        : std::vector<data::WorkerShare>(),
          .damaged_files = dataset.source().damage(),
          .has_validation = fit.validation.has_value(),
          .metrics = single_metrics(replicas.metrics()),
          .class_names = DataNames::of(dataset).classes,
          .global_batch = dataset.global_batch(),
          .per_replica_batch = part,
          .micro_batch = (part + trainer.accumulate - 1) / trainer.accumulate,
          .steps_per_epoch = steps_per_epoch,
          .first_step = position.step,
          .last_step = last_step,
          .learning_rate = schedule.peak,
          .seed = trainer.seed,
          .start_seconds = strategy.session().seconds(),
          .known_metrics = known_metrics(replicas),
          .restored_from = {},
          .initialized_from = {},
          .kept_head = ""};
}

}  // namespace lockstep::strategy
