#include "apps/lockstep/train_command.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/standard_streams.h"
#include "apps/lockstep/train_arguments.h"
#include "lockstep/job/delayed_termination.h"
#include "lockstep/job/launcher.h"
#include "lockstep/strategy/callbacks/json_events.h"
#include "lockstep/strategy/callbacks/progress.h"
#include "lockstep/strategy/callbacks/stragglers.h"
#include "lockstep/strategy/callbacks/summaries.h"
#include "lockstep/strategy/remembered_route.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {
namespace {

/// Exit status after a signal: this plus the signal's number, as shells report it.
constexpr int kSignalStatus = 128;

/// Limit on how long a run blocks on an output that is not read. Shorter than the grace period of schedulers.
constexpr double kOutputPatienceSeconds = 10;

/// The configuration as JSON (state.json) and as Markdown (the text of the summary).
struct Configuration {
  nlohmann::json json;
  std::string markdown;
};

Configuration describe(const std::string& options, const ModelSource& model) {
  Configuration configuration;
  configuration.json = {{ModelSource::kKey, model.to_json()}, {"options", options}};
  configuration.markdown = fmt::format("```\n{}```\n", options);
  return configuration;
}

std::vector<std::shared_ptr<strategy::Callback>> make_callbacks(const TrainArguments& arguments,
                                                                const strategy::Strategy& strategy,
                                                                const std::string& markdown) {
  std::vector<std::shared_ptr<strategy::Callback>> callbacks;
  if (arguments.output.json())
    callbacks.push_back(std::make_shared<strategy::JsonEvents>(stdout, arguments.log_every));
  else if (!arguments.output.quiet)
    callbacks.push_back(std::make_shared<strategy::Progress>(
        stdout, strategy::Progress::Options{.log_every = arguments.log_every, .terminal = is_watched(STDOUT_FILENO)}));
  if (!arguments.summary_dir.empty())
    callbacks.push_back(std::make_shared<strategy::Summaries>(arguments.summary_dir, arguments.log_every, markdown,
                                                              strategy.session().logger()));
  if (strategy.num_replicas_in_sync() > 1)
    callbacks.push_back(
        std::make_shared<strategy::Stragglers>(strategy, std::max<std::int64_t>(1, arguments.log_every)));
  return callbacks;
}

strategy::FitOptions fit_options(const TrainArguments& arguments) {
  strategy::FitOptions fit;
  fit.epochs = arguments.epochs == 0 && arguments.steps == 0 ? 1 : arguments.epochs;
  fit.steps = arguments.steps;
  fit.checkpoint.directory = arguments.checkpoint_dir;
  fit.checkpoint.save_every = arguments.save_every;
  fit.checkpoint.keep = arguments.keep;
  fit.checkpoint.resume = checkpoint::parse_resume(arguments.resume);
  fit.checkpoint.verify = checkpoint::parse_verify_checkpoint(arguments.verify_checkpoint);
  fit.prefetch = arguments.data.prefetch;
  fit.data_threads = arguments.data.threads;
  fit.check_replicas = arguments.check_replicas;
  fit.signals = {SIGTERM, SIGINT, SIGHUP};
  if (!arguments.init_from.empty()) fit.pretrained = {arguments.init_from, arguments.reset_head};
  return fit;
}

/// The validation data have the same number of classes as the training data, and no bad records are skipped.
data::Dataset open_validation(const TrainArguments& arguments, const data::SampleSpec& spec) {
  DataArguments same = arguments.data;
  if (same.classes == 0) same.classes = spec.classes;
  same.bad_records = "fail";  // each record counts once
  return open_dataset(same, arguments.validation_data, "test", arguments.seed).batch(arguments.data.global_batch);
}

int train(job::Session& session, const TrainArguments& arguments, const std::string& options) {
  check_arguments(arguments);
  check_places(arguments.place);
  // Before the strategy: building an index may take long, and the watchdog would report a stall.
  data::Dataset dataset = open_dataset(arguments.data, arguments.data.data, "train", arguments.seed);
  ModelSource source = choose_model(arguments.model, dataset.spec(), arguments.loss, arguments.label_smoothing);
  if (!arguments.data.images.empty()) source.images = arguments.data.images;
  if (arguments.shuffle) dataset = dataset.shuffle();
  dataset = dataset.mixup(arguments.mixup);
  dataset = dataset.batch(arguments.data.global_batch).shard(data::parse_shard_policy(arguments.shard_policy));

  const bool resumes = checkpoint::parse_resume(arguments.resume) != checkpoint::Resume::never;
  const auto strategy = choose_strategy(session, arguments.place,
                                        strategy::remembered_route(session, resumes ? arguments.checkpoint_dir : ""));
  strategy::FitOptions fit = fit_options(arguments);
  if (!arguments.validation_data.empty()) fit.validation = open_validation(arguments, dataset.spec());
  const Configuration configuration = describe(options, source);
  fit.checkpoint.configuration = configuration.json;
  if (session.is_chief()) fit.callbacks = make_callbacks(arguments, *strategy, configuration.markdown);

  if (session.is_chief())
    for (const std::string& warning : job::placement_warnings(strategy->placements(), arguments.data.threads))
      session.logger()->warn(warning);
  strategy::Trainer trainer(*strategy, source.make(), trainer_options(arguments));
  const bool speaks = session.is_chief() && !arguments.output.json() && !arguments.output.quiet;
  if (speaks) fmt::print("{}", strategy->table());
  const strategy::History history = trainer.fit(dataset, fit);
  return history.end.signal == 0 ? 0 : kSignalStatus + history.end.signal;
}

}  // namespace

void add_train_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand("train", "Train a model, in one process or under mpirun");
  const auto arguments = std::make_shared<TrainArguments>();
  add_train_options(*command, *arguments);
  const auto print_config = add_config_options(*command);
  command->callback([=, &status] {
    const std::string options = config_text(*command);
    if (*print_config) {
      if (job::detect_launch().rank == 0) fmt::print("{}", options);
      return;
    }
    // While the chief blocks on its output, the other ranks wait, and their watchdogs are running.
    const double patience = std::min(kOutputPatienceSeconds, arguments->place.stall_timeout / 2);
    invocation.streams->limit_waiting(
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(patience)));
    job::Session session(invocation.argc, invocation.argv,
                         {.quiet = arguments->output.quiet, .stall_timeout = arguments->place.stall_timeout});
    const job::DelayedTermination late(session);
    status = session.guard([&] { return train(session, *arguments, options); });
  });
}

}  // namespace lockstep::apps
