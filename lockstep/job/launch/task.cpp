#include "lockstep/job/launch/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/job/launch/cluster.h"

namespace lockstep::inline v0::job {
namespace {

// A longer list is a mistake. Brackets multiply, so the expanded list is counted, and its text too:
// names of 255 characters would need several times the memory of the names that clusters have.
constexpr std::size_t kMaxHosts = 65536;
constexpr std::size_t kMaxText = std::size_t{4} << 20;
constexpr std::size_t kLongestName = 255;
constexpr std::size_t kMaxDigits = 9;

[[noreturn]] void refuse_list(std::string_view expected, std::string_view list) {
  constexpr std::size_t kShown = 200;
  throw Error(ErrorCategory::input, "launch", expected,
              fmt::format("got \"{}{}\"", list.substr(0, kShown), list.size() > kShown ? "…" : ""));
}

[[noreturn]] void refuse_hosts(std::string_view list) {
  refuse_list("expected a Slurm host list such as node[01-03],gpu1", list);
}

std::optional<int> number(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value >= 0 ? value : std::nullopt;
}

/// Splits `list` at commas outside brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (depth < 0 || depth > 1) refuse_hosts(list);
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  if (depth != 0) refuse_hosts(list);
  return parts;
}

/// The numbers of "01-03" or "7", with their leading zeros.
std::vector<std::string> range_of(std::string_view range, std::string_view list) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto from = number(first);
  const auto to = number(last);
  if (!from || !to || *to < *from || first.size() > kMaxDigits ||
      static_cast<std::size_t>(*to - *from) >= kMaxHosts)
    refuse_hosts(list);
  std::vector<std::string> numbers;
  for (int value = *from; value <= *to; ++value)
    numbers.push_back(fmt::format("{:0{}}", value, first.size()));
  return numbers;
}

