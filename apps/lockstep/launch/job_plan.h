// Converts the tasks of a job to one mpirun: its hosts, the ranks of each host, and the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/launch/join_request.h"
#include "apps/lockstep/launch/runtime.h"

namespace lockstep::apps::launch {

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
  std::string gpus = {};  ///< CUDA_VISIBLE_DEVICES; empty: that of the host's first task
};

struct JobPlan {
  std::vector<Host> hosts = {};  ///< the host of rank 0 first
  std::vector<RankRun> runs = {};
  std::string interface = {};  ///< that connects every host to the first; empty if they differ or there is one host
};

/// Plans the job of these tasks, one per rank, in order. Throws Error (input) if a task's LOCAL_WORLD_SIZE does not
/// match the number of tasks on its host.
JobPlan plan_job(const std::vector<JoinRequest>& tasks);

/// Plans a job from the host of each rank alone, before its tasks connect.
JobPlan plan_job_on(const std::vector<std::string>& hosts);

/// Options of the user for mpirun.
struct MpirunOptions {
  std::vector<std::string> command = {};  ///< the command that every rank runs
  std::vector<std::string> more = {};     ///< additional options of mpirun
  std::string interface = "auto";         ///< names or networks; "any": mpirun's own choice; "auto": the plan's, unless
                                          ///< the environment or `more` selects one
};

/// Settings of this process for mpirun, which --print does not show.
struct MpirunHere {
  std::string agent = {};           ///< command with which mpirun starts daemons; empty: ssh
  bool as_root = false;             ///< whether this user is root
  bool within_slurm = false;        ///< disable mpirun's Slurm support
  bool on_chosen_networks = false;  ///< whether the environment selects mpirun's networks
};

/// Whether the Open MPI option or variable of this name selects networks: "btl_tcp_if_include", "prte_if_include".
bool chooses_networks(std::string_view name);

/// The arguments of mpirun's command line.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpirunOptions& options, const MpirunHere& here,
                                        const Runtime& runtime);

/// Quotes the arguments for a shell.
std::string to_shell(const std::vector<std::string>& words);

}  // namespace lockstep::apps::launch
