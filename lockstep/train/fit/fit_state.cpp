#include "lockstep/train/fit/fit_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/strategy/replica/replica.h"
#include "lockstep/train/callbacks/monitored_metric.h"
#include "lockstep/train/fit/remembered_route.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/target_scale.h"

namespace lockstep::inline v0::train {
namespace {

/// Part of every error that rejects a checkpoint. It does not suggest --resume never --overwrite,
/// which deletes the old checkpoints.
constexpr const char* kStartOver = "use another --checkpoint-dir to start over";

constexpr const char* kBestKey = "best";  // metric and value
constexpr const char* kBucketKey = "bucket_bytes";
constexpr const char* kCallbacksKey = "callbacks";
constexpr const char* kValidatedKey = "validated_step";
constexpr const char* kSlotsKey = "slots";
constexpr const char* kFrozenKey = "frozen";  // names of parameters; only if there are some
constexpr const char* kMetricsKey = "epoch_metrics";
constexpr const char* kGoodStepsKey = "loss_scale_good_steps";  // only for a dynamic loss scale

[[noreturn]] void refuse(const std::string& expected, const std::string& current,
                         const std::string& further = "") {
  throw Error(ErrorCategory::checkpoint, "resume", expected,
              fmt::format("got {}; {}{}", current, kStartOver, further));
}

/// Throws unless a number of the checkpoint is the same in the run that resumes from it.
void check_same(const std::string& path, std::string_view what, std::int64_t saved,
                std::int64_t current) {
  if (saved != current)
    refuse(fmt::format("expected the {} of {}, {}, on which the position in the data depends", what,
                       path, saved),
           std::to_string(current));
}

/// Returns the values that a resuming run compares, by key.
nlohmann::json settings_of(const strategy::TrainerOptions& options) {
  auto settings = nlohmann::json::object();
  for (const BoundField& field : fields_of(options))
    if (field.text->role >= Role::resume_warn)
      settings[std::string(field.text->key)] = field.print();
  return settings;
}

/// Returns the value `key` of the earlier run.
std::string earlier(const nlohmann::json& saved, std::string_view key) {
  return saved.at(kSettingsKey).at(key).get<std::string>();
}

/// Whether the earlier run had the same losses.
bool has_same_losses(const nlohmann::json& saved, const strategy::TrainerOptions& options) {
  return saved.at(kSettingsKey).at("loss") == settings_of(options).at("loss");
}

/// Throws for a value that must match the checkpoint.
void check_same_settings(const std::string& path, const nlohmann::json& saved,
                         const strategy::TrainerOptions& options) {
  for (const BoundField& field : fields_of(options))
    if (field.text->role == Role::resume_exact)
      if (const std::string before = earlier(saved, field.text->key); before != field.print())
        refuse(fmt::format("expected the {} of {}, {}", field.label(), path, before),
               field.print());
}

/// Warns of differences. The values of the resuming run apply, but not if no step remains.
void warn_of_differences(const checkpoint::TrainingState& state, const FitPlan& plan, Logger& log) {
  const bool trains = state.step < plan.last_step;
  const model::Schedule& schedule = plan.schedule;
  const nlohmann::json& saved = *state.configuration;
  const std::int64_t end = saved.value(kStepsKey, schedule.total_steps);
  if (trains && schedule.depends_on_end() && end != schedule.total_steps)
    log.warn(fmt::format(
        "the learning-rate schedule ended at step {} in the earlier run, and now ends at {}: the "
        "learning rate changes",
        end, schedule.total_steps));
  for (const BoundField& field : fields_of(plan.trainer)) {
    if (field.text->role != Role::resume_warn) continue;
    const std::string before = earlier(saved, field.text->key);
    if (const std::string now = field.print(); before != now)
      log.warn(fmt::format("{}: {} in the earlier run; {} with {}", field.label(),
                           before.empty() ? "none" : before,
                           trains ? "the training continues" : "no step is left to train",
                           now.empty() ? "none" : now));
  }
}

/// Throws unless the optimizers of two configurations have the same slots.
void check_same_slots(const std::string& path, const nlohmann::json& saved,
                      const nlohmann::json& current) {
  const auto slots = current.at(kSlotsKey).get<std::vector<std::string>>();
  const auto others = saved.at(kSlotsKey).get<std::vector<std::string>>();
  if (slots == others) return;
  const std::string further = fmt::format(", with --init-from {} to begin with its weights", path);
  for (const auto& [slot, what] :
       {std::pair{model::kAverageSlot, "a moving average of the parameters"},
        {strategy::kOuterMomentumSlot, "momentum of an outer step"}}) {
    const bool is_here = std::ranges::count(slots, slot) > 0;
    if (is_here != (std::ranges::count(others, slot) > 0))
      refuse(fmt::format("expected a checkpoint {} {}", is_here ? "with" : "without", what),
             fmt::format("one {}", is_here ? "without" : "with"), further);
  }
  const auto name_of = [](const nlohmann::json& state) {
    return state.at(kOptimizerKey).get<std::string>();
  };
  const bool differ = name_of(current) != name_of(saved);
  refuse("expected a checkpoint of " + (differ ? name_of(current) : earlier(current, "optimizer")),
         "one of " + (differ ? name_of(saved) : earlier(saved, "optimizer")), further);
}

std::vector<std::string> frozen_parameters(const model::Network& network) {
  std::vector<std::string> names;
  for (const model::ParameterInfo& entry : network.parameters().entries())
    if (!entry.trained) names.push_back(entry.name);
  std::ranges::sort(names);
  return names;
}

/// Throws unless two configurations freeze the same parameters.
void check_same_frozen(const std::string& path, const nlohmann::json& saved,
                       const nlohmann::json& current) {
  using Names = std::vector<std::string>;
  const auto names = saved.value(kFrozenKey, Names());
  const auto others = current.value(kFrozenKey, Names());
  if (names == others) return;
  Names differences;
  std::ranges::set_symmetric_difference(names, others, std::back_inserter(differences));
  const bool was_frozen = std::ranges::binary_search(names, differences.front());
  refuse(fmt::format("expected the frozen parameters of {}, {}", path,
                     was_frozen ? fmt::format("with {}", differences.front())
                                : fmt::format("without {}", differences.front())),
         fmt::format("{} that {}", differences.front(), was_frozen ? "is trained" : "is frozen"),
         fmt::format(", with --init-from {} to begin with its weights", path));
}

/// Throws for the first difference between two descriptions of networks (network_json.h).
void check_same_network(const std::string& path, const nlohmann::json& saved,
                        const nlohmann::json& current) {
  const auto name = saved.at("name").get<std::string>();
  const std::string expected = fmt::format("expected the network of {}, {}", path, name);
  if (current.at("name") != name) refuse(expected, current.at("name").get<std::string>());
  for (const char* key : {"input", "inputs", "outputs"}) {
    const auto text_of = [key](const nlohmann::json& description) {
      return description.contains(key) ? dump_json(description.at(key)) : "none";
    };
    if (text_of(saved) != text_of(current))
      refuse(fmt::format("{}, with \"{}\": {}", expected, key, text_of(saved)), text_of(current));
  }
  const nlohmann::json& layers = saved.at("layers");
  const nlohmann::json& others = current.at("layers");
  for (std::size_t i = 0; i < std::min(layers.size(), others.size()); ++i) {
    const auto type = layers[i].at("type").get<std::string>();
    const auto other = others[i].at("type").get<std::string>();
    if (type != other) refuse(fmt::format("{}, with {} as layer {}", expected, type, i), other);
    for (const auto& [key, value] : layers[i].items())
      if (const auto found = others[i].value(key, nlohmann::json()); found != value)
        refuse(fmt::format("{}, with \"{}\": {} in layer {}", expected, key, dump_json(value), i),
               dump_json(found));
  }
  if (layers.size() != others.size())
    refuse(fmt::format("{}, with {} layers", expected, layers.size()),
           std::to_string(others.size()));
}

/// Warns of a different network with the same tensors.
void warn_of_network(const std::string& path, const nlohmann::json& saved,
                     const model::Network& network, Logger& log) {
  auto current = model::network_to_json(network);
  if (!current || !saved.contains(kNetworkKey)) return;
  const nlohmann::json& before = saved.at(kNetworkKey).at("description");
  (*current)["name"] = before.at("name");
  try {
    check_same_network(path, before, *current);
  } catch (const Error& error) {
    log.warn(fmt::format("the network is another one than in the earlier run: {}", error.what()));
  }
}

/// The outputs of the layers must mean the same in both runs.
void check_scale(const std::string& path, const nlohmann::json& saved,
                 const model::Network& network) {
  const auto current = model::network_to_json(network);
  if (!current || !saved.contains(kNetworkKey)) return;
  const nlohmann::json before = stored_scale(saved);
  const nlohmann::json now = stored_scale({{kNetworkKey, {{"description", *current}}}});
  if (before != now)
    refuse(fmt::format("expected the scale of the targets of {}, {} (--scale-targets)", path,
                       before.is_null() ? "none" : before.dump()),
           now.is_null() ? "none" : now.dump());
}

/// "column=sentence,label=topic": the columns of a table of texts, or "none".
std::string columns_of(const data::TextSchema& text) {
  std::vector<std::string> columns;
  for (const auto& [key, name] : {std::pair{"column", &text.column},
                                  {"label", &text.label},
                                  {"image", &text.image},
                                  {"source", &text.source},
                                  {"target", &text.target}})
    if (!name->empty()) columns.push_back(fmt::format("{}={}", key, *name));
  return columns.empty() ? "none" : fmt::format("{}", fmt::join(columns, ","));
}

/// Class i and feature i must mean the same in both runs.
void check_same_names(const std::string& path, const DataNames& saved, const DataNames& current) {
  if (!saved.classes.empty() && !current.classes.empty() && saved.classes != current.classes)
    refuse(fmt::format("expected the classes of {}, {}", path, fmt::join(saved.classes, ", ")),
           fmt::format("{}", fmt::join(current.classes, ", ")));
  if (const auto other = data::different_feature(saved.features, current.features))
    refuse(fmt::format("expected the features of {}, number {} of which is {}", path, *other + 1,
                       saved.features[*other]),
           current.features[*other]);
  if (const auto other = data::different_feature(saved.targets, current.targets))
    refuse(fmt::format("expected the targets of {}, number {} of which is {}", path, *other + 1,
                       saved.targets[*other]),
           current.targets[*other]);
  if (saved.table && current.table && !saved.table->window.agrees_with(current.table->window))
    refuse(fmt::format("expected the window, horizon, steps and series of the table of {}", path),
           "others");
  if (saved.table && current.table && !saved.table->agrees_with(*current.table))
    refuse(fmt::format("expected the statistics and values of the table of {}", path),
           "others: the table has changed");
  if (saved.text && current.text && !saved.text->agrees_with(*current.text))
    refuse(fmt::format("expected the tokenizer of {}, {} with the hash {}", path,
                       saved.text->name(), saved.text->hash),
           fmt::format("{} with the hash {}", current.text->name(), current.text->hash));
  if (saved.text && current.text && columns_of(*saved.text) != columns_of(*current.text))
    refuse(
        fmt::format("expected the columns of the texts of {}, {}", path, columns_of(*saved.text)),
        columns_of(*current.text));
}

/// Throws for an impossible position. Between two epochs, the earlier one may be counted or not.
void check_position(const std::string& path, std::int64_t step, std::int64_t epoch,
                    std::int64_t steps_per_epoch) {
  const std::int64_t begun = steps_per_epoch > 0 ? step / steps_per_epoch : 0;
  const bool is_between = steps_per_epoch > 0 && step % steps_per_epoch == 0;
  if (step < 0 || (epoch != begun && !(is_between && epoch == begun - 1)))
    throw Error(ErrorCategory::checkpoint, path,
                fmt::format("expected an epoch that step {} is in, of {} steps each", step,
                            steps_per_epoch),
                fmt::format("got {}", epoch));
}

void check_resumable(const checkpoint::RestoredCheckpoint& restored, const FitPlan& plan,
                     strategy::LocalReplicas& replicas) {
  const checkpoint::TrainingState& state = restored.state;
  const nlohmann::json& saved = *state.configuration;
  const data::Dataset& dataset = plan.dataset;
  const std::string path = restored.path.string();
  check_same(path, plan.trainer.local.steps ? "global batch times local steps" : "global batch",
             state.global_batch, dataset.global_batch());
  check_same_settings(path, saved, plan.trainer);
  check_same_frozen(path, saved, {{kFrozenKey, frozen_parameters(replicas.network())}});
  check_same_slots(path, saved,
                   {{kSlotsKey, replicas[0].optimizer().slot_names()},
                    {kOptimizerKey, model::name_of(plan.trainer.optimizer)},
                    {kSettingsKey, settings_of(plan.trainer)}});
  const strategy::Strategy& strategy = replicas.strategy();
  if (strategy.is_chief()) {
    warn_of_differences(state, plan, *strategy.session().logger());
    warn_of_network(path, saved, replicas.network(), *strategy.session().logger());
  }
  check_scale(path, saved, replicas.network());
  const std::string preparation = dataset.preparation();
  if (const auto other = saved.value(kPreparationKey, preparation); other != preparation)
    refuse(fmt::format("expected the sample preparation of {} (\"{}\")", path, other),
           fmt::format("\"{}\"", preparation));
  const std::string policy(to_string(dataset.shard_policy()));
  if (const auto other = saved.value("shard_policy", policy); other != policy)
    refuse(fmt::format("expected the shard policy of {}, {}", path, other), policy);
  if (policy == "file" || policy == "off")
    for (const auto& [what, key, current] :
         {std::tuple{"number of ranks", "workers", plan.layout.workers()},
          {"number of replicas", "replicas", plan.layout.replicas}})
      check_same(path, what, saved.value(key, current), current);
  const std::string order = dataset.order(plan.layout);
  if (const auto other = saved.value("order", order); other != order)
    refuse(fmt::format("expected the order of records of {}, {}", path, other), order);
  check_same_names(path, DataNames::of(state.configuration), DataNames::of(dataset));
  check_same(path, "number of records", saved.value("records", dataset.size()), dataset.size());
  check_position(path, state.step, state.epoch, plan.steps_per_epoch);
}

void describe_network(nlohmann::json& configuration, const model::Network& network,
                      const model::TotalLoss& losses) {
  const auto description = model::network_to_json(network);
  if (!description) return;
  const auto is_custom = [](const model::LossTerm& term) {
    return std::holds_alternative<model::CustomLossPointer>(term.loss);
  };
  if (is_custom(losses[0])) return;
  nlohmann::json& network_and_loss = configuration[kNetworkKey];
  network_and_loss = {{"description", *description}};
  add_loss(network_and_loss, losses[0].loss);
  // For programs that cannot evaluate them all, because some are user-defined.
  if (losses.terms().size() > 1) network_and_loss["losses"] = losses.terms().size();
  if (std::ranges::any_of(losses.terms(), is_custom)) return;
  nlohmann::json& all = network_and_loss[kOutputLossesKey] = nlohmann::json::array();
  for (const model::LossTerm& term : losses.terms()) {
    nlohmann::json& one =
        all.emplace_back(nlohmann::json{{"output", network.outputs()[term.output].name},
                                        {"target", term.target},
                                        {"weight", term.weight}});
    add_loss(one, term.loss);
  }
}

/// Stores the preparation of data that the evaluation of a checkpoint repeats.
void describe_changes(nlohmann::json& configuration, const FitPlan& plan) {
  const data::RecordChanges training = plan.dataset.changes();
  if (training.is_mapped) configuration[kMappedKey] = true;
  if (plan.validation) {
    if (const auto images = plan.validation->changes().images)
      configuration[kImageRecipeKey] = images->to_json();
  } else if (training.images) {
    configuration[kImageRecipeKey] = training.images->for_test().to_json();
  }
}

/// Returns the sums of the epoch's metrics by name, without lists, which grow with the samples.
nlohmann::json metrics_to_json(const model::Metrics& metrics, const EpochTotals& epoch) {
  constexpr std::size_t kMaxSums = 4096;
  auto json = nlohmann::json::object();
  for (std::size_t i = 0; i < epoch.metrics.size(); ++i) {
    const std::vector<double>& sums = epoch.metrics[i];
    const std::string name = metrics[i]->name();
    if (metrics[i]->sums() > 0 && sums.size() <= kMaxSums &&
        !epoch.partial_metrics.contains(name) &&
        std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); }))
      json[name] = sums;
  }
  return json;
}

