// The program `lockstep`. Each command has its own file; an error is printed as one line on
// standard error.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line/command_line.h"
#include "apps/lockstep/command_line/help_formatter.h"
#include "apps/lockstep/command_line/parse_error.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/launch/start_monitor.h"
#include "lockstep/job/run.h"

namespace {

using namespace lockstep;

/// Parses the command line. Each command runs as a callback of the parser.
int run(const apps::Invocation& invocation) {
  int status = 0;
  CLI::App program("Lockstep: synchronous data-parallel training", "lockstep");
  program.require_subcommand(1);
  program.formatter(std::make_shared<apps::HelpFormatter>(apps::help_width()));
  program.set_version_flag(
      "--version", apps::version_line(),
      "Print the version of this program; `lockstep version` also prints those of libraries");
  program.option_defaults()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);  // options appended to a script's command line override
                                          // its own
  apps::add_train_command(program, invocation, status);
  apps::add_evaluate_command(program, invocation, status);
  apps::add_predict_command(program, invocation, status);
  apps::add_quantize_command(program, invocation, status);
  apps::add_generate_command(program, invocation, status);
  apps::add_data_commands(program);
  apps::add_checkpoint_command(program, std::cout);
  apps::add_inspect_command(program, std::cout);
  apps::add_allreduce_bench_command(program, invocation, status);
  apps::add_doctor_command(program, invocation, status);
  apps::add_plan_command(program, invocation, status);
  apps::add_launch_command(program, invocation, status);
  apps::add_report_command(program);
  apps::add_version_command(program);

  // Before the command runs, because a command without a session may run for any time.
  program.parse_complete_callback([&] { invocation.start->leave(); });
  // Set after the commands, which would inherit it.
  program.footer(
      "`lockstep COMMAND --help` or `lockstep help COMMAND` lists the options of a command.");

  std::vector<std::string> arguments = apps::without_launched_command(
      apps::without_help_command({invocation.argv + 1, invocation.argv + invocation.argc}));
  if (const auto schema = apps::help_as_json(arguments, program)) {
    if (job::detect_launch().rank == 0) fmt::print("{}\n", *schema);
    return 0;
  }
  apps::require_one_name(arguments, program);
  arguments = apps::with_config_file(std::move(arguments), program);
  try {
    // CLI11 expects them in reverse order, and changes them.
    program.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (const auto refused = apps::to_error(error, program, arguments)) throw Error(*refused);
    if (job::detect_launch().rank != 0) return 0;
    std::signal(SIGPIPE, SIG_DFL);  // as in other programs, `| head` ends a help
    return program.exit(error);
  }
  return status;
}

constexpr job::StartCall kCommandLine{
    .name = "the reading of the command line",
    .advice = "a file that an option names, such as --config, is not readable on this host"};

/// Monitors the start of a rank. Not needed in a single process, for which no other rank waits.
std::shared_ptr<job::StartMonitor> monitor_start() {
  constexpr double kUntilOptionsAreKnown = 60;  // seconds
  auto monitor = std::make_shared<job::StartMonitor>();
  monitor->enter(kCommandLine);
  if (job::detect_launch().launched) monitor->watch(kUntilOptionsAreKnown);
  return monitor;
}

}  // namespace

int main(int argc, char** argv) {
  apps::restore_inherited_hangup();
  apps::StandardStreams streams;
  try {
    return streams.finish(run({argc, argv, &streams, monitor_start()}));
  } catch (...) {
    const job::Failure failure = job::describe_current_exception();
    job::print_before_session(failure);
    return streams.finish(failure.exit_status);
  }
}
