#include "apps/lockstep/checkpoint_source.h"

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"

namespace lockstep::apps {
namespace {

void check_arguments(const RestoredArguments& arguments) {
  const auto require = [](const char* option, const std::string& value) {
    if (value.empty())
      throw Error(ErrorCategory::input, "command line", std::string("needed ") + option, "it was not given");
  };
  require("--checkpoint DIR", arguments.checkpoint);
  require("--data", arguments.data.data);
  require_at_least("--global-batch", arguments.data.global_batch, 1);
  require_at_least("--data-threads", arguments.data.threads, 1);
  require_at_least("--prefetch", arguments.data.prefetch, 1);
  static_cast<void>(model::parse_precision(arguments.precision));
}

}  // namespace

void add_restored_options(CLI::App& command, RestoredArguments& arguments) {
  command.add_option("--checkpoint", arguments.checkpoint,
                     "A directory of checkpoints (its newest is taken), or one checkpoint in it");
  add_data_options(command, arguments.data);
  add_place_options(command, arguments.place);
  command.add_option("--precision", arguments.precision, kPrecisionHelp)->capture_default_str()->group("Model");
  add_output_options(command, arguments.output);
}

Restored restore(job::Session& session, const RestoredArguments& arguments) {
  check_arguments(arguments);
  auto strategy = choose_strategy(session, arguments.place);
  ModelSource source = model_of_checkpoint(*strategy, arguments.checkpoint);
  // Records that say no number of classes of their own are read as the model wants them, and images are prepared as
  // they were for its training.
  DataArguments data = arguments.data;
  if (data.classes == 0 && source.loss != "mean-squared-error") data.classes = source.outputs;
  if (data.images.empty()) data.images = source.images;
  data::Dataset dataset = open_dataset(data, data.data, "test", 1).batch(data.global_batch);
  auto trainer = std::make_unique<strategy::Trainer>(
      *strategy, source.make(),
      strategy::TrainerOptions{.loss = parse_loss(source.loss, source.label_smoothing),
                               .precision = model::parse_precision(arguments.precision)});
  checkpoint::RestoredCheckpoint checkpoint = trainer->restore(arguments.checkpoint);
  return {std::move(strategy), std::move(source), std::move(dataset), std::move(trainer), std::move(checkpoint)};
}

}  // namespace lockstep::apps