/// Sets the sums in a checkpoint. Others start at 0, and are partial if the epoch has begun.
void read_metrics(const model::Metrics& metrics, const nlohmann::json& json, EpochTotals& epoch) {
  for (const auto& metric : metrics) {
    epoch.metrics.emplace_back(metric->sums());
    const auto saved = json.value(metric->name(), std::vector<double>());
    if (metric->sums() > 0 && saved.size() == metric->sums())
      epoch.metrics.back() = saved;
    else if (epoch.sums.samples > 0)
      epoch.partial_metrics.insert(metric->name());
  }
}

/// The numbers of a checkpoint; missing ones are 0.
struct Numbers {
  const checkpoint::RestoredCheckpoint& of;

  double number(const char* name) const {
    const auto found = of.state.metrics.find(name);
    return found == of.state.metrics.end() ? 0.0 : found->second;
  }
  std::int64_t count(const char* name) const {
    constexpr double kLargest =
        9007199254740992;  // 2^53: up to here every count is exact as a double
    const double value = number(name);
    if (!(value >= 0 && value <= kLargest) || value != std::floor(value))
      throw Error(ErrorCategory::checkpoint, of.path.string(),
                  fmt::format("expected a count as {}", name), fmt::format("got {}", value));
    return static_cast<std::int64_t>(value);
  }
};

}  // namespace

