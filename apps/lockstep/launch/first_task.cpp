#include "apps/lockstep/launch/first_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lockstep/launch/daemon.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/host.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using std::chrono::seconds;

constexpr const char* kInvalidMessage = "it sent an invalid message";
constexpr int kSshFailed = 255;       // the exit status of ssh for its own errors
constexpr std::size_t kMaxNamed = 8;  // ranks and pairs in a message
constexpr seconds kProbeTime(5);      // for a host to answer another
constexpr seconds kProbeReportTime(15);
constexpr seconds kLeaveTime(7);  // for the other tasks to exit
constexpr seconds kEndTime(10);   // for mpirun to end its ranks after the signal
constexpr seconds kSameStop(2);   // signals within this time count as one request
constexpr seconds kPollInterval(1);
constexpr double kLongestPause = 3;  // seconds between two checks while this process runs

double seconds_now() {
  return std::chrono::duration<double>(Rendezvous::Clock::now().time_since_epoch()).count();
}

Error lost(const Client& client) {
  return {ErrorCategory::communication, "launch",
          "expected every task to stay connected until the end of the job",
          fmt::format("lost rank {} on host {}: {}", client.task->rank, client.task->host,
                      client.link.reason())};
}

bool environment_chooses_networks() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view whole = *entry;
    if ((whole.starts_with("OMPI_MCA_") || whole.starts_with("PRTE_MCA_")) &&
        chooses_networks(whole.substr(0, whole.find('='))))
      return true;
  }
  return false;
}

/// Thrown when a signal stops the job before mpirun runs.
struct Stopped {
  int signal = 0;
};

/// "rank 1 (worker:1) on host b", as far as name and host are known.
std::string describe(const job::Task& task, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  std::string text = fmt::format("rank {}", rank);
  if (!task.names.empty()) text += fmt::format(" ({})", task.names[index]);
  if (!task.hosts.empty()) text += fmt::format(" on host {}", task.hosts[index]);
  return text;
}

/// Parses the report of a host: the hosts that it cannot reach.
std::vector<std::string> parse_failures(const std::string& text) {
  constexpr std::size_t kMaxFailures = 100000;
  constexpr std::size_t kMaxFailure = 4096;
  const nlohmann::json json = parse_fields(text, kMaxFailures + 1);
  std::vector<std::string> failures;
  for (const nlohmann::json& one : require_array(json, kMaxFailures))
    failures.push_back(line_of(one, kMaxFailure));
  return failures;
}

/// "a, b and 7 more"
std::string list_of(const std::vector<std::string>& parts) {
  const std::size_t shown = std::min(parts.size(), kMaxNamed);
  std::string text = fmt::format(
      "{}", fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < parts.size()) text += fmt::format(" and {} more", parts.size() - shown);
  return text;
}

}  // namespace

FirstTask::FirstTask(const LaunchOptions& options, const job::Task& task)
    : options_(options),
      task_(task),
      rendezvous_(listen_for_tasks(task, options.secret, addresses_), options.secret,
                  options.stall_limit()),
      awake_(seconds_now(), kLongestPause) {
  allow_connections(task.ranks);
  JoinRequest mine = describe_this_task(task, options.job, options.host);
  mine.port = task.rendezvous.port;
  mine.host = host_name();  // by which mpirun recognizes its own host
  if (!addresses_.empty()) mine.addresses = addresses_;
  tasks_.emplace(task.rank, std::move(mine));
}

int FirstTask::run() {
  Ending ending;
  try {
    gather();
    std::vector<JoinRequest> tasks;
    for (const auto& [rank, join_request] : tasks_) tasks.push_back(join_request);
    plan_ = plan_job(tasks);
    probe();
    ending.status = run_mpirun();
  } catch (const Error& error) {
    shut_down_tasks({exit_status(error.category()), error.what()}, FrameKind::refuse);
    throw;
  } catch (const Stopped& stopped) {
    ending.status = kSignalStatus + stopped.signal;
  }
  if (failure_) ending = {exit_status(failure_->category()), failure_->what()};
  shut_down_tasks(ending, FrameKind::leave);
  if (failure_) throw *failure_;
  return ending.status;
}

// ---- Before mpirun

