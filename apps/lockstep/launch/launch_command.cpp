#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/launch/launcher.h"
#include "apps/lockstep/launch/ranks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/fields.h"
#include "lockstep/base/system/host.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/launch/task.h"
#include "lockstep/net/socket.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr const char* kPart = "--part";
constexpr const char* kExplanation =
    R"(Starts N ranks of the command, which connect to each other over TCP. MPI is not
needed. Each rank has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and a secret of the job in its environment; and, for
scripts of Horovod, HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK and
HOROVOD_LOCAL_SIZE. -np and -H are other names of --np and --hosts.

With --hosts node1:2,node2:2, ranks 0 and 1 run on node1, 2 and 3 on node2, by
ssh without a password. The program, the directory and the data must have the
same path on every host.

Under mpirun, srun, torchrun, or a controller that sets RANK and WORLD_SIZE, or
TF_CONFIG, run the command without `lockstep launch`.

Exit status: that of the rank that failed first (128 + N if signal N ended it);
2 if a program is missing. The first SIGTERM, SIGINT or SIGHUP is forwarded to
the ranks, which may save a checkpoint; the next one kills them.)";

struct LaunchArguments {
  std::optional<std::int64_t> ranks = {};
  std::string hosts = {};
  std::optional<double> start_timeout = {};
  std::string timeline = {};
  bool is_part = false;
};

/// The arguments after the first `--`, if there is one.
std::vector<std::string> launched_command(const Invocation& invocation) {
  const std::vector<std::string> words(invocation.argv + 1, invocation.argv + invocation.argc);
  const auto mark = std::ranges::find(words, "--");
  return {mark == words.end() ? mark : mark + 1, words.end()};
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

/// Throws if something else has started this process as one of several ranks.
void require_no_launcher() {
  const job::Environment environment = job::process_environment();
  const job::Launch launch = job::detect_launch(environment);
  const auto task = job::find_task(environment);
  if (!launch.launched && (!task || task->ranks == 1)) return;
  throw Error(ErrorCategory::input, "launch", "expected a process that is not a rank of a job",
              fmt::format("{} started it as rank {}: run the command without `lockstep launch`",
                          launch.launched ? launch.launcher : task->source,
                          launch.launched ? launch.rank : task->rank));
}

/// A port for rank 0: a free one if that is on this host, below those that systems assign.
std::uint16_t choose_port(bool is_here) {
  constexpr int kFirst = 20000;
  constexpr int kPorts = 12000;
  if (is_here) return net::Listener().port();
  return static_cast<std::uint16_t>(kFirst + static_cast<int>(std::random_device()() % kPorts));
}

int run_launch(const LaunchArguments& arguments, const std::vector<std::string>& command) {
  if (arguments.is_part) return launch::run_part();
  require_no_launcher();
  if (!arguments.ranks && arguments.hosts.empty())
    throw Error(ErrorCategory::input, "launch", "expected --np N or --hosts HOST:N,…",
                "there is neither");
  const std::vector<launch::HostRanks> hosts =
      launch::place_ranks(arguments.hosts, static_cast<int>(arguments.ranks.value_or(0)));
  const bool is_here = launch::is_this_host(hosts.front().host);
  launch::HostPart part{.ranks = {},
                        .size = hosts.back().first + hosts.back().count,
                        .rendezvous = hosts.front().host,
                        .port = choose_port(is_here),
                        .secret = net::JobSecret::draw().text(),
                        .directory = std::filesystem::current_path().string(),
                        .environment = launch::environment_for_hosts(),
                        .command = command};
  if (arguments.start_timeout)
    part.environment.push_back(fmt::format("LOCKSTEP_START_TIMEOUT={}", *arguments.start_timeout));
  if (!arguments.timeline.empty())
    part.environment.push_back(fmt::format("HOROVOD_TIMELINE={}", arguments.timeline));
  if (hosts.size() == 1)
    part.rendezvous = "127.0.0.1";
  else if (part.rendezvous == "localhost")
    part.rendezvous = host_name();
  std::vector<launch::HostPart> parts;
  for (const launch::HostRanks& ranks : hosts) {
    parts.push_back(part);
    parts.back().ranks = ranks;
  }
  return launch::run_job(parts);
}

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
struct Fields<apps::LaunchArguments> {
  using Options = apps::LaunchArguments;
  static constexpr std::tuple list{
      Field{&Options::ranks,
            {"np", {}, "Number of ranks (default: as many as --hosts has room for)"},
            {{.min = 1, .max = 65536}},
            {.value = "N"}},
      Field{&Options::hosts,
            {"hosts", {}, "Hosts and the number of ranks of each (default: this host)"},
            {},
            {.value = "HOST:N[,HOST:N...]"}},
      Field{&Options::start_timeout,
            {"start-timeout",
             {},
             "Seconds that the start of the job may take, as LOCKSTEP_START_TIMEOUT"},
            {{.min = 0.1}},
            {.value = "SECONDS"}},
      Field{&Options::timeline,
            {"timeline-filename",
             {},
             "File for a trace of the calls of rank 0, if the command uses lockstep.torch"},
            {},
            {.value = "FILE"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {

void add_launch_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      kLaunchCommand, "Start the ranks of a command: lockstep launch --np N -- COMMAND…");
  const auto arguments = std::make_shared<LaunchArguments>();
  add_fields(*command, fields_of(*arguments));
  command->add_flag(kPart, arguments->is_part, "Start the ranks that standard input describes")
      ->group("");
  command->footer(kExplanation);
  command->callback(
      [=, &status] { status = run_launch(*arguments, launched_command(invocation)); });
}

std::vector<std::string> without_launched_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != kLaunchCommand) return arguments;
  const auto mark = std::ranges::find(arguments, "--");
  const bool is_part = std::ranges::find(arguments, kPart) != arguments.end();
  if (arguments.end() - mark < 2 && !is_part && !asks_for_help(arguments))
    throw Error(ErrorCategory::input, "launch",
                "expected a command after --: lockstep launch --np N -- COMMAND…", "there is none");
  arguments.erase(mark, arguments.end());
  std::ranges::replace(arguments, std::string("-np"), std::string("--np"));
  std::ranges::replace(arguments, std::string("-H"), std::string("--hosts"));
  return arguments;
}

}  // namespace lockstep::inline v0::apps
