#include "apps/lockstep/launch/job_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
namespace {

// Parameters that mpirun itself sends to its daemons. None of them names a program, a library or a
// file.
constexpr std::array<std::string_view, 12> kSetByOrte = {"btl_tcp_if_exclude",
                                                         "btl_tcp_if_include",
                                                         "hwloc_base_binding_policy",
                                                         "hwloc_base_use_hwthreads_as_cpus",
                                                         "oob_tcp_if_exclude",
                                                         "oob_tcp_if_include",
                                                         "pmix",
                                                         "rmaps_base_cpus_per_rank",
                                                         "rmaps_base_mapping_policy",
                                                         "rmaps_base_no_oversubscribe",
                                                         "rmaps_base_oversubscribe",
                                                         "rmaps_base_ranking_policy"};
constexpr std::array<std::string_view, 4> kSetByPrrte = {"oob_tcp_if_exclude", "oob_tcp_if_include",
                                                         "prte_if_exclude", "prte_if_include"};

}  // namespace

const Runtime kOrte = {.name = "ORTE (Open MPI 4)",
                       .daemon = "orted",
                       .option = "--mca",
                       .job = "ess_base_jobid",
                       .nodes = "orte_node_regex",
                       .uri = "orte_hnp_uri",
                       .launcher = "rsh",
                       .agent = "plm_rsh_agent",
                       .agent_options = "plm_rsh_args",
                       .no_tree = "plm_rsh_no_tree_spawn",
                       .full_names = "orte_keep_fqdn_hostnames",
                       .interfaces = "oob_tcp_if_include",
                       .may_be_set = kSetByOrte,
                       .is_prrte = false};

const Runtime kPrrte = {.name = "PRRTE (Open MPI 5)",
                        .daemon = "prted",
                        .option = "--prtemca",
                        .job = "ess_base_nspace",
                        .nodes = "",
                        .uri = "prte_hnp_uri",
                        .launcher = "ssh",
                        .agent = "plm_ssh_agent",
                        .agent_options = "",
                        .no_tree = "plm_ssh_no_tree_spawn",
                        .full_names = "prte_keep_fqdn_hostnames",
                        .interfaces = "prte_if_include",
                        .may_be_set = kSetByPrrte,
                        .is_prrte = true};

const Runtime& runtime_here() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return runtime_of({text.data(), static_cast<std::size_t>(length)});
}

const Runtime& runtime_of(std::string_view mpi) {
  constexpr std::string_view kOpenMpi = "Open MPI v";
  int version = 0;
  if (mpi.starts_with(kOpenMpi)) {
    const std::string_view number = mpi.substr(kOpenMpi.size());
    std::from_chars(number.data(), number.data() + number.size(), version);
  }
  if (version >= 5) return kPrrte;
  if (version == 4) return kOrte;
  throw Error(ErrorCategory::input, "launch",
              "expected Open MPI 4 or 5, because lockstep launch uses its mpirun",
              fmt::format("got {}; use the launcher of that MPI, such as mpiexec",
                          mpi.substr(0, mpi.find_first_of(",\n"))));
}

namespace {

// mpirun options with which the user places the ranks.
constexpr std::string_view kBinding[] = {"bind-to", "map-by", "cpu-set", "rankfile", "rf"};

std::string unused(const std::string& wanted, const std::vector<Host>& hosts) {
  const auto is_used = [&](const std::string& name) {
    return std::ranges::any_of(hosts, [&](const Host& host) { return host.name == name; });
  };
  std::string name = wanted;
  for (int number = 2; is_used(name); ++number) name = fmt::format("{}-{}", wanted, number);
  return name;
}

/// Adds the hosts to the plan and returns the host index of each rank. `places` identifies hosts.
std::vector<std::size_t> add_hosts(JobPlan& plan, const std::vector<std::string>& places,
                                   const std::vector<std::string>& names) {
  std::map<std::string, std::size_t> known;
  std::vector<std::size_t> host_of_rank;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto [found, is_new] = known.try_emplace(places[rank], plan.hosts.size());
    if (is_new) plan.hosts.push_back({.name = unused(names[rank], plan.hosts)});
    plan.hosts[found->second].ranks.push_back(static_cast<int>(rank));
    host_of_rank.push_back(found->second);
  }
  return host_of_rank;
}

/// Whether mpirun would treat `name` as the host that it runs on.
bool means_this_host(const std::string& name) {
  return name == "localhost" || name.starts_with("localhost.") || net::is_loopback(name);
}

