#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/command_line/command_line.h"
#include "apps/lockstep/command_line/output_arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/process_setup.h"
#include "apps/lockstep/train/run_directory.h"
#include "apps/lockstep/train/train_arguments.h"
#include "apps/lockstep/train/train_defaults.h"
#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/operator_settings.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/callbacks/csv_log.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/json_events.h"
#include "lockstep/train/callbacks/metrics_exporter.h"
#include "lockstep/train/callbacks/plateau.h"
#include "lockstep/train/callbacks/progress.h"
#include "lockstep/train/callbacks/stragglers.h"
#include "lockstep/train/fit/remembered_route.h"
#include "lockstep/train/input/class_weights.h"
#include "lockstep/train/input/target_scale.h"
#include "lockstep/train/tensorboard/summaries.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {
namespace {

/// Exit status after a signal: this plus the signal's number, as shells report it.
constexpr int kSignalStatus = 128;

/// Limit on how long a run blocks on an output that is not read. Shorter than the grace period of
/// schedulers.
constexpr double kOutputPatienceSeconds = 10;

/// The options of the command line in the forms in which a training stores them.
struct Configuration {
  std::vector<std::pair<std::string, std::string>> options;  ///< those that are set
  nlohmann::json json;                                       ///< for state.json
  std::string markdown;                                      ///< for TensorBoard
};

Configuration describe(const TrainArguments& arguments) {
  const std::vector<BoundField> fields = fields_of(arguments);
  Configuration configuration{.options = config_values(fields),
                              .json = nlohmann::json::object(),
                              .markdown = fmt::format("```\n{}```\n", config_text(fields))};
  for (const auto& [name, value] : configuration.options) configuration.json[name] = value;
  return configuration;
}

/// The name of the directory of checkpoints, else of the summaries; empty if there is neither.
std::string run_name(const TrainArguments& arguments, const std::filesystem::path& checkpoints) {
  const bool names_summaries =
      !arguments.summary_dir.empty() && (checkpoints.empty() || arguments.chooses_directory);
  const std::filesystem::path directory =
      names_summaries ? std::filesystem::path(arguments.summary_dir) : checkpoints;
  if (directory.empty()) return {};
  std::error_code unknown;  // if the working directory was removed
  const std::filesystem::path whole =
      std::filesystem::absolute(directory, unknown).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// Callbacks of all ranks come first, so that a wrong metric is an error before any output.
std::vector<std::shared_ptr<train::Callback>> make_callbacks(const TrainArguments& arguments,
                                                             const strategy::Strategy& strategy,
                                                             const Configuration& configuration,
                                                             const std::string& run) {
  std::vector<std::shared_ptr<train::Callback>> callbacks;
  if (arguments.early_stopping)
    callbacks.push_back(std::make_shared<train::EarlyStopping>(*arguments.early_stopping));
  if (arguments.plateau)
    callbacks.push_back(std::make_shared<train::ReduceOnPlateau>(*arguments.plateau));
  if (!strategy.is_chief()) return callbacks;
  if (!arguments.csv_log.empty())
    callbacks.push_back(
        std::make_shared<train::CsvLog>(arguments.csv_log, strategy.session().logger()));
  if (!arguments.events.empty())
    callbacks.push_back(std::make_shared<train::JsonEvents>(
        std::filesystem::path(arguments.events), arguments.log_every, run, configuration.options,
        strategy.session().logger()));
  if (arguments.output.json)
    callbacks.push_back(std::make_shared<train::JsonEvents>(stdout, arguments.log_every, run,
                                                            configuration.options));
  else if (!arguments.output.quiet)
    callbacks.push_back(std::make_shared<train::ProgressBar>(
        stdout, train::ProgressOptions{.log_every = arguments.log_every,
                                       .verbose = arguments.verbose,
                                       .length = arguments.length}));
  if (!arguments.summary_dir.empty())
    callbacks.push_back(std::make_shared<train::Summaries>(
        arguments.summary_dir, arguments.log_every, configuration.markdown,
        strategy.session().logger(), arguments.summaries));
  if (strategy.num_replicas_in_sync() > 1)
    callbacks.push_back(std::make_shared<train::Stragglers>(
        strategy, train::Stragglers::interval(arguments.log_every)));
  if (arguments.exporter.address || !arguments.exporter.file.empty()) {
    train::MetricsExporterOptions exporter = arguments.exporter;
    exporter.run = run;
    callbacks.push_back(
        std::make_shared<train::MetricsExporter>(exporter, strategy.session().logger()));
  }
  return callbacks;
}

/// Data to evaluate, `spec` or a `part` of the training data, have the classes of the training
/// data, by name or number, and the schema of its table; no bad records are skipped.
data::Dataset open_evaluated(const TrainArguments& arguments, const data::Dataset& training,
                             const std::string& spec, std::optional<data::SplitPart> part) {
  DataArguments same = arguments.data;
  same.open.split.reset();
  if (part) same.open.split = {arguments.split, *part};
  std::int64_t& classes = same.open.tfrecord.classes;
  if (classes == 0) {
    classes = training.spec().classes();
    same.open.tfrecord.classes_by_name = !training.source().info().class_names.empty();
  }
  same.bad_records.reset();  // each record counts once
  same.open.table = training.source().info().table;
  same.open.text = training.source().info().text;
  same.open.features.clear();                            // part of the schema
  same.open.scales_tables = same.open.table != nullptr;  // for a table with like=
  if (!arguments.data.images) same.open.tfrecord.trained_shape = training.source().spec().shape();
  return open_dataset(same, spec, "test", arguments.trainer.seed)
      .batch(arguments.data.global_batch);
}

/// The route of the run that this one resumes.
std::optional<allreduce::Route> remembered_route(const job::Session& session,
                                                 const train::CheckpointPlan& checkpoint) {
  const bool resumes = checkpoint.resume != checkpoint::Resume::never;
  return train::remembered_route(session, resumes ? checkpoint.directory : "");
}

/// Throws Error (data) for labels that are quantities, such as prices: the network would have an
/// output for each value up to the largest.
void require_classes(const data::Dataset& dataset, const TrainArguments& arguments) {
  constexpr std::int64_t kPlausibleClasses = 1000;
  const std::int64_t classes = dataset.spec().classes();
  if (classes > 0 && !dataset.spec().targets.front().shape.empty()) return;  // tokens
  if (arguments.data.open.tfrecord.classes == 0 && dataset.source().info().class_names.empty() &&
      classes > std::max(dataset.size(), kPlausibleClasses))
    throw Error(ErrorCategory::data, dataset.description(),
                "expected labels that number the classes from 0; quantities are trained on with "
                "--loss mean-squared-error, and targets=COLUMN for a table",
                fmt::format("got {} classes in {} records", classes, dataset.size()));
}

/// Sets the metric of the best checkpoint and the directory, unless the options set them. Returns
/// the created directory; null if the options name one, or none.
std::unique_ptr<const RunDirectory> choose_checkpoints(const strategy::Strategy& strategy,
                                                       const TrainArguments& arguments,
                                                       const nlohmann::json& options,
                                                       train::Trainer& trainer,
                                                       train::FitOptions& fit) {
  train::CheckpointPlan& plan = fit.checkpoint;
  job::Agreement(strategy.ranks())
      .require_same("ranks", "place of checkpoints",
                    arguments.chooses_directory ? "a new directory"
                    : plan.directory.empty()    ? "none"
                                                : "a directory");
  if (!arguments.chooses_directory && plan.directory.empty()) return nullptr;
  if (fit.validation && arguments.keep_best.empty()) {
    const auto& early = arguments.early_stopping;
    if (early && early->metric.is_of_validation())
      plan.keep_best = early->metric;
    else
      plan.keep_best = {.name = trainer.replicas().classes() > 0 ? "validation_accuracy"
                                                                 : "validation_loss"};
  }
  if (!arguments.chooses_directory) return nullptr;
  if (strategy.is_chief())
    if (const std::string stopped = unfinished_run(arguments.model, options); !stopped.empty())
      strategy.session().logger()->info(stopped);
  auto created = std::make_unique<const RunDirectory>(strategy.ranks(), arguments.model);
  plan.directory = created->path();
  plan.resume = checkpoint::Resume::never;  // other hosts may have a directory of the same name
  // Disables saving at the end of each epoch: an epoch of a small table is shorter than a save.
  if (plan.save_every == 0) plan.save_every = std::numeric_limits<std::int64_t>::max();
  return created;
}

int train(job::Session& session, TrainArguments arguments, const Configuration& configuration) {
  const PlaceArguments& place = arguments.place;
  std::vector<device::Device> devices =
      job::choose_devices(session, place.devices, place.options.share_gpus);
  // Opens all data before the strategy: building an index may take long, and the watchdog would
  // report a stall.
  DataArguments opened = arguments.data;
  if (arguments.split.is_set()) opened.open.split = {arguments.split, data::SplitPart::training};
  data::Dataset dataset = open_dataset(opened, opened.data, "train", arguments.trainer.seed);
  require_classes(dataset, arguments);
  for (const auto& [option, file] :
       {std::pair<const char*, std::filesystem::path>("--csv-log", arguments.csv_log),
        {"--events", arguments.events},
        {"--profile", arguments.fit.profile},
        {"--trace", arguments.fit.trace.file},
        {"--metrics-file", arguments.exporter.file}})
    for (const auto& [spec, part] :
         {std::pair(arguments.data.data, "train"), std::pair(arguments.validation_data, "test")})
      require_not_read(option, file, spec, arguments.data, part);
  ModelSource source = choose_model(arguments.model, dataset.spec(), arguments.loss.of_classes(),
                                    arguments.data.images.value_or(kImagesAsStored),
                                    arguments.pretrained.reset_head);
  source.losses = arguments.loss.losses;
  source.reads_pixels = dataset.source().info().has_images;
  if (const auto* records = dynamic_cast<const data::TFRecordSource*>(&dataset.source())) {
    source.input_feature = records->decoder().input_feature();
    source.stored_shape = records->spec().shape();
  } else if (dataset.source().info().has_images && !arguments.data.images) {
    source.stored_shape = dataset.source().spec().shape();
  }
  model::Network network = source.make();
  const bool can_scale = arguments.scale_targets && !arguments.autoencoder && !source.script &&
                         !train::is_weights_file(arguments.pretrained.path) &&
                         arguments.loss.losses.empty() &&
                         arguments.trainer.compute.precision == model::Precision::float32;
  if (const auto scale = can_scale ? train::target_scale(dataset) : std::nullopt)
    if (train::scale_targets(*scale, arguments.loss.loss, network) && session.is_chief())
      session.logger()->info(
          fmt::format("target standardized: {}; losses, metrics and predictions are in its unit",
                      scale->text()));
  choose_defaults(arguments, network, dataset.size(),
                  !arguments.validation_data.empty() || arguments.split.validation > 0);
  strategy::TrainerOptions options_of_trainer = arguments.trainer;
  check_losses(arguments.loss, network);
  add_metrics(arguments.metrics, network, options_of_trainer);
  if (arguments.shuffle) dataset = dataset.shuffle();
  dataset = dataset.mixup(arguments.mixup);
  dataset = dataset.batch(arguments.samples_of_step()).shard(arguments.shard_policy);

  strategy::StrategyOptions strategy_options = place.options;
  strategy_options.remembered_route = remembered_route(session, arguments.fit.checkpoint);
  train::FitOptions fit = arguments.fit;
  if (!arguments.validation_data.empty())
    fit.validation = open_evaluated(arguments, dataset, arguments.validation_data, std::nullopt);
  const auto open_part = [&](data::SplitPart part) {
    return open_evaluated(arguments, dataset, arguments.data.data, part);
  };
  if (arguments.split.validation > 0) fit.validation = open_part(data::SplitPart::validation);
  if (arguments.split.test > 0) fit.test = open_part(data::SplitPart::test);
  const auto strategy =
      strategy::make_strategy(session, place.strategy, std::move(devices), strategy_options);
  check_script(*strategy, fit.checkpoint, source);
  (*fit.checkpoint.configuration)[ModelSource::kKey] = source.to_json();
  (*fit.checkpoint.configuration)[kOptionsKey] = configuration.json;
  fit.checkpoint.script = source.code;
  fit.progress = false;  // make_callbacks() adds it
  if (session.is_chief())
    for (const std::string& warning :
         job::placement_warnings(strategy->placements(), fit.read.data_threads))
      session.logger()->warn(warning);
  if (arguments.class_weights == "auto")
    options_of_trainer.class_weights = train::balanced_class_weights(*strategy, dataset);
  train::Trainer trainer(*strategy, std::move(network), options_of_trainer);
  const auto own_directory =
      choose_checkpoints(*strategy, arguments, configuration.json, trainer, fit);
  fit.callbacks = make_callbacks(arguments, *strategy, configuration,
                                 run_name(arguments, fit.checkpoint.directory));
  const train::History history = trainer.fit(dataset, fit);
  if (session.is_chief() && !arguments.output.json && !arguments.output.quiet)
    fmt::print("{}", printable(ending_text(fit.checkpoint.directory, arguments, history.end.signal),
                               "\n"));
  return history.end.signal == 0 ? 0 : kSignalStatus + history.end.signal;
}

}  // namespace

void add_train_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command =
      program.add_subcommand("train",
                             "Train a model, in one process or under mpirun\n\n"
                             "Example:\n"
                             "  lockstep train --model cnn --data fashion-mnist --epochs 5 \\\n"
                             "      --checkpoint-dir run\n");
  const auto arguments = std::make_shared<TrainArguments>();
  add_train_options(*command, *arguments);
  const auto print_config = add_config_options(*command);
  command->callback([=, &status] {
    if (*print_config) {
      if (job::detect_launch().rank == 0)
        print_exactly(config_text(fields_of(std::as_const(*arguments))));
      return;
    }
    const Configuration configuration = describe(*arguments);
    complete(*arguments);
    const double stall_timeout =
        job::OperatorSettings::of(job::process_environment())
            .stall_timeout.value_or(arguments->place.options.stall_timeout);
    // While the chief blocks on its output, the other ranks wait, and their watchdogs are running.
    const double patience = std::min(kOutputPatienceSeconds, stall_timeout / 2);
    invocation.streams->limit_waiting(
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(patience)));
    status = run_session(invocation,
                         {.quiet = arguments->output.quiet,
                          .verbose = arguments->verbose,
                          .stall_timeout = stall_timeout,
                          .start_timeout = arguments->place.start_timeout,
                          .transport = arguments->place.transport},
                         [&](job::Session& session) {
                           arguments->data.open.tfrecord.exchange =
                               strategy::index_exchange(session);
                           arguments->data.open.log = session.logger();
                           return train(session, *arguments, configuration);
                         });
  });
}

}  // namespace lockstep::inline v0::apps