void FirstTask::gather() {
  const auto deadline = Clock::now() + options_.patience();
  while (tasks_.size() < static_cast<std::size_t>(task_.ranks)) {
    if (Clock::now() >= deadline)
      throw Error(
          ErrorCategory::communication, "launch",
          fmt::format("expected all {} tasks to connect to port {} of host {} within {} s",
                      task_.ranks, task_.rendezvous.port, tasks_.at(0).host, options_.timeout),
          missing_ranks());
    for (const Event& event : rendezvous_.wait(signals_, deadline)) {
      Client& client = *event.client;
      if (event.frame && event.frame->is(FrameKind::arrive)) {
        admit(client, *event.frame);
      } else if (!event.frame && client.task) {
        tasks_.erase(client.task->rank);  // it may connect again, for example after a restart
      }
    }
    stop_on_signals();
  }
}

void FirstTask::admit(Client& client, const net::Frame& frame) {
  if (client.task) return;
  std::optional<JoinRequest> task;
  try {
    task = parse_join_request(frame.body);
  } catch (const Error&) {
    return client.link.close(kInvalidMessage);
  }
  admit(client, std::move(*task));
}

void FirstTask::admit(Client& client, JoinRequest task) {
  const JoinRequest& mine = tasks_.at(0);
  if (task.job != mine.job) {
    client.link.send(
        {FrameKind::refuse,
         to_text(Ending{exit_status(ErrorCategory::input),
                        fmt::format("[launch] expected a task of the job \"{}\", to which the task "
                                    "at this address belongs; this task belongs to the job \"{}\"",
                                    mine.job, task.job)})});
    return;
  }
  task.towards = net::route_to(net::peer_address(client.link.socket())).interface;
  client.task = task;  // from now on it belongs to the job, and receives its errors
  if (task.ranks != mine.ranks)
    throw Error(ErrorCategory::input, "launch",
                "expected the same number of tasks in the environment of every task",
                fmt::format("rank 0 on host {} has {}, rank {} on host {} has {}", mine.host,
                            mine.ranks, task.rank, task.host, task.ranks));
  if (const auto found = tasks_.find(task.rank); found != tasks_.end())
    throw Error(ErrorCategory::input, "launch", "expected one task for each rank",
                fmt::format("rank {} connected from host {} and from host {}", task.rank,
                            found->second.host, task.host));
  tasks_.emplace(task.rank, std::move(task));
  client.link.send(FrameKind::welcome);
}

std::string FirstTask::missing_ranks() const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < task_.ranks; ++rank)
    if (!tasks_.contains(rank)) missing.push_back(describe(task_, rank));
  std::string refused;
  if (rendezvous_.refused() > 0)
    refused =
        fmt::format("; {} connections were refused because {}", rendezvous_.refused(),
                    options_.secret.is_secret() ? "they did not authenticate with the job's secret"
                                                : "they belong to another user, or have a secret");
  return fmt::format("{} connected, missing {}{}", tasks_.size(), list_of(missing), refused);
}

void FirstTask::stop_on_signals() {
  for (const int signal : signals_.drain())
    if (is_stop_signal(signal)) throw Stopped{signal};
}

std::vector<Target> FirstTask::targets_of(std::size_t host) const {
  std::vector<Target> targets;
  for (const Host& other : plan_.hosts) {
    if (&other == &plan_.hosts[host]) continue;
    const JoinRequest& task = tasks_.at(other.ranks.front());
    targets.push_back({.host = other.name, .addresses = task.addresses, .port = task.port});
  }
  return targets;
}

void FirstTask::probe() {
  if (plan_.hosts.size() == 1) return;
  for (std::size_t host = 1; host < plan_.hosts.size(); ++host)
    client_of(plan_.hosts[host].ranks.front())
        .link.send({FrameKind::probe, to_text(targets_of(host))});
  std::vector<std::string> failures;
  const auto add = [&](const std::string& from, const std::vector<std::string>& found) {
    for (const std::string& one : found)
      failures.push_back(fmt::format("host {} does not reach {}", from, one));
  };
  add(plan_.hosts[0].name, try_to_reach(targets_of(0), kProbeTime));
  const auto deadline = Clock::now() + kProbeReportTime;
  for (std::size_t reports = 1; reports < plan_.hosts.size();) {
    if (Clock::now() >= deadline) {
      failures.push_back(fmt::format("{} hosts did not report within {} s",
                                     plan_.hosts.size() - reports, kProbeReportTime.count()));
      break;
    }
    for (const Event& event : rendezvous_.wait(signals_, deadline)) {
      const auto& task = event.client->task;
      if (!event.frame && task) throw lost(*event.client);
      if (!event.frame || !event.frame->is(FrameKind::probed) || !task) continue;
      const auto host = std::ranges::find(plan_.hosts, task->rank,
                                          [](const Host& one) { return one.ranks.front(); });
      if (host == plan_.hosts.end()) continue;  // it received no probe
      try {
        add(host->name, parse_failures(event.frame->body));
      } catch (const Error&) {
        event.client->link.close(kInvalidMessage);
        throw lost(*event.client);
      }
      ++reports;
    }
    stop_on_signals();
  }
  if (!failures.empty())
    throw Error(ErrorCategory::communication, "launch", "expected hosts that reach each other",
                list_of(failures));
}