void add_loss(nlohmann::json& object, model::Loss loss) {
  object["loss"] = model::name_of(loss);
  for (const auto& [name, value] : model::loss_parameters(loss)) object[name] = *value;
}

checkpoint::TrainingState to_training_state(const FitState& state, const FitPlan& plan,
                                            strategy::LocalReplicas& replicas) {
  const data::Dataset& dataset = plan.dataset;
  const model::MetricSums& sums = state.epoch.sums;
  const strategy::LossScaler& scaler = replicas[0].loss_scaler();
  checkpoint::TrainingState written;
  written.step = state.position.step;
  written.epoch = state.position.epochs_done;
  written.seed = plan.trainer.seed;
  written.global_batch = dataset.global_batch();
  written.precision = to_string(plan.trainer.compute.precision);
  written.loss_scale = static_cast<double>(scaler.scale());
  written.metrics = {{"updates", static_cast<double>(state.position.updates)},
                     {kEpochLossKey, sums.loss_sum},
                     {kEpochSamplesKey, static_cast<double>(sums.samples)},
                     {"epoch_correct", static_cast<double>(sums.correct)},
                     {"epoch_correct_top5", static_cast<double>(sums.correct_top5)},
                     {kEpochWeightKey, sums.weight_excess},
                     {"epoch_skipped_samples", static_cast<double>(state.epoch.skipped_samples)}};
  if (sums.more_positions > 0) {
    written.metrics[kEpochPositionsKey] = static_cast<double>(sums.more_positions);
    written.metrics[kEpochMaskedKey] = static_cast<double>(sums.masked);
  }
  if (scaler.is_dynamic())
    written.metrics[kGoodStepsKey] = static_cast<double>(scaler.good_steps());
  written.configuration = plan.fit.checkpoint.configuration;
  nlohmann::json& configuration = *written.configuration;
  configuration["records"] = dataset.size();
  configuration["shard_policy"] = to_string(dataset.shard_policy());
  configuration["workers"] = plan.layout.workers();
  configuration["replicas"] = plan.layout.replicas;
  configuration["order"] = dataset.order(plan.layout);
  configuration[kPreparationKey] = dataset.preparation();
  if (const auto& split = dataset.source().info().split)
    configuration[kSplitKey] = {{"validation", split->split.validation},
                                {"test", split->split.test},
                                {"records", split->total()}};
  describe_changes(configuration, plan);
  remember_route(configuration, replicas.strategy().selection().route);
  if (state.tuned_bytes > 0) configuration[kBucketKey] = state.tuned_bytes;
  if (state.position.validated_step > 0)
    configuration[kValidatedKey] = state.position.validated_step;
  if (state.best)
    configuration[kBestKey] = {{"metric", state.best->metric}, {"value", state.best->value}};
  if (!state.callbacks->empty()) configuration[kCallbacksKey] = *state.callbacks;
  configuration[kStepsKey] = plan.schedule.total_steps;
  if (state.is_finished) configuration[kFinishedKey] = true;
  configuration[kOptimizerKey] = model::name_of(plan.trainer.optimizer);
  configuration[kSettingsKey] = settings_of(plan.trainer);
  const DataNames names = DataNames::of(dataset);
  names.add_to(written.configuration);
  if (replicas.strategy().is_chief()) {
    if (names.text) written.tokenizer = names.text->find_content();
    written.script = plan.fit.checkpoint.script;
  }
  configuration[kSlotsKey] = replicas[0].optimizer().slot_names();
  if (auto frozen = frozen_parameters(replicas.network()); !frozen.empty())
    configuration[kFrozenKey] = std::move(frozen);
  if (!state.epoch.metrics.empty())
    configuration[kMetricsKey] = metrics_to_json(replicas.metrics(), state.epoch);
  describe_network(configuration, replicas.network(), replicas.loss());
  return written;
}

