#include "apps/lockstep/launch/first_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/agent.h"
#include "apps/lockstep/launch/fields.h"
#include "apps/lockstep/launch/meeting_place.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/token.h"

namespace lockstep::apps::launch {
namespace {

using std::chrono::seconds;

constexpr const char* kNotOurs = "it speaks otherwise";
constexpr int kSshFailed = 255;        // what ssh says of itself
constexpr std::size_t kMostNamed = 8;  // ranks and pairs in a message
constexpr seconds kProbeTime(5);       // for a host to answer another
constexpr seconds kProbeReportTime(15);
constexpr seconds kLeaveTime(7);  // for the others to leave
constexpr seconds kEndTime(10);   // for mpirun to end its ranks, after it was told to
constexpr seconds kSameStop(2);   // whoever signals a task twice at once has one wish
constexpr seconds kLook(1);

Error lost(const Visitor& visitor) {
  return {ErrorCategory::communication, "launch", "needed every task until the end of the job",
          fmt::format("rank {} on host {} is gone: {}", visitor.task->rank, visitor.task->host, visitor.link.reason())};
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

/// Left before mpirun was there because of a signal.
struct Stopped {
  int signal = 0;
};

/// "rank 1, worker:1, of host b", as far as that is known.
std::string describe(const job::Task& task, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  std::string text = fmt::format("rank {}", rank);
  if (!task.names.empty()) text += fmt::format(" ({})", task.names[index]);
  if (!task.hosts.empty()) text += fmt::format(" of host {}", task.hosts[index]);
  return text;
}

/// Which others a host does not reach.
std::vector<std::string> parse_failures(const std::string& text) {
  constexpr std::size_t kMaxFailures = 100000;
  constexpr std::size_t kMaxFailure = 4096;
  const nlohmann::json json = parse_fields(text, kMaxFailures + 1);
  std::vector<std::string> failures;
  for (const nlohmann::json& one : require_array(json, kMaxFailures)) failures.push_back(line_of(one, kMaxFailure));
  return failures;
}

/// "a, b and 7 more"
std::string list_of(const std::vector<std::string>& parts) {
  const std::size_t shown = std::min(parts.size(), kMostNamed);
  std::string text =
      fmt::format("{}", fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < parts.size()) text += fmt::format(" and {} more", parts.size() - shown);
  return text;
}

}  // namespace

FirstTask::FirstTask(const LaunchOptions& options, const job::Task& task)
    : options_(options),
      task_(task),
      meeting_(listen_for_tasks(task, options.secret, addresses_), options.secret, options.stall_limit()) {
  allow_connections(task.ranks);
  Arrival mine = describe_this_task(task, options.job, options.host);
  mine.port = task.meeting.port;
  mine.host = host_name();  // by which mpirun knows where it is
  if (!addresses_.empty()) mine.addresses = addresses_;
  tasks_.emplace(task.rank, std::move(mine));
}

int FirstTask::run() {
  Ending ending;
  try {
    gather();
    std::vector<Arrival> tasks;
    for (const auto& [rank, arrival] : tasks_) tasks.push_back(arrival);
    plan_ = plan_job(tasks);
    probe();
    ending.status = run_mpirun();
  } catch (const Error& error) {
    dismiss({exit_status(error.category()), error.what()}, FrameKind::refuse);
    throw;
  } catch (const Stopped& stopped) {
    ending.status = kSignalStatus + stopped.signal;
  }
  if (failure_) ending = {exit_status(failure_->category()), failure_->what()};
  dismiss(ending, FrameKind::leave);
  if (failure_) throw *failure_;
  return ending.status;
}

// ---- Before mpirun

void FirstTask::gather() {
  const auto deadline = Clock::now() + options_.patience();
  while (tasks_.size() < static_cast<std::size_t>(task_.ranks)) {
    if (Clock::now() >= deadline)
      throw Error(ErrorCategory::communication, "launch",
                  fmt::format("needed all {} tasks at port {} of host {} within {} s", task_.ranks, task_.meeting.port,
                              tasks_.at(0).host, options_.timeout),
                  missing_ranks());
    for (const Event& event : meeting_.wait(signals_, deadline)) {
      Visitor& visitor = *event.visitor;
      if (event.frame && event.frame->kind == FrameKind::arrive) {
        admit(visitor, *event.frame);
      } else if (!event.frame && visitor.task) {
        tasks_.erase(visitor.task->rank);  // it may come again: started anew, for example
      }
    }
    stop_on_signals();
  }
}

void FirstTask::admit(Visitor& visitor, const Frame& frame) {
  if (visitor.task) return;
  std::optional<Arrival> task;
  try {
    task = parse_arrival(frame.text);
  } catch (const Error&) {
    return visitor.link.close(kNotOurs);
  }
  admit(visitor, std::move(*task));
}

void FirstTask::admit(Visitor& visitor, Arrival task) {
  const Arrival& mine = tasks_.at(0);
  if (task.job != mine.job) {
    visitor.link.send(
        {FrameKind::refuse,
         to_text(Ending{exit_status(ErrorCategory::input),
                        fmt::format("[launch] needed the job \"{}\" of the first task, at its address; this is a "
                                    "task of the job \"{}\"",
                                    mine.job, task.job)})});
    return;
  }
  task.towards = net::way_to(visitor.link.peer()).interface;
  visitor.task = task;  // it is of the job from now on, and is told where that fails
  if (task.ranks != mine.ranks)
    throw Error(ErrorCategory::input, "launch", "needed tasks that know the same number of tasks",
                fmt::format("rank 0 on host {} knows {}, rank {} on host {} knows {}", mine.host, mine.ranks, task.rank,
                            task.host, task.ranks));
  if (const auto found = tasks_.find(task.rank); found != tasks_.end())
    throw Error(ErrorCategory::input, "launch", "needed one task for each rank",
                fmt::format("rank {} came from host {} and from host {}", task.rank, found->second.host, task.host));
  tasks_.emplace(task.rank, std::move(task));
  visitor.link.send({FrameKind::welcome});
}

std::string FirstTask::missing_ranks() const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < task_.ranks; ++rank)
    if (!tasks_.contains(rank)) missing.push_back(describe(task_, rank));
  std::string refused;
  if (meeting_.refused() > 0)
    refused = fmt::format("; {} connections were refused because {}", meeting_.refused(),
                          options_.secret.is_secret() ? "they did not prove to know the job's secret"
                                                      : "they were not of this user, or have a secret");
  return fmt::format("{} came; no word of {}{}", tasks_.size(), list_of(missing), refused);
}