void add_runs(JobPlan& plan, const std::vector<std::size_t>& hosts,
              const std::vector<std::string>& gpus) {
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (plan.runs.empty() || plan.runs.back().host != hosts[rank] ||
        plan.runs.back().gpus != gpus[rank])
      plan.runs.push_back({.host = hosts[rank], .ranks = 0, .gpus = gpus[rank]});
    ++plan.runs.back().ranks;
  }
}

/// The interface at both ends of all connections from other hosts, if it is always the same; else
/// empty.
std::string common_interface(const std::vector<JoinRequest>& tasks) {
  std::set<std::string> interfaces;
  for (const JoinRequest& task : tasks)
    if (task.place != tasks.front().place) interfaces.insert({task.interface, task.towards});
  return interfaces.size() == 1 ? *interfaces.begin() : "";
}

void check_local_ranks(const JoinRequest& task, const Host& host) {
  if (task.local_ranks == 0 || static_cast<std::size_t>(task.local_ranks) == host.ranks.size())
    return;
  throw Error(ErrorCategory::input, "launch",
              fmt::format("expected {} tasks on host {}, the LOCAL_WORLD_SIZE of rank {}",
                          task.local_ranks, host.name, task.rank),
              fmt::format("got ranks {}", fmt::join(host.ranks, ", ")));
}

std::string slots(const Host& host) { return fmt::format("{}:{}", host.name, host.ranks.size()); }

/// Whether mpirun's default placement, which fills one host after the other, puts every rank on its
/// host, and no rank has its own list of GPUs.
bool is_in_order(const JobPlan& plan) {
  return plan.runs.size() == plan.hosts.size() &&
         std::ranges::all_of(plan.runs, [](const RankRun& run) { return run.gpus.empty(); });
}

bool says_where(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    const std::string_view name =
        std::string_view(word).substr(std::min(word.size(), word.find_first_not_of('-')));
    return word.starts_with('-') && std::ranges::find(kBinding, name) != std::end(kBinding);
  });
}

/// The networks to pass to Open MPI; empty for none.
std::string networks(const JobPlan& plan, const MpirunOptions& options, const MpirunHere& here) {
  if (plan.hosts.size() == 1 || options.interface == "any") return "";
  if (options.interface != "auto") return options.interface;
  // Open MPI rejects a second choice of networks next to the user's own.
  return here.on_chosen_networks || std::ranges::any_of(options.more, chooses_networks)
             ? ""
             : plan.interface;
}

void add(std::vector<std::string>& words, std::initializer_list<std::string> more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// A shell command that sets CUDA_VISIBLE_DEVICES for each rank, and then runs the command that
/// follows it.
std::string with_gpus(const JobPlan& plan) {
  std::string cases;
  int rank = 0;
  for (const RankRun& run : plan.runs)
    for (int end = rank + run.ranks; rank < end; ++rank)
      if (!run.gpus.empty())
        cases += fmt::format("{}) export CUDA_VISIBLE_DEVICES={};; ", rank, to_shell({run.gpus}));
  return fmt::format("case $OMPI_COMM_WORLD_RANK in {}esac; exec \"$@\"", cases);
}

/// Lists the host of each rank, and sets the GPUs of ranks in a shell. The mpirun of Open MPI 5 in
/// Debian 13 crashes if its command line has several parts separated by ':'
/// (https://github.com/open-mpi/ompi/issues/13303).
void add_ranks_one_by_one(std::vector<std::string>& words, const JobPlan& plan,
                          const MpirunOptions& options) {
  std::vector<std::string> hosts;
  bool tells_gpus = false;
  for (const RankRun& run : plan.runs) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(run.ranks), plan.hosts[run.host].name);
    tells_gpus = tells_gpus || !run.gpus.empty();
  }
  add(words, {"-np", std::to_string(hosts.size()), "-H", fmt::format("{}", fmt::join(hosts, ","))});
  if (!says_where(options.more)) add(words, {"--map-by", "seq"});
  if (tells_gpus) add(words, {"sh", "-c", with_gpus(plan), "sh"});
  words.insert(words.end(), options.command.begin(), options.command.end());
}

