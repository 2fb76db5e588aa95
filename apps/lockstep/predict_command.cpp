#include "apps/lockstep/predict_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "apps/lockstep/checkpoint_source.h"
#include "apps/lockstep/prediction_file.h"
#include "lockstep/base/error.h"
#include "lockstep/job/delayed_termination.h"

namespace lockstep::apps {
namespace {

struct PredictArguments {
  RestoredArguments restored;
  std::string output;
};

int predict(job::Session& session, const PredictArguments& arguments) {
  if (arguments.output.empty())
    throw Error(ErrorCategory::input, "command line", "needed --output FILE.csv or FILE.jsonl", "it was not given");
  const Restored restored = restore(session, arguments.restored);
  const bool classes = restored.source.loss != "mean-squared-error";
  std::optional<PredictionFile> file;
  if (session.is_chief())
    file.emplace(arguments.output, model::element_count(restored.trainer->network().output_shape()), classes);
  restored.trainer->predict(restored.dataset,
                            [&](const strategy::Predictions& predictions) { file->add(predictions); });
  if (!file) return 0;
  file->commit();
  if (!arguments.restored.output.quiet)
    fmt::print(stderr, "lockstep: predicted {} of {} records with {}, written to {}\n", file->records(),
               restored.dataset.size(), restored.checkpoint.path.string(), arguments.output);
  return 0;
}

}  // namespace

void add_predict_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command =
      program.add_subcommand("predict", "Predictions of a checkpoint for a data set, to a file; alone or under mpirun");
  const auto arguments = std::make_shared<PredictArguments>();
  command->add_option("--output", arguments->output,
                      "FILE.csv or FILE.jsonl; a line for each record, in the order of the data set");
  add_restored_options(*command, arguments->restored);
  command->callback([=, &status] {
    job::Session session(
        invocation.argc, invocation.argv,
        {.quiet = arguments->restored.output.quiet, .stall_timeout = arguments->restored.place.stall_timeout});
    const job::DelayedTermination late(session);
    status = session.guard([&] { return predict(session, *arguments); });
  });
}

}  // namespace lockstep::apps