void FirstTask::stop_on_signals() {
  for (const int signal : signals_.take())
    if (asks_to_stop(signal)) throw Stopped{signal};
}

std::vector<Target> FirstTask::targets_of(std::size_t host) const {
  std::vector<Target> targets;
  for (const Host& other : plan_.hosts) {
    if (&other == &plan_.hosts[host]) continue;
    const Arrival& task = tasks_.at(other.ranks.front());
    targets.push_back({.host = other.name, .addresses = task.addresses, .port = task.port});
  }
  return targets;
}

void FirstTask::probe() {
  if (plan_.hosts.size() == 1) return;
  for (std::size_t host = 1; host < plan_.hosts.size(); ++host)
    visitor_of(plan_.hosts[host].ranks.front()).link.send({FrameKind::probe, to_text(targets_of(host))});
  std::vector<std::string> failures;
  const auto add = [&](const std::string& from, const std::vector<std::string>& found) {
    for (const std::string& one : found) failures.push_back(fmt::format("host {} does not reach {}", from, one));
  };
  add(plan_.hosts[0].name, try_to_reach(targets_of(0), kProbeTime));
  const auto deadline = Clock::now() + kProbeReportTime;
  for (std::size_t reports = 1; reports < plan_.hosts.size();) {
    if (Clock::now() >= deadline) {
      failures.push_back(
          fmt::format("{} hosts have not told within {} s", plan_.hosts.size() - reports, kProbeReportTime.count()));
      break;
    }
    for (const Event& event : meeting_.wait(signals_, deadline)) {
      const auto& task = event.visitor->task;
      if (!event.frame && task) throw lost(*event.visitor);
      if (!event.frame || event.frame->kind != FrameKind::probed || !task) continue;
      const auto host = std::ranges::find(plan_.hosts, task->rank, [](const Host& one) { return one.ranks.front(); });
      if (host == plan_.hosts.end()) continue;  // nobody has asked it
      try {
        add(host->name, parse_failures(event.frame->text));
      } catch (const Error&) {
        event.visitor->link.close(kNotOurs);
        throw lost(*event.visitor);
      }
      ++reports;
    }
    stop_on_signals();
  }
  if (!failures.empty())
    throw Error(ErrorCategory::communication, "launch", "needed hosts that reach each other", list_of(failures));
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
    ::setenv(kAgentVariable, agent_address(meeting_.expect_agents(token_), token_.text()).c_str(), 1);
  }
  Child mpirun(mpirun_command(plan_, options_.mpirun, here, runtime_here()), {.processors = processors});
  const auto start_deadline = Clock::now() + options_.patience();
  auto deadline = Clock::time_point::max();
  while (!mpirun.status()) {
    for (const Event& event : meeting_.wait(signals_, Clock::now() + kLook)) serve(event, mpirun);
    for (const int signal : signals_.take()) take_signal(signal, task_.rank, mpirun);
    // mpirun waits for its daemons for ever. Ranks that have come and gone unseen do not keep it for long.
    started_ = started_ || plan_.hosts.size() == 1 || !mpirun.ranks().empty();
    if (!started_ && !failure_ && Clock::now() >= start_deadline) failure_ = unstarted();
    if (failure_ && deadline == Clock::time_point::max()) {
      mpirun.signal(kEndSignal);
      deadline = Clock::now() + kEndTime;
    }
    if (Clock::now() >= deadline) mpirun.end_by_force();
  }
  if (mpirun.status() == 0 && !failure_) wait_for_daemons(mpirun);
  return *mpirun.status();
}