// ---- While mpirun runs

int FirstTask::run_mpirun() {
  MpirunHere here{.as_root = geteuid() == 0,
                  .within_slurm = std::getenv("SLURM_JOB_ID") != nullptr,
                  .on_chosen_networks = environment_chooses_networks()};
  const std::vector<int> processors = plan_.hosts[0].processors;
  if (plan_.hosts.size() == 1) {
    plan_.hosts[0].name = "localhost";
  } else {
    here.agent = agent_command();
    ::unsetenv("PRTE_MCA_plm_ssh_args");  // for ssh, not for the agent
    ::setenv(kAgentVariable,
             agent_address(rendezvous_.expect_agents(token_), token_.text()).c_str(), 1);
  }
  Child mpirun(mpirun_command(plan_, options_.mpirun, here, runtime_here()),
               {.processors = processors});
  const auto start_deadline = Clock::now() + options_.patience();
  auto deadline = Clock::time_point::max();
  while (!mpirun.status()) {
    for (const Event& event : rendezvous_.wait(signals_, Clock::now() + kPollInterval))
      serve(event, mpirun);
    for (const int signal : signals_.drain()) handle_signal(signal, task_.rank, mpirun);
    // mpirun waits for its daemons without a timeout. Ranks may have ended unseen; then mpirun ends
    // soon too.
    started_ = started_ || plan_.hosts.size() == 1 || !mpirun.ranks().empty();
    if (!started_ && !failure_ && Clock::now() >= start_deadline) failure_ = unstarted();
    check_mpirun(mpirun);
    if (failure_ && deadline == Clock::time_point::max()) {
      mpirun.signal(kEndSignal);
      if (mpirun.is_stopped()) mpirun.signal(SIGCONT);
      deadline = Clock::now() + kEndTime;
    }
    if (Clock::now() >= deadline) mpirun.end_by_force();
  }
  if (mpirun.status() == 0 && !failure_) wait_for_daemons(mpirun);
  return *mpirun.status();
}

/// A stopped mpirun forwards no output and ends no job. Time in which this process was stopped as
/// well does not count.
void FirstTask::check_mpirun(const Child& mpirun) {
  const double now = awake_.advance(seconds_now());
  if (!mpirun.is_stopped()) {
    ran_at_ = now;
    has_warned_ = false;
    return;
  }
  const double stopped = now - ran_at_;
  if (stopped >= options_.stall_timeout && !failure_)
    failure_ = Error(ErrorCategory::communication, "launch", "expected mpirun to run",
                     fmt::format("its process {} on host {} was stopped for {:.0f} s", mpirun.id(),
                                 host_name(), stopped));
  else if (stopped >= kPollInterval.count() && !std::exchange(has_warned_, true))
    make_logger()->warn(fmt::format(
        "[launch] mpirun is stopped (process {0} on host {1}): `kill -CONT {0}` continues it; "
        "otherwise the job ends after {2} s",
        mpirun.id(), host_name(), options_.stall_timeout));
}

/// The mpirun of Open MPI 5 may exit with status 0 after it lost a host. In that case the host's
/// daemon has not ended.
void FirstTask::wait_for_daemons(Child& mpirun) {
  const auto deadline = Clock::now() + kLeaveTime;
  while (!running_daemons_.empty() && !failure_ && Clock::now() < deadline) {
    for (const Event& event : rendezvous_.wait(signals_, deadline)) serve(event, mpirun);
    signals_.drain();  // a pending signal would end every wait at once
  }
  std::vector<std::string> hosts;
  for (const int rank : running_daemons_) hosts.push_back(tasks_.at(rank).host);
  if (!hosts.empty() && !failure_)
    failure_ =
        Error(ErrorCategory::communication, "launch",
              "expected every host to stay connected until the end of the job",
              fmt::format("mpirun ended without a report from its daemon on {}", list_of(hosts)));
}

Error FirstTask::unstarted() const {
  std::vector<std::string> hosts;
  for (std::size_t host = 1; host < plan_.hosts.size(); ++host)
    hosts.push_back(plan_.hosts[host].name);
  return {ErrorCategory::communication, "launch",
          fmt::format("expected mpirun on {} and its daemons on {} to connect within {} s",
                      plan_.hosts[0].name, list_of(hosts), options_.timeout),
          "no rank started; select the network with --interface, and check that all hosts have the "
          "same Open MPI"};
}

