// Converts the tasks of a job to one mpirun: its hosts, the ranks of each host, and the command
// line.
//
// mpirun starts processes on hosts with ORTE in Open MPI 4 and with PRRTE in Open MPI 5. They are
// equivalent for `lockstep launch`, but their parameters have different names.
#pragma once

#include <chrono>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/launch/messages.h"
#include "lockstep/base/fields/fields.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps::launch {

/// The names of one runtime environment.
struct Runtime {
  std::string_view name;      ///< in messages
  std::string_view daemon;    ///< program on each host
  std::string_view option;    ///< option that sets a parameter, of the daemon and of mpirun
  std::string_view job;       ///< parameter: mpirun's name for the job
  std::string_view nodes;     ///< parameter: the hosts of the job; empty: the daemon requests them
  std::string_view uri;       ///< parameter: where mpirun listens
  std::string_view launcher;  ///< component that starts daemons with a program such as ssh
  std::string_view agent;     ///< parameter: that program
  std::string_view agent_options;  ///< parameter: its options; empty: mpirun rejects empty options
  std::string_view no_tree;        ///< parameter: mpirun itself starts all daemons
  std::string_view full_names;     ///< parameter: host names are not shortened at the first dot
  std::string_view interfaces;     ///< parameter: networks of mpirun and its daemons
  std::span<const std::string_view> may_be_set;  ///< parameters that mpirun may set on another host
  bool is_prrte;
};

extern const Runtime kOrte;
extern const Runtime kPrrte;

/// The runtime of the Open MPI that this program is linked to. Throws Error (input) for another
/// MPI.
const Runtime& runtime_here();

/// The runtime for a version text of MPI, "Open MPI v4.1.4, package: …". Throws Error (input) for
/// another MPI.
const Runtime& runtime_of(std::string_view mpi);

/// A host of the job.
struct Host {
  std::string name = {};             ///< in mpirun's command line; unique
  std::vector<int> ranks = {};       ///< ascending; the task of the first one runs the daemon
  std::vector<int> processors = {};  ///< processors that at least one of its tasks may run on
};

/// Consecutive ranks that one part of mpirun's command line starts: same host, same GPUs.
struct RankRun {
  std::size_t host = 0;  ///< among the hosts
  int ranks = 0;
  std::string gpus = {};  ///< CUDA_VISIBLE_DEVICES; empty: inherited from the host's first task
};

struct JobPlan {
  std::vector<Host> hosts = {};  ///< the host of rank 0 first
  std::vector<RankRun> runs = {};
  /// The interface that connects every host to the first; empty if it differs or there is one host.
  std::string interface = {};
};

/// Plans the job of these tasks, one per rank, in order. Throws Error (input) if a task's
/// LOCAL_WORLD_SIZE does not match the number of tasks on its host.
JobPlan plan_job(const std::vector<JoinRequest>& tasks);

/// Plans a job from the host of each rank alone, before its tasks connect.
JobPlan plan_job_on(const std::vector<std::string>& hosts);

/// Options of the user for mpirun.
struct MpirunOptions {
  std::vector<std::string> command = {};  ///< the command that every rank runs
  std::vector<std::string> more = {};     ///< additional options of mpirun
  std::string interface = "auto";  ///< names or networks; "any": mpirun's own choice; "auto": the
                                   ///< plan's, unless the environment or `more` selects one
};

/// Options of `lockstep launch`.
struct LaunchOptions {
  MpirunOptions mpirun = {};
  std::string job = {};         ///< name of the job; empty: from the environment
  std::string host = {};        ///< name of this task's host; empty: the system's host name
  std::string rendezvous = {};  ///< HOST:PORT, HOST or :PORT of rank 0; empty: the environment's
  double timeout = 60;  ///< seconds for all tasks to connect, and for mpirun to reach their hosts
  double stall_timeout = 120;  ///< seconds without a response after which a host is considered lost
  net::JobSecret secret = net::JobSecret::none();  ///< shared by all tasks of the job

  std::chrono::seconds stall_limit() const {
    return std::chrono::ceil<std::chrono::seconds>(std::chrono::duration<double>(stall_timeout));
  }
  std::chrono::steady_clock::duration patience() const {
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(timeout));
  }
};

/// Settings of this process for mpirun, which --print does not show.
struct MpirunHere {
  std::string agent = {};           ///< command with which mpirun starts daemons; empty: ssh
  bool as_root = false;             ///< whether this user is root
  bool within_slurm = false;        ///< disable mpirun's Slurm support
  bool on_chosen_networks = false;  ///< whether the environment selects mpirun's networks
};

/// Whether the Open MPI option or variable of this name selects networks: "btl_tcp_if_include",
/// "prte_if_include".
bool chooses_networks(std::string_view name);

/// The arguments of mpirun's command line.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpirunOptions& options,
                                        const MpirunHere& here, const Runtime& runtime);

/// Quotes the arguments for a shell.
std::string to_shell(const std::vector<std::string>& words);

}  // namespace lockstep::inline v0::apps::launch

namespace lockstep::inline v0 {

template <>
struct Fields<apps::launch::LaunchOptions> {
  using Options = apps::launch::LaunchOptions;
  static constexpr double kDay = 86400;
  static constexpr std::tuple list{
      Field{&Options::timeout,
            {"timeout", "",
             "Seconds for all tasks to connect, and for mpirun to reach their hosts, 1 to 86400"},
            {.min = 1, .max = kDay},
            {.value = "SECONDS"}},
      Field{&Options::stall_timeout,
            {"stall_timeout", "",
             "Seconds without a response after which a task's host is considered lost, and for "
             "which mpirun may be stopped, 1 to 86400"},
            {.min = 1, .max = kDay},
            {.value = "SECONDS"}},
      Field{&Options::rendezvous,
            {"rendezvous", "",
             "HOST:PORT of rank 0, which overrides the environment; HOST or :PORT overrides only "
             "one part"},
            {},
            {.value = "HOST:PORT"}},
      Field{&Options::job,
            {"job", "",
             "Name that is the same for all tasks of the job, and different for other jobs "
             "(default: from the environment)"},
            {},
            {.value = "NAME"}},
      Field{&Options::host,
            {"host", "",
             "Name of this task's host (default: the system's host name). Tasks with the same name "
             "must be able to share memory"},
            {},
            {.value = "NAME"}},
      TextField<Options>{
          {"interface", "",
           "Network interfaces or networks for MPI (eth0, 10.0.0.0/8); any: MPI's own choice; "
           "auto: "
           "the interface of the rendezvous, if it has the same name on all hosts and Open MPI is "
           "not configured to use another one"},
          [](Options& options, std::string_view, std::span<const std::string> values) {
            options.mpirun.interface = values.back();
          },
          [](const Options& options) { return std::vector{options.mpirun.interface}; },
          {.value = "NAME[,NAME...]"}},
      TextField<Options>{
          {"mpirun", "",
           "Additional mpirun options, separated by spaces, such as \"--map-by slot:PE=8\". Unless "
           "they set a binding, ranks are not bound to cores (--bind-to none)"},
          [](Options& options, std::string_view, std::span<const std::string> values) {
            std::istringstream words(values.back());
            options.mpirun.more.assign(std::istream_iterator<std::string>(words), {});
          },
          [](const Options& options) { return options.mpirun.more; },
          {.value = "OPTIONS"}}};
};

}  // namespace lockstep::inline v0