void throw_incompatible(const checkpoint::RestoredCheckpoint& restored,
                        const checkpoint::TrainingState& current) try {
  const std::string path = restored.path.string();
  const nlohmann::json& saved = *restored.state.configuration;
  const nlohmann::json& ours = *current.configuration;
  if (saved.contains(kNetworkKey) && ours.contains(kNetworkKey))
    check_same_network(path, saved.at(kNetworkKey).at("description"),
                       ours.at(kNetworkKey).at("description"));
  check_same_frozen(path, saved, ours);
  check_same_slots(path, saved, ours);
} catch (const nlohmann::json::exception&) {
  return;  // a program stored something else under these keys
}

/// Resets the state of callbacks that monitor a loss, which has changed.
void reset_loss_monitors(nlohmann::json& callbacks) {
  for (auto& [name, state] : callbacks.items()) {
    const bool is_monitor =
        name.starts_with("early_stopping:") || name.starts_with("reduce_on_plateau:");
    if (!is_monitor || !name.ends_with("loss") || !state.is_object()) continue;
    MetricMonitor::remove(state);
    state["wait"] = 0;
  }
}

FitState resume_from(const checkpoint::RestoredCheckpoint& restored, const FitPlan& plan,
                     strategy::LocalReplicas& replicas) try {
  check_resumable(restored, plan, replicas);
  replicas.broadcast_parameters();
  const checkpoint::TrainingState& saved = restored.state;
  const Numbers numbers{restored};
  FitState state{.position = plan.start(), .epoch = {}};
  state.position.step = state.position.first_step = saved.step;
  state.position.epochs_done = saved.epoch;
  state.position.updates = numbers.count("updates");
  state.epoch = {.sums = {.loss_sum = numbers.number(kEpochLossKey),
                          .samples = numbers.count(kEpochSamplesKey),
                          .correct = numbers.count("epoch_correct"),
                          .correct_top5 = numbers.count("epoch_correct_top5"),
                          .classes = replicas.classes(),
                          .weight_excess = numbers.number(kEpochWeightKey),
                          .more_positions = numbers.count(kEpochPositionsKey),
                          .masked = numbers.count(kEpochMaskedKey)},
                 .skipped_samples = numbers.count("epoch_skipped_samples")};
  read_metrics(replicas.metrics(),
               saved.configuration->value(kMetricsKey, nlohmann::json::object()), state.epoch);
  if (saved.metrics.contains(kGoodStepsKey))
    replicas.run([&, good_steps = numbers.count(kGoodStepsKey)](strategy::Replica& replica, int) {
      replica.loss_scaler().restore(static_cast<float>(saved.loss_scale), good_steps);
    });
  const nlohmann::json& configuration = *saved.configuration;
  state.position.validated_step = configuration.value(kValidatedKey, std::int64_t{0});
  if (configuration.contains(kBestKey)) {
    const auto metric = configuration.at(kBestKey).at("metric").get<std::string>();
    if (!metric.ends_with("loss") || has_same_losses(configuration, plan.trainer))
      state.best = {metric, configuration.at(kBestKey).at("value").get<double>()};
  }
  if (configuration.contains(kCallbacksKey)) {
    state.callbacks = configuration.at(kCallbacksKey);
    if (!has_same_losses(configuration, plan.trainer)) reset_loss_monitors(*state.callbacks);
  }
  if (plan.trainer.tune_buckets)
    state.tuned_bytes = saved.configuration->value(kBucketKey, std::size_t{0});
  return state;
} catch (const nlohmann::json::exception&) {
  throw Error(ErrorCategory::checkpoint, restored.path.string(),
              "expected a state.json that a training wrote",
              "a value of its configuration has another type");
}

}  // namespace lockstep::inline v0::train