/// The mpirun of Open MPI 5 may end with status 0 where it has lost a host: then that host's daemon has not ended.
void FirstTask::wait_for_daemons(Child& mpirun) {
  const auto deadline = Clock::now() + kLeaveTime;
  while (!running_daemons_.empty() && !failure_ && Clock::now() < deadline) {
    for (const Event& event : meeting_.wait(signals_, deadline)) serve(event, mpirun);
    signals_.take();  // one that stays would end every wait
  }
  std::vector<std::string> hosts;
  for (const int rank : running_daemons_) hosts.push_back(tasks_.at(rank).host);
  if (!hosts.empty() && !failure_)
    failure_ = Error(ErrorCategory::communication, "launch", "expected every host until the end of the job",
                     fmt::format("mpirun has ended, and nothing was heard of its daemon on {}", list_of(hosts)));
}

Error FirstTask::unstarted() const {
  std::vector<std::string> hosts;
  for (std::size_t host = 1; host < plan_.hosts.size(); ++host) hosts.push_back(plan_.hosts[host].name);
  return {ErrorCategory::communication, "launch",
          fmt::format("needed mpirun on {} and its daemons on {} to find each other within {} s", plan_.hosts[0].name,
                      list_of(hosts), options_.timeout),
          "no rank has started; --interface names the network, and all hosts need the same Open MPI"};
}

void FirstTask::serve(const Event& event, Child& mpirun) {
  Visitor& visitor = *event.visitor;
  if (!event.frame) {
    if (visitor.task && !failure_) failure_ = lost(visitor);
    return;
  }
  if (visitor.is_agent) {
    if (event.frame->kind == FrameKind::call) answer_call(visitor, event.frame->text);
    return;
  }
  if (!visitor.task) return;
  switch (event.frame->kind) {
    case FrameKind::ended:
      running_daemons_.erase(visitor.task->rank);
      return pass_to_agent(visitor, *event.frame);
    case FrameKind::output:
    case FrameKind::errors:
      return pass_to_agent(visitor, *event.frame);
    case FrameKind::started:
      started_ = true;
      return;
    case FrameKind::signal:
      try {
        take_signal(parse_integer(event.frame->text, 1, SIGRTMAX), visitor.task->rank, mpirun);
      } catch (const Error&) {
        visitor.link.close(kNotOurs);
      }
      return;
    default:
      return;
  }
}

void FirstTask::answer_call(Visitor& agent, const std::string& text) {
  Call call = parse_call(text, runtime_here());
  const auto host = std::ranges::find(plan_.hosts, call.host, &Host::name);
  if (host == plan_.hosts.end() || host == plan_.hosts.begin()) {
    agent.link.send({FrameKind::ended, std::to_string(kSshFailed)});
    return;
  }
  agent.agent_of = static_cast<std::size_t>(host - plan_.hosts.begin());
  call.daemon.processors = host->processors;
  visitor_of(host->ranks.front()).link.send({FrameKind::run, to_text(call.daemon)});
  running_daemons_.insert(host->ranks.front());
}

void FirstTask::pass_to_agent(const Visitor& visitor, const Frame& frame) {
  for (Visitor& other : meeting_.visitors())
    if (other.agent_of && plan_.hosts[*other.agent_of].ranks.front() == visitor.task->rank) other.link.send(frame);
}

void FirstTask::take_signal(int signal, int rank, Child& mpirun) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return mpirun.signal(signal);  // which hands it on to all ranks
  if (!asks_to_stop(signal)) return;
  const auto now = Clock::now();
  const bool first_of_task = wished_.insert(rank).second;
  if (stops_ > 0 && first_of_task) return;
  if (stops_ > 0 && now - last_stop_ < (stops_ == 1 ? kSameStop : kEndTime)) return;
  last_stop_ = now;
  ++stops_;
  // mpirun itself would give its ranks no time: they are asked first, and may save what they have. A training does so
  // on SIGTERM and SIGINT.
  const std::vector<pid_t> ranks = stops_ == 1 ? mpirun.ranks() : std::vector<pid_t>{};
  for (const pid_t one : ranks) kill(one, signal == SIGHUP ? SIGTERM : signal);
  if (!ranks.empty()) return;
  if (stops_ <= 2)
    mpirun.signal(kEndSignal);
  else
    mpirun.end_by_force();
}

Visitor& FirstTask::visitor_of(int rank) {
  for (Visitor& visitor : meeting_.visitors())
    if (visitor.task && visitor.task->rank == rank) return visitor;
  throw Error(ErrorCategory::communication, "launch", "needed every task until the end of the job",
              fmt::format("rank {} is gone", rank));
}

/// Returns when the others have left, so that nothing of the job outlives its first task.
void FirstTask::dismiss(const Ending& ending, FrameKind kind) {
  const auto deadline = Clock::now() + kLeaveTime;
  for (Visitor& visitor : meeting_.visitors())
    if (visitor.task) visitor.link.send({kind, to_text(ending)});
  while (Clock::now() < deadline &&
         std::ranges::any_of(meeting_.visitors(), [](const Visitor& one) { return one.task && !one.left; })) {
    meeting_.wait(signals_, deadline);
    signals_.take();  // one that stays would end every wait
  }
}

}  // namespace lockstep::apps::launch