void add_ranks(std::vector<std::string>& words, const JobPlan& plan, const MpirunOptions& options,
               const Runtime& runtime) {
  if (is_in_order(plan)) {
    std::size_t ranks = 0;
    std::vector<std::string> hosts;
    for (const Host& host : plan.hosts) {
      ranks += host.ranks.size();
      hosts.push_back(slots(host));
    }
    add(words, {"-np", std::to_string(ranks), "-H", fmt::format("{}", fmt::join(hosts, ","))});
    words.insert(words.end(), options.command.begin(), options.command.end());
    return;
  }
  if (runtime.is_prrte) return add_ranks_one_by_one(words, plan, options);
  for (const RankRun& run : plan.runs) {
    if (&run != &plan.runs.front()) words.emplace_back(":");
    add(words, {"-np", std::to_string(run.ranks), "-H", slots(plan.hosts[run.host])});
    if (!run.gpus.empty()) add(words, {"-x", "CUDA_VISIBLE_DEVICES=" + run.gpus});
    words.insert(words.end(), options.command.begin(), options.command.end());
  }
}

}  // namespace

JobPlan plan_job(const std::vector<JoinRequest>& tasks) {
  JobPlan plan;
  std::vector<std::string> places;
  std::vector<std::string> names;
  for (const JoinRequest& task : tasks) {
    places.push_back(task.place);
    const bool misleads = task.place != tasks.front().place && means_this_host(task.host);
    names.push_back(misleads ? fmt::format("host-of-rank-{}", task.rank) : task.host);
  }
  const std::vector<std::size_t> hosts = add_hosts(plan, places, names);
  for (Host& host : plan.hosts) {
    std::set<int> processors;
    for (const int rank : host.ranks) {
      const JoinRequest& task = tasks[rank];
      check_local_ranks(task, host);
      processors.insert(task.processors.begin(), task.processors.end());
    }
    host.processors.assign(processors.begin(), processors.end());
  }
  std::vector<std::string> gpus;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const auto first = static_cast<std::size_t>(plan.hosts[hosts[rank]].ranks.front());
    // Ranks inherit the GPUs of the host's first task. If other tasks see different ones, set them
    // for each rank.
    const bool alike = std::ranges::all_of(plan.hosts[hosts[rank]].ranks, [&](int other) {
      return tasks[other].gpus == tasks[first].gpus;
    });
    gpus.push_back(alike ? "" : tasks[rank].gpus);
  }
  add_runs(plan, hosts, gpus);
  plan.interface = common_interface(tasks);
  return plan;
}

JobPlan plan_job_on(const std::vector<std::string>& hosts) {
  JobPlan plan;
  add_runs(plan, add_hosts(plan, hosts, hosts), std::vector<std::string>(hosts.size()));
  return plan;
}

bool chooses_networks(std::string_view name) {
  return name.ends_with("_if_include") || name.ends_with("_if_exclude");
}

std::vector<std::string> mpirun_command(const JobPlan& plan, const MpirunOptions& options,
                                        const MpirunHere& here, const Runtime& runtime) {
  std::vector<std::string> words = {"mpirun"};
  const auto set = [&](std::string_view name, std::string_view value) {
    for (const std::string_view word : {runtime.option, name, value}) words.emplace_back(word);
  };
  if (here.as_root) words.emplace_back("--allow-run-as-root");
  // Ranks divide the cores of their host themselves. By default, mpirun would bind each of two
  // ranks to one core.
  if (!says_where(options.more)) add(words, {"--bind-to", "none"});
  if (here.within_slurm) {
    set("ras", "^slurm");
    set("plm", "^slurm");
  }
  if (!here.agent.empty() && plan.hosts.size() > 1) {
    set(runtime.agent, here.agent);
    if (!runtime.agent_options.empty())
      set(runtime.agent_options, "");  // options in the environment are for ssh
    set(runtime.no_tree, "1");         // agents can run only on this host
    if (runtime.is_prrte)
      words.emplace_back(
          "--leave-session-attached");  // so that the agent sees the end of its daemon
    else
      set("orte_leave_session_attached", "1");
    set(runtime.full_names, "1");  // the plan's host names must not be shortened
  }
  if (const std::string chosen = networks(plan, options, here); !chosen.empty()) {
    // PRRTE does not support loopback: several "hosts" on one machine connect over its other
    // interfaces.
    if (!runtime.is_prrte || chosen != "lo") set(runtime.interfaces, chosen);
    add(words, {"--mca", "btl_tcp_if_include", chosen});
  }
  words.insert(words.end(), options.more.begin(), options.more.end());
  add_ranks(words, plan, options, runtime);
  return words;
}

std::string to_shell(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%^";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace lockstep::inline v0::apps::launch
