#include "strategy/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "device/error.h"
#include "strategy/cluster.h"
#include "strategy/slurm_list.h"

namespace lockstep::strategy {
namespace {

// Below the ports that systems give to outgoing connections.
constexpr int kFirstPort = 15000;
constexpr int kPorts = 15000;
constexpr unsigned char kDelete = 0x7f;
constexpr int kMostTasks = 1'000'000;  // more is a slip of the pen, and would take all memory

[[noreturn]] void refuse(std::string_view needed, std::string_view given) {
  throw Error(ErrorCategory::input, "launch", needed, given);
}

std::string text(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

bool is_set(const Environment& environment, const char* name) { return !text(environment, name).empty(); }

/// The number that a variable holds, from `least` to `most`.
int number(const Environment& environment, const char* name, int least, int most = std::numeric_limits<int>::max()) {
  const std::string given = text(environment, name);
  int value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  if (error != std::errc{} || end != given.data() + given.size() || value < least || value > most)
    refuse(most == std::numeric_limits<int>::max()
               ? fmt::format("needed a number from {} in {}", least, name)
               : fmt::format("needed a number from {} to {} in {}", least, most, name),
           fmt::format("got \"{}\"", given));
  return value;
}

std::optional<Task> of_plain_variables(const Environment& environment) {
  // One of them alone has other meanings elsewhere.
  if (!is_set(environment, "RANK") || !is_set(environment, "WORLD_SIZE")) return std::nullopt;
  Task task{.source = "RANK and WORLD_SIZE"};
  task.ranks = number(environment, "WORLD_SIZE", 1, kMostTasks);
  task.rank = number(environment, "RANK", 0, task.ranks - 1);
  if (is_set(environment, "LOCAL_WORLD_SIZE"))
    task.local_ranks = number(environment, "LOCAL_WORLD_SIZE", 1, task.ranks);
  if (is_set(environment, "LOCAL_RANK"))
    number(environment, "LOCAL_RANK", 0, (task.local_ranks > 0 ? task.local_ranks : task.ranks) - 1);
  task.meeting.host = text(environment, "MASTER_ADDR");
  if (is_set(environment, "MASTER_PORT"))
    task.meeting.port = static_cast<std::uint16_t>(number(environment, "MASTER_PORT", 1, 65535));
  task.job = text(environment, "TORCHELASTIC_RUN_ID");
  if (task.local_ranks == task.ranks && !task.meeting.host.empty())
    task.hosts.assign(static_cast<std::size_t>(task.ranks), task.meeting.host);
  return task;
}

std::optional<Task> of_tf_config(const Environment& environment) {
  const auto cluster = Cluster::parse(text(environment, "TF_CONFIG"));
  if (!cluster) return std::nullopt;
  Task task{.source = "TF_CONFIG"};
  task.rank = cluster->worker_rank();
  task.ranks = cluster->worker_count();
  for (const std::string& address : cluster->worker_addresses()) {
    const MeetingPoint place = parse_address("TF_CONFIG", address);
    if (task.hosts.empty()) task.meeting = place;
    task.hosts.push_back(place.host);
    task.job += address + " ";
  }
  task.names = cluster->worker_names();
  return task;
}

std::string name_in_slurm(const Environment& environment) {
  return text(environment, "SLURM_JOB_ID") + "." + text(environment, "SLURM_STEP_ID");
}

/// The host of each task; none unless they fill one host after the other.
std::vector<std::string> hosts_of_step(const std::vector<std::string>& hosts, const Environment& environment,
                                       int tasks) {
  const std::string distribution = text(environment, "SLURM_DISTRIBUTION");
  if (!is_set(environment, "SLURM_STEP_TASKS_PER_NODE") ||
      (!distribution.empty() && !distribution.starts_with("block")))
    return {};
  const std::vector<int> counts = expand_slurm_counts(text(environment, "SLURM_STEP_TASKS_PER_NODE"));
  std::vector<std::string> all;
  for (std::size_t i = 0; i < std::min(hosts.size(), counts.size()); ++i) {
    if (all.size() + static_cast<std::size_t>(counts[i]) > static_cast<std::size_t>(tasks)) return {};
    all.insert(all.end(), static_cast<std::size_t>(counts[i]), hosts[i]);
  }
  return all.size() == static_cast<std::size_t>(tasks) ? all : std::vector<std::string>{};
}

std::optional<Task> of_slurm(const Environment& environment) {
  // A batch script has SLURM_PROCID too, but it is no task of a step.
  if (!is_set(environment, "SLURM_PROCID") || !is_set(environment, "SLURM_STEP_NUM_TASKS")) return std::nullopt;
  Task task{.source = "srun"};
  task.ranks = number(environment, "SLURM_STEP_NUM_TASKS", 1, kMostTasks);
  task.rank = number(environment, "SLURM_PROCID", 0, task.ranks - 1);
  task.job = name_in_slurm(environment);
  if (is_set(environment, "SLURM_JOB_ID"))
    task.meeting.port = static_cast<std::uint16_t>(kFirstPort + number(environment, "SLURM_JOB_ID", 0) % kPorts);
  if (!is_set(environment, "SLURM_STEP_NODELIST")) return task;
  const std::vector<std::string> hosts = expand_slurm_hosts(text(environment, "SLURM_STEP_NODELIST"));
  task.meeting.host = hosts.front();
  task.hosts = hosts_of_step(hosts, environment, task.ranks);
  return task;
}

}  // namespace

std::optional<Task> find_task(const Environment& environment) {
  if (auto task = of_plain_variables(environment)) return task;
  if (auto task = of_tf_config(environment)) return task;
  return of_slurm(environment);
}

void require_no_task(const Environment& environment) {
  const auto task = find_task(environment);
  if (!task || task->ranks == 1) return;
  throw Error(ErrorCategory::input, "session",
              fmt::format("needed the {} tasks of {} in one job: put \"lockstep launch --\" in front of the "
                          "command, or start all of them with one mpirun",
                          task->ranks, task->source),
              fmt::format("task {} was started without MPI and would train alone", task->rank));
}

MeetingPoint parse_address(const std::string& where, const std::string& address) {
  const auto wrong = [&] {
    return Error(ErrorCategory::input, where, "needed an address \"host:port\"", fmt::format("got \"{}\"", address));
  };
  MeetingPoint point{.host = address};
  std::string_view port;
  if (address.starts_with('[')) {
    const std::size_t close = address.find(']');
    if (close == std::string::npos) throw wrong();
    point.host = address.substr(1, close - 1);
    if (close + 1 < address.size() && address[close + 1] != ':') throw wrong();
    if (close + 1 < address.size()) port = std::string_view(address).substr(close + 2);
    if (close + 2 == address.size()) throw wrong();
  } else if (const std::size_t colon = address.find(':'); colon != std::string::npos) {
    point.host = address.substr(0, colon);
    port = std::string_view(address).substr(colon + 1);
    if (port.empty()) throw wrong();
  }
  // A name with a line's end would begin a new line in what is printed for a shell.
  const auto is_of_no_name = [](unsigned char c) { return c <= ' ' || c == kDelete || c == '/' || c == ','; };
  if (point.host.empty() || std::ranges::any_of(point.host, is_of_no_name)) throw wrong();
  if (port.empty()) return point;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), point.port);
  if (error != std::errc{} || end != port.data() + port.size() || point.port == 0) throw wrong();
  return point;
}

}  // namespace lockstep::strategy