/// Expands one part, which may contain any number of brackets, to at most `most` names.
std::vector<std::string> expand(std::string_view part, std::string_view list, std::size_t most) {
  std::vector<std::string> names = {""};
  // One name or one end is added in place: a copy of a long list takes megabytes.
  const auto append = [&](std::vector<std::string> ends) {
    const std::size_t length = names.front().size() + ends.front().size();
    if (names.size() * ends.size() > most || length > kLongestName ||
        names.size() * ends.size() * length > kMaxText)
      refuse_hosts(list);
    if (ends.size() == 1) {
      for (std::string& name : names) name += ends.front();
    } else if (names.size() == 1) {
      for (std::string& end : ends) end.insert(0, names.front());
      names = std::move(ends);
    } else {
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& end : ends) longer.push_back(name + end);
      names = std::move(longer);
    }
  };
  for (std::size_t open = part.find('['); open != std::string_view::npos; open = part.find('[')) {
    const std::size_t close = part.find(']');
    append({std::string(part.substr(0, open))});
    std::vector<std::string> values;
    for (const std::string_view range : parts_of(part.substr(open + 1, close - open - 1))) {
      for (std::string& value : range_of(range, list)) values.push_back(std::move(value));
      if (values.size() > most) refuse_hosts(list);
    }
    append(std::move(values));
    part.remove_prefix(close + 1);
  }
  append({std::string(part)});
  return names;
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : parts_of(list)) {
    if (part.empty() || hosts.size() >= kMaxHosts) refuse_hosts(list);
    for (std::string& host : expand(part, list, kMaxHosts - hosts.size()))
      hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<int> expand_slurm_counts(std::string_view list) {
  constexpr std::string_view kExpected = "expected a Slurm list of counts such as 2(x3),1";
  std::vector<int> counts;
  for (std::string_view part : parts_of(list)) {
    int times = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos) {
      const auto repeat =
          part.back() == ')' ? number(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
      if (!repeat || *repeat < 1) refuse_list(kExpected, list);
      times = *repeat;
      part = part.substr(0, open);
    }
    const auto count = number(part);
    if (!count || counts.size() + static_cast<std::size_t>(times) > kMaxHosts)
      refuse_list(kExpected, list);
    counts.insert(counts.end(), static_cast<std::size_t>(times), *count);
  }
  return counts;
}

namespace {

// Below the ephemeral port range.
constexpr int kFirstPort = 15000;
constexpr int kPorts = 15000;
constexpr unsigned char kDelete = 0x7f;
constexpr int kMaxTasks = 1'000'000;  // a larger number is a mistake, and would exhaust the memory

[[noreturn]] void refuse(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "launch", expected, actual);
}

std::string text(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

bool is_set(const Environment& environment, const char* name) {
  return !text(environment, name).empty();
}

/// The value of a variable, from `least` to `most`.
int number(const Environment& environment, const char* name, int least,
           int most = std::numeric_limits<int>::max()) {
  const std::string value_text = text(environment, name);
  const auto value = parse_number<int>(value_text);
  if (!value || *value < least || *value > most)
    refuse(most == std::numeric_limits<int>::max()
               ? fmt::format("expected a number from {} in {}", least, name)
               : fmt::format("expected a number from {} to {} in {}", least, most, name),
           fmt::format("got \"{}\"", value_text));
  return *value;
}

std::optional<Task> task_from_variables(const Environment& environment) {
  // Other programs use one of them with a different meaning. An indexed job of Kubernetes numbers
  // its pods itself.
  const char* rank = is_set(environment, "RANK") ? "RANK" : "JOB_COMPLETION_INDEX";
  if (!is_set(environment, rank) || !is_set(environment, "WORLD_SIZE")) return std::nullopt;
  Task task{.source = fmt::format("{} and WORLD_SIZE", rank)};
  task.ranks = number(environment, "WORLD_SIZE", 1, kMaxTasks);
  task.rank = number(environment, rank, 0, task.ranks - 1);
  if (is_set(environment, "LOCAL_WORLD_SIZE"))
    task.local_ranks = number(environment, "LOCAL_WORLD_SIZE", 1, task.ranks);
  if (is_set(environment, "LOCAL_RANK"))
    number(environment, "LOCAL_RANK", 0,
           (task.local_ranks > 0 ? task.local_ranks : task.ranks) - 1);
  task.rendezvous.host = text(environment, "MASTER_ADDR");
  if (is_set(environment, "MASTER_PORT"))
    task.rendezvous.port = static_cast<std::uint16_t>(number(environment, "MASTER_PORT", 1, 65535));
  task.job = text(environment, "TORCHELASTIC_RUN_ID");
  if (!task.job.empty() && task.rendezvous.port > 0)
    ++task.rendezvous.port;  // torchrun listens there
  if (task.local_ranks == task.ranks && !task.rendezvous.host.empty())
    task.hosts.assign(static_cast<std::size_t>(task.ranks), task.rendezvous.host);
  return task;
}

std::optional<Task> task_from_tf_config(const Environment& environment) {
  const auto cluster = Cluster::parse(text(environment, "TF_CONFIG"));
  if (!cluster) return std::nullopt;
  Task task{.source = "TF_CONFIG"};
  task.rank = cluster->worker_rank();
  task.ranks = cluster->worker_count();
  for (const std::string& address : cluster->worker_addresses()) {
    const Endpoint place = parse_address("TF_CONFIG", address);
    if (task.hosts.empty()) task.rendezvous = place;
    task.hosts.push_back(place.host);
    task.job += address + " ";
  }
  task.names = cluster->worker_names();
  return task;
}

std::string name_in_slurm(const Environment& environment) {
  return text(environment, "SLURM_JOB_ID") + "." + text(environment, "SLURM_STEP_ID");
}

/// The host of each task; empty unless tasks are distributed in blocks.
std::vector<std::string> hosts_of_step(const std::vector<std::string>& hosts,
                                       const Environment& environment, int tasks) {
  const std::string distribution = text(environment, "SLURM_DISTRIBUTION");
  if (!is_set(environment, "SLURM_STEP_TASKS_PER_NODE") ||
      (!distribution.empty() && !distribution.starts_with("block")))
    return {};
  const std::vector<int> counts =
      expand_slurm_counts(text(environment, "SLURM_STEP_TASKS_PER_NODE"));
  std::vector<std::string> all;
  for (std::size_t i = 0; i < std::min(hosts.size(), counts.size()); ++i) {
    if (all.size() + static_cast<std::size_t>(counts[i]) > static_cast<std::size_t>(tasks))
      return {};
    all.insert(all.end(), static_cast<std::size_t>(counts[i]), hosts[i]);
  }
  return all.size() == static_cast<std::size_t>(tasks) ? all : std::vector<std::string>{};
}

std::optional<Task> task_from_slurm(const Environment& environment) {
  // A batch script has SLURM_PROCID too, but is not a task of a step.
  if (!is_set(environment, "SLURM_PROCID") || !is_set(environment, "SLURM_STEP_NUM_TASKS"))
    return std::nullopt;
  Task task{.source = "srun"};
  task.ranks = number(environment, "SLURM_STEP_NUM_TASKS", 1, kMaxTasks);
  task.rank = number(environment, "SLURM_PROCID", 0, task.ranks - 1);
  task.job = name_in_slurm(environment);
  if (is_set(environment, "SLURM_JOB_ID"))
    task.rendezvous.port =
        static_cast<std::uint16_t>(kFirstPort + number(environment, "SLURM_JOB_ID", 0) % kPorts);
  if (!is_set(environment, "SLURM_STEP_NODELIST")) return task;
  const std::vector<std::string> hosts =
      expand_slurm_hosts(text(environment, "SLURM_STEP_NODELIST"));
  task.rendezvous.host = hosts.front();
  task.hosts = hosts_of_step(hosts, environment, task.ranks);
  return task;
}

}  // namespace

std::optional<Task> find_task(const Environment& environment) {
  if (auto task = task_from_variables(environment)) return task;
  if (auto task = task_from_tf_config(environment)) return task;
  return task_from_slurm(environment);
}

void require_no_task(const Environment& environment) {
  const auto task = find_task(environment);
  if (!task || task->ranks == 1) return;
  throw Error(ErrorCategory::input, "session",
              fmt::format("expected the {} tasks of {} in one job: use --transport tcp "
                          "(LOCKSTEP_TRANSPORT=tcp), or "
                          "start all of them with one mpirun",
                          task->ranks, task->source),
              fmt::format("task {} is a separate job and would train alone", task->rank));
}

Endpoint parse_address(const std::string& where, const std::string& address) {
  const auto wrong = [&] {
    return Error(ErrorCategory::input, where, "expected an address \"host:port\"",
                 fmt::format("got \"{}\"", address));
  };
  Endpoint point{.host = address};
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
  // Reject control characters: a newline in a name would start a new line in output for a shell.
  const auto is_invalid = [](unsigned char c) {
    return c <= ' ' || c == kDelete || c == '/' || c == ',';
  };
  if (point.host.empty() || std::ranges::any_of(point.host, is_invalid)) throw wrong();
  if (port.empty()) return point;
  point.port = parse_number<std::uint16_t>(port).value_or(0);
  if (point.port == 0) throw wrong();
  return point;
}

}  // namespace lockstep::inline v0::job