void FirstTask::serve(const Event& event, Child& mpirun) {
  Client& client = *event.client;
  if (!event.frame) {
    if (client.task && !failure_) failure_ = lost(client);
    return;
  }
  if (client.is_agent) {
    if (event.frame->is(FrameKind::call)) answer_call(client, event.frame->body);
    return;
  }
  if (!client.task) return;
  switch (event.frame->kind<FrameKind>()) {
    case FrameKind::ended:
      running_daemons_.erase(client.task->rank);
      return forward_to_agent(client, *event.frame);
    case FrameKind::output:
    case FrameKind::errors:
      return forward_to_agent(client, *event.frame);
    case FrameKind::started:
      started_ = true;
      return;
    case FrameKind::signal:
      try {
        handle_signal(parse_integer(event.frame->body, 1, SIGRTMAX), client.task->rank, mpirun);
      } catch (const Error&) {
        client.link.close(kInvalidMessage);
      }
      return;
    default:
      return;
  }
}

/// Refuses a call that is invalid; mpirun then treats its host as one that ssh cannot reach.
void FirstTask::answer_call(Client& agent, const std::string& text) {
  Call call;
  auto host = plan_.hosts.end();
  try {
    call = parse_call(text, runtime_here());
    host = std::ranges::find(plan_.hosts, call.host, &Host::name);
  } catch (const Error& error) {
    make_logger()->warn(
        fmt::format("[launch] refused the call of an agent of mpirun: {}", error.what()));
  }
  if (host == plan_.hosts.end() || host == plan_.hosts.begin()) {
    agent.link.send({FrameKind::ended, std::to_string(kSshFailed)});
    return;
  }
  agent.agent_of = static_cast<std::size_t>(host - plan_.hosts.begin());
  call.daemon.processors = host->processors;
  client_of(host->ranks.front()).link.send({FrameKind::run, to_text(call.daemon)});
  running_daemons_.insert(host->ranks.front());
}

void FirstTask::forward_to_agent(const Client& client, const net::Frame& frame) {
  for (Client& other : rendezvous_.clients())
    if (other.agent_of && plan_.hosts[*other.agent_of].ranks.front() == client.task->rank)
      other.link.send(frame);
}

void FirstTask::handle_signal(int signal, int rank, Child& mpirun) {
  if (signal == SIGUSR1 || signal == SIGUSR2)
    return mpirun.signal(signal);  // mpirun forwards it to all ranks
  if (!is_stop_signal(signal)) return;
  const auto now = Clock::now();
  const bool first_of_task = requested_.insert(rank).second;
  if (stops_ > 0 && first_of_task) return;
  if (stops_ > 0 && now - last_stop_ < (stops_ == 1 ? kSameStop : kEndTime)) return;
  last_stop_ = now;
  ++stops_;
  // Signal the ranks first, so that they can save a checkpoint, as a training does on SIGTERM and
  // SIGINT; mpirun would kill them without delay.
  const std::vector<pid_t> ranks = stops_ == 1 ? mpirun.ranks() : std::vector<pid_t>{};
  for (const pid_t one : ranks) kill(one, signal == SIGHUP ? SIGTERM : signal);
  if (!ranks.empty()) return;
  if (stops_ <= 2)
    mpirun.signal(kEndSignal);
  else
    mpirun.end_by_force();
}

Client& FirstTask::client_of(int rank) {
  for (Client& client : rendezvous_.clients())
    if (client.task && client.task->rank == rank) return client;
  throw Error(ErrorCategory::communication, "launch",
              "expected every task to stay connected until the end of the job",
              fmt::format("lost rank {}", rank));
}

/// Returns when the other tasks have disconnected, so that no process of the job outlives its first
/// task.
void FirstTask::shut_down_tasks(const Ending& ending, FrameKind kind) {
  const auto deadline = Clock::now() + kLeaveTime;
  for (Client& client : rendezvous_.clients())
    if (client.task) client.link.send({kind, to_text(ending)});
  while (Clock::now() < deadline &&
         std::ranges::any_of(rendezvous_.clients(),
                             [](const Client& one) { return one.task && !one.left; })) {
    rendezvous_.wait(signals_, deadline);
    signals_.drain();  // a pending signal would end every wait at once
  }
}

}  // namespace lockstep::inline v0::apps::launch
