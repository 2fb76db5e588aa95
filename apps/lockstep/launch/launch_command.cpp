#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/launch/first_task.h"
#include "apps/lockstep/launch/messages.h"
#include "apps/lockstep/launch/other_task.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/launch/task.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr const char* kExplanation =
    R"(Every task of the job runs the same command line. Rank 0 runs mpirun over the
hosts of all tasks, and every task exits with mpirun's exit status. This
requires mpirun on every host, but neither ssh nor a shared file system. Ranks
and the rendezvous are taken from the first of these that is set in the
environment:

  1. RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT (and LOCAL_RANK,
     LOCAL_WORLD_SIZE), as set by torchrun and Kubeflow's PyTorchJob. The
     rendezvous is MASTER_ADDR:MASTER_PORT.
  2. TF_CONFIG: chief and workers are the ranks, in this order. The rendezvous
     is the address of the first. An evaluator is a separate job; parameter
     servers are not supported.
  3. A Slurm step, if srun does not support PMIx: SLURM_PROCID,
     SLURM_STEP_NUM_TASKS and SLURM_STEP_NODELIST. The rendezvous is the first
     node, at port 15000 + SLURM_JOB_ID modulo 15000.

Tasks authenticate each other with the secret of the job, which is in the file
that LOCKSTEP_JOB_SECRET_FILE names (mode 600) or in LOCKSTEP_JOB_SECRET: at
least 16 bytes, the same for all tasks. Tasks on one host that use a loopback
rendezvous need no secret; they check that they belong to the same user.

Exit status: that of the command, as reported by mpirun (128 + N if signal N
ended it); 2 if the environment is inconsistent or mpirun is not installed; 4
if a task does not connect, is lost, or cannot reach another host; 128 + N for
signal N before the command runs. The first SIGTERM, SIGINT or SIGHUP is
forwarded to the ranks, which may save a checkpoint; the next one to the same
task ends the job.)";

struct LaunchArguments {
  launch::LaunchOptions options;
  bool print = false;
};

