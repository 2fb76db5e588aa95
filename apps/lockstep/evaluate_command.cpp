#include "apps/lockstep/evaluate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/lockstep/model_source.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/job/delayed_termination.h"

namespace lockstep::apps {
namespace {

void print_json(const Restored& restored, const model::MetricSums& sums) {
  nlohmann::ordered_json event = {{"event", "evaluate"},
                                  {"checkpoint", restored.checkpoint.path.string()},
                                  {"step", restored.checkpoint.state.step},
                                  {"samples", sums.samples},
                                  {"records", restored.dataset.size()},
                                  {"loss", sums.mean_loss()}};
  if (sums.has_accuracy) {
    event["accuracy"] = sums.accuracy();
    event["top5_accuracy"] = sums.top5_accuracy();
    event["correct"] = sums.correct;
  }
  event["world_size"] = restored.strategy->num_replicas_in_sync();
  event["parameter_hash"] = checkpoint::hex16(restored.trainer->parameter_hash());
  fmt::print("{}\n", dump_json(event));
}

void print_text(const Restored& restored, const model::MetricSums& sums) {
  fmt::print("{} (step {}) on {}\n", restored.checkpoint.path.string(), restored.checkpoint.state.step,
             restored.dataset.description());
  fmt::print("loss {:.6f}", sums.mean_loss());
  if (sums.has_accuracy) fmt::print(", accuracy {:.4f}, top-5 accuracy {:.4f}", sums.accuracy(), sums.top5_accuracy());
  fmt::print("\nevaluated {} of {}\n", sums.samples, restored.dataset.size());
}

int evaluate(job::Session& session, const RestoredArguments& arguments) {
  const Restored restored = restore(session, arguments);
  const model::MetricSums sums = restored.trainer->evaluate(restored.dataset);
  if (!session.is_chief()) return 0;
  if (arguments.output.json())
    print_json(restored, sums);
  else
    print_text(restored, sums);
  return 0;
}

}  // namespace

void add_evaluate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command =
      program.add_subcommand("evaluate", "Evaluate a checkpoint on a data set, in one process or under mpirun");
  const auto arguments = std::make_shared<RestoredArguments>();
  add_restored_options(*command, *arguments);
  command->callback([=, &status] {
    check_restored_options(*arguments);
    job::Session session(invocation.argc, invocation.argv,
                         {.quiet = arguments->output.quiet, .stall_timeout = arguments->place.options.stall_timeout});
    const job::DelayedTermination late(session);
    status = session.guard([&] { return evaluate(session, *arguments); });
  });
}

}  // namespace lockstep::apps
