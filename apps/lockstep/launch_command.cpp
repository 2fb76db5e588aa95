#include "apps/lockstep/launch_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/lockstep/launch/fields.h"
#include "apps/lockstep/launch/first_task.h"
#include "apps/lockstep/launch/other_task.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/job/launcher.h"
#include "lockstep/job/task.h"
#include "lockstep/net/token.h"

namespace lockstep::apps {
namespace {

constexpr const char* kExplanation =
    R"(Every task of the job runs the same line; one of them, rank 0, runs mpirun over the hosts of all, and every task leaves
with mpirun's exit status. Neither ssh nor a common file system is needed, only mpirun on every host. Who is who, from
the first of these that the environment has:

  1. RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT (and LOCAL_RANK, LOCAL_WORLD_SIZE): as torchrun and Kubeflow's
     PyTorchJob set them. Tasks meet at MASTER_ADDR:MASTER_PORT.
  2. TF_CONFIG: chief and workers are the ranks, in this order, and meet at the address of the first. An evaluator is a
     job of its own; there are no parameter servers.
  3. Slurm's step, where srun does not speak PMIx: SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_STEP_NODELIST. Tasks meet
     at the first node, at port 15000 + SLURM_JOB_ID modulo 15000.

Tasks prove to each other that they know the secret of the job, which is in the file that LOCKSTEP_JOB_SECRET_FILE names
(mode 600) or in LOCKSTEP_JOB_SECRET: at least 16 bytes, the same for all tasks. Tasks of one host that meet at
loopback need none: they check that they are of one user.

Exit status: the command's, as mpirun reports it (128 + N where signal N ended it); 2 where the environment contradicts
itself or there is no mpirun; 4 where a task does not come, is lost, or cannot reach another host; 128 + N on signal N
before the command runs. The first SIGTERM, SIGINT or SIGHUP goes to ranks, which may save what they have; the next of the
same task ends the job.)";

struct LaunchArguments {
  launch::LaunchOptions options;
  std::string meet;
  std::string mpirun;
  bool print = false;
};

/// The words after the first `--`.
std::vector<std::string> launched_command(const Invocation& invocation) {
  const std::vector<std::string> words(invocation.argv + 1, invocation.argv + invocation.argc);
  return {std::ranges::find(words, "--") + 1, words.end()};
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

job::Task require_task(const job::Environment& environment) {
  const job::Launch launch = job::detect_launch(environment);
  auto task = job::find_task(environment);
  const bool is_rank =
      launch.launched && launch.connects && (!task || task->source != "srun" || launch.launcher == "mpirun");
  if (is_rank)
    throw Error(
        ErrorCategory::input, "launch", "needed a process that was started without MPI",
        fmt::format("{} has started it as rank {}: leave `lockstep launch --` out", launch.launcher, launch.rank));
  if (task) return *task;
  throw Error(ErrorCategory::input, "launch",
              "needed RANK and WORLD_SIZE, a TF_CONFIG, or a step of srun in the environment",
              "it has none of them; on one host `mpirun -np N COMMAND` needs none");
}

void require_meeting_point(const job::Task& task) {
  if (task.ranks == 1 || (!task.meeting.host.empty() && task.meeting.port != 0)) return;
  throw Error(ErrorCategory::input, "launch",
              "needed a host and a port to meet at: MASTER_ADDR and MASTER_PORT, or --meet HOST:PORT",
              fmt::format("got \"{}\" and {}", task.meeting.host, task.meeting.port));
}

/// "HOST:PORT", or one of them alone (":PORT"), with the other of `told`.
job::MeetingPoint meeting_point(const std::string& given, const job::MeetingPoint& told) {
  if (given.starts_with(':')) return {.host = told.host, .port = job::parse_address("launch", "any" + given).port};
  job::MeetingPoint point = job::parse_address("launch", given);
  if (point.port == 0) point.port = told.port;
  return point;
}

/// mpirun takes "a:2" and "a,b" for more than a name.
void require_host_name(const std::string& name) {
  if (name.empty() || launch::is_host_name(name)) return;
  throw Error(ErrorCategory::input, "launch", "needed a name of letters, digits, dots and dashes for --host",
              fmt::format("got {}", describe_json(name)));
}

/// The roles as comments of a shell, then the line.
void print_line(const job::Task& task, const launch::MpirunOptions& options) {
  if (task.hosts.empty())
    throw Error(ErrorCategory::input, "launch",
                "needed the host of every rank for --print, as TF_CONFIG and srun tell them",
                fmt::format("got none from {}", task.source));
  for (const std::string& host : task.hosts)
    if (host.find(':') != std::string::npos)
      throw Error(ErrorCategory::input, "launch", "needed names or IPv4 addresses of hosts for --print",
                  fmt::format("got \"{}\", which mpirun takes for a host and its number of ranks", host));
  for (std::size_t rank = 0; rank < task.names.size(); ++rank)
    fmt::print("# rank {}: {} on {}{}\n", rank, task.names[rank], task.hosts[rank],
               rank == 0 ? ", writes checkpoints" : "");
  fmt::print("{}\n",
             launch::to_shell(mpirun_command(launch::plan_job_on(task.hosts), options, {}, launch::runtime_here())));
}

/// What the first task has told all tasks of a step of srun need not say again: they share their output.
int leave(const launch::Ending& ending, const job::Task& task) {
  if (!ending.message.empty() && task.source != "srun") fmt::print(stderr, "lockstep: error: {}\n", ending.message);
  return ending.status;
}

int launch_task(const LaunchArguments& arguments) {
  job::Task task = require_task(job::process_environment());
  require_host_name(arguments.options.host);
  if (!arguments.meet.empty()) task.meeting = meeting_point(arguments.meet, task.meeting);
  if (arguments.print) {
    if (task.source != "srun" || task.rank == 0)
      print_line(task, arguments.options.mpirun);  // it starts this everywhere
    return 0;
  }
  require_meeting_point(task);
  launch::LaunchOptions options = arguments.options;
  if (auto secret = net::find_job_secret(std::getenv(net::kSecretFileVariable), std::getenv(net::kSecretVariable)))
    options.secret = std::move(*secret);
  if (task.rank == 0) return launch::FirstTask(options, task).run();
  try {
    return leave(launch::OtherTask(options, task).run(), task);
  } catch (const Error& error) {  // of this task alone: rank 0 does not say it
    fmt::print(stderr, "lockstep: error: {}\n", error.what());
    return exit_status(error.category());
  }
}

}  // namespace

void add_launch_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      kLaunchCommand, "Make one MPI job out of processes that were started without MPI: lockstep launch -- COMMAND…");
  const auto arguments = std::make_shared<LaunchArguments>();
  launch::LaunchOptions& options = arguments->options;
  command
      ->add_option("--timeout", options.timeout, "Seconds for all tasks to come, and for mpirun to reach their hosts")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--stall-timeout", options.stall_timeout,
                   "Seconds without an answer after which the host of a task counts as lost")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command->add_option("--meet", arguments->meet,
                      "HOST:PORT of rank 0, in place of what the environment says; or one of them, as :PORT");
  command->add_option(
      "--job", options.job,
      "A name that all tasks of the job give, and no others do; by default of what the environment says");
  command->add_option("--host", options.host,
                      "What the host of this task is called, in place of the system's name; tasks with the same name "
                      "share memory");
  command
      ->add_option("--interface", options.mpirun.interface,
                   "Network interfaces or networks (eth0, 10.0.0.0/8) of MPI; any: its own choice; auto: the one by "
                   "which the tasks met, where it has the same name on all hosts and Open MPI is told of no other")
      ->capture_default_str();
  command->add_option("--mpirun", arguments->mpirun,
                      "More options of mpirun, separated by spaces, such as \"--map-by slot:PE=8\"; ranks are bound to "
                      "no cores (--bind-to none) where these do not say otherwise");
  command->add_flag("--print", arguments->print, "Print the roles and mpirun's command line, and do nothing else");
  command->footer(kExplanation);
  command->callback([=, &status] {
    arguments->options.mpirun.command = launched_command(invocation);
    std::istringstream words(arguments->mpirun);
    for (std::string word; words >> word;) arguments->options.mpirun.more.push_back(word);
    status = launch_task(*arguments);
  });
}

std::vector<std::string> without_launched_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != kLaunchCommand) return arguments;
  const auto mark = std::ranges::find(arguments, "--");
  if (arguments.end() - mark < 2 && !asks_for_help(arguments))
    throw Error(ErrorCategory::input, "launch", "needed a command behind --: lockstep launch -- COMMAND…",
                "there is none");
  arguments.erase(mark, arguments.end());
  return arguments;
}

}  // namespace lockstep::apps