/// The arguments after the first `--`.
std::vector<std::string> launched_command(const Invocation& invocation) {
  const std::vector<std::string> words(invocation.argv + 1, invocation.argv + invocation.argc);
  return {std::ranges::find(words, "--") + 1, words.end()};
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

job::Task require_task(const job::Environment& environment) {
  const job::Launch launch = job::detect_launch(environment);
  auto task = job::find_task(environment);
  const bool is_rank = launch.launched && launch.connects &&
                       (!task || task->source != "srun" || launch.launcher == "mpirun");
  if (is_rank)
    throw Error(ErrorCategory::input, "launch",
                "expected a process that was not started by an MPI launcher",
                fmt::format("{} started it as rank {}: remove `lockstep launch --`",
                            launch.launcher, launch.rank));
  if (task) return *task;
  throw Error(ErrorCategory::input, "launch",
              "expected RANK and WORLD_SIZE, TF_CONFIG, or the variables of a Slurm step in the "
              "environment",
              "none of them is set; on one host, use `mpirun -np N COMMAND` instead");
}

void require_endpoint(const job::Task& task) {
  if (task.ranks == 1 || (!task.rendezvous.host.empty() && task.rendezvous.port != 0)) return;
  throw Error(ErrorCategory::input, "launch",
              "expected the host and port of the rendezvous: MASTER_ADDR and MASTER_PORT, or "
              "--rendezvous HOST:PORT",
              fmt::format("got \"{}\" and {}", task.rendezvous.host, task.rendezvous.port));
}

/// Parses "HOST:PORT", "HOST" or ":PORT". A missing part is taken from `known`.
job::Endpoint endpoint(const std::string& text, const job::Endpoint& known) {
  if (text.starts_with(':'))
    return {.host = known.host, .port = job::parse_address("launch", "any" + text).port};
  job::Endpoint point = job::parse_address("launch", text);
  if (point.port == 0) point.port = known.port;
  return point;
}

/// mpirun would parse "a:2" and "a,b" as more than one name.
void require_host_name(const std::string& name) {
  if (name.empty() || launch::is_host_name(name)) return;
  throw Error(ErrorCategory::input, "launch",
              "expected a name of letters, digits, dots and dashes for --host",
              fmt::format("got {}", describe_json(name)));
}

/// Prints the roles as shell comments, then mpirun's command line.
void print_line(const job::Task& task, const launch::MpirunOptions& options) {
  if (task.hosts.empty())
    throw Error(ErrorCategory::input, "launch",
                "expected the host of every rank for --print, as TF_CONFIG and srun provide it",
                fmt::format("got none from {}", task.source));
  for (const std::string& host : task.hosts)
    if (!launch::is_host_name(host))
      throw Error(
          ErrorCategory::input, "launch", "expected names or IPv4 addresses of hosts for --print",
          host.find(':') == std::string::npos
              ? fmt::format("got \"{}\"", host)
              : fmt::format("got \"{}\", which mpirun parses as a host and a number of ranks",
                            host));
  for (std::size_t rank = 0; rank < task.names.size(); ++rank)
    fmt::print("# rank {}: {} on {}{}\n", rank, task.names[rank], task.hosts[rank],
               rank == 0 ? ", writes checkpoints" : "");
  fmt::print("{}\n", launch::to_shell(mpirun_command(launch::plan_job_on(task.hosts), options, {},
                                                     launch::runtime_here())));
}

/// Prints the job's error. The tasks of a Slurm step share their output, so there only the first
/// task prints it.
int leave(const launch::Ending& ending, const job::Task& task) {
  if (!ending.message.empty() && task.source != "srun")
    fmt::print(stderr, "lockstep: error: {}\n", printable(ending.message));
  return ending.status;
}

int launch_task(const LaunchArguments& arguments) {
  job::Task task = require_task(job::process_environment());
  require_host_name(arguments.options.host);
  if (const std::string& given = arguments.options.rendezvous; !given.empty())
    task.rendezvous = endpoint(given, task.rendezvous);
  if (arguments.print) {
    if (task.source != "srun" || task.rank == 0)
      print_line(task,
                 arguments.options.mpirun);  // srun starts this program on every rank; print once
    return 0;
  }
  require_endpoint(task);
  launch::LaunchOptions options = arguments.options;
  if (auto secret = net::find_job_secret(std::getenv(net::kSecretFileVariable),
                                         std::getenv(net::kSecretVariable)))
    options.secret = std::move(*secret);
  if (task.rank == 0) return launch::FirstTask(options, task).run();
  try {
    return leave(launch::OtherTask(options, task).run(), task);
  } catch (const Error& error) {  // local to this task: rank 0 does not report it
    fmt::print(stderr, "lockstep: error: {}\n", error.what());
    return exit_status(error.category());
  }
}

}  // namespace

void add_launch_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(kLaunchCommand,
                                             "Run a command as one MPI job from processes started "
                                             "without MPI: lockstep launch -- COMMAND…");
  const auto arguments = std::make_shared<LaunchArguments>();
  add_fields(*command, fields_of(arguments->options));
  command->add_flag("--print", arguments->print,
                    "Print the roles and mpirun's command line, and exit");
  command->footer(kExplanation);
  command->callback([=, &status] {
    arguments->options.mpirun.command = launched_command(invocation);
    status = launch_task(*arguments);
  });
}

std::vector<std::string> without_launched_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != kLaunchCommand) return arguments;
  const auto mark = std::ranges::find(arguments, "--");
  if (arguments.end() - mark < 2 && !asks_for_help(arguments))
    throw Error(ErrorCategory::input, "launch",
                "expected a command after --: lockstep launch -- COMMAND…", "there is none");
  arguments.erase(mark, arguments.end());
  return arguments;
}

}  // namespace lockstep::inline v0::apps
