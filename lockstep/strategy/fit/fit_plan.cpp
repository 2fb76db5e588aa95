#include "lockstep/strategy/fit/fit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/strategy/fit/data_fit.h"
#include "lockstep/strategy/fit/prediction_images.h"

namespace lockstep::strategy {
namespace {

/// Of the trained parameters, as they are sent.
std::int64_t gradient_bytes(const model::Network& network, allreduce::WireType wire) {
  const std::size_t bytes =
      wire == allreduce::WireType::float32 ? sizeof(float) : sizeof(float) / 2;
  return static_cast<std::int64_t>(network.trained().element_count() * bytes);
}

std::int64_t planned_steps(const FitOptions& fit, std::int64_t steps_per_epoch) {
  if (fit.epochs <= 0 && fit.steps <= 0)
    throw Error(ErrorCategory::input, "fit", "expected a number of epochs or of steps",
                "both are 0");
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t of_epochs = kUnlimited;
  if (fit.epochs > 0 && fit.epochs <= kUnlimited / std::max(steps_per_epoch, std::int64_t{1}))
    of_epochs = fit.epochs * steps_per_epoch;
  return std::min(of_epochs, fit.steps > 0 ? fit.steps : kUnlimited);
}

/// The options of an optimizer, of a text such as "sgd(momentum=0.9, nesterov=true)".
void add_options(const std::string& text, std::vector<Hyperparameter>& values) {
  const std::size_t begin = text.find('(');
  if (begin == std::string::npos || text.back() != ')') return;
  std::string_view rest = std::string_view(text).substr(begin + 1);
  rest.remove_suffix(1);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(", "));
    rest.remove_prefix(std::min(rest.size(), one.size() + 2));
    const std::size_t equals = one.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? "true" : one.substr(equals + 1);
    Hyperparameter& added = values.emplace_back(std::string(one.substr(0, equals)));
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size())
      added.value = number;
    else if (value == "true" || value == "false")
      added.value = value == "true";
    else
      added.value = std::string(value);
  }
}

std::vector<Hyperparameter> hyperparameters(const FitPlan& plan, const LocalReplicas& replicas) {
  const TrainerOptions& trainer = plan.trainer;
  const auto number = [](auto value) { return static_cast<double>(value); };
  std::vector<std::string> losses;
  for (const model::LossTerm& term : replicas.loss().terms())
    losses.push_back(to_string(term.loss));
  std::vector<Hyperparameter> values = {
      {"model", replicas.network().name()},
      {"parameters", number(replicas.network().parameters().element_count())},
      {"global_batch", number(plan.dataset.global_batch())},
      {"accumulate", number(trainer.accumulate)},
      {"replicas", number(replicas.strategy().num_replicas_in_sync())},
      {"steps", number(plan.last_step)},
      {"loss", fmt::format("{}", fmt::join(losses, ", "))},
      {"optimizer", model::name_of(trainer.optimizer)},
      {"learning_rate", number(plan.schedule.peak)},
      {"lr_schedule", to_string(plan.schedule.kind)},
      {"warmup_steps", number(plan.schedule.warmup_steps)},
      {"clip_norm", trainer.clip_norm},
      {"ema", number(trainer.ema)},
      {"mixup", plan.dataset.mixup_alpha()},
      {"precision", to_string(trainer.precision)},
      {"normalization", to_string(trainer.normalization)},
      {"initial_weights", plan.fit.pretrained ? "pretrained" : "random"},
      {"seed", number(trainer.seed)}};
  add_options(to_string(trainer.optimizer), values);
  return values;
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
    if (validation->bad_records_allowed())
      throw Error(ErrorCategory::input, "data", "expected each record once for validation",
                  "bad records may be skipped");
  }
  check_monitoring(fit, known_metrics(replicas));
  check_prediction_images(fit, network, replicas.loss());
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
  std::string plan = describe_plan(dataset);
  const auto add = [&](std::string_view what, const std::string& value) {
    plan += fmt::format("{}: {}\n", what, value);
  };
  add("order of records", dataset.order(layout));
  add("shard policy", std::string(to_string(dataset.shard_policy())));
  add("number of steps", fmt::format("{}", last_step));
  // One line, whatever it has.
  std::string evaluated = validation ? describe_plan(*validation) : "none";
  std::ranges::replace(evaluated, '\n', ' ');
  add("validation", evaluated);
  add("prediction images", fmt::format("{}", fit.prediction_images));
  add("steps between validations", fmt::format("{} (0: none)", fit.validate_every));
  add("initial weights", fit.pretrained ? describe_weights(*fit.pretrained) : "random");
  const bool only_at_end = saving.save_every == std::numeric_limits<std::int64_t>::max();
  add("checkpoints", saving.directory.empty() ? "none"
                     : only_at_end
                         ? "at the end"
                         : fmt::format("every {} steps (0: every epoch)", saving.save_every));
  add("resume", std::string(to_string(saving.resume)));
  add("best checkpoint", saving.keep_best ? saving.keep_best->text() : "none");
  add("weights at the end", saving.restore_best ? "the best" : "the last");
  add("comparison of replicas", fmt::format("every {} steps (0: never)", fit.check_replicas));
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
          .table = dataset.source().table(),
          .shard_policy = std::string(to_string(dataset.shard_policy())),
          .files = dataset.source().files(),
          .shares = strategy.is_chief() ? dataset.shares(layout, trainer.seed, position.epochs_done)
                                        : std::vector<data::WorkerShare>(),
          .damaged_files = dataset.source().damage(),
          .has_validation = fit.validation.has_value(),
          .metrics = single_metrics(replicas.metrics()),
          .class_names = DataNames::of(dataset).classes,
          .class_output =
              output_of_classes(replicas.network(), replicas.loss(), DataNames::of(dataset)),
          .global_batch = dataset.global_batch(),
          .per_replica_batch = part,
          .gradient_bytes = gradient_bytes(replicas.network(), trainer.buckets.wire),
          .has_narrow_gradients = trainer.buckets.wire != allreduce::WireType::float32,
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
          .kept_head = "",
          .hyperparameters = hyperparameters(*this, replicas),
          .replicas = &replicas};
}

}  // namespace lockstep::strategy
