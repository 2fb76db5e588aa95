// From tasks that have come to one mpirun: which hosts there are, which ranks each has, and the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/launch/arrival.h"
#include "apps/lockstep/launch/runtime.h"

namespace lockstep::apps::launch {

/// A host of the job.
struct Host {
  std::string name = {};             ///< in the command line of mpirun; no two are the same
  std::vector<int> ranks = {};       ///< ascending; the first keeps the host for the others
  std::vector<int> processors = {};  ///< that any of its tasks may run on
};

/// Neighbouring ranks that one part of mpirun's command line starts: one host, the same GPUs.
struct RankRun {
  std::size_t host = 0;  ///< among the hosts
  int ranks = 0;
  std::string gpus = {};  ///< what they are to see; empty where that is what their host's first task sees
};

struct JobPlan {
  std::vector<Host> hosts = {};  ///< that of rank 0 first
  std::vector<RankRun> runs = {};
  std::string interface =
      {};  ///< by which every host comes to the first; empty where they differ, or there is one host
};

/// The job of these tasks, one for each rank, in order. Throws Error (input) where they do not know the same number of
/// ranks on their hosts.
JobPlan plan_job(const std::vector<Arrival>& tasks);

/// A job whose tasks nobody has seen: the host of each rank.
JobPlan plan_job_on(const std::vector<std::string>& hosts);

/// What people may choose of mpirun.
struct MpirunOptions {
  std::vector<std::string> command = {};  ///< of every rank
  std::vector<std::string> more = {};     ///< options of mpirun
  std::string interface = "auto";         ///< names or networks; "any": mpirun's own choice; "auto": the plan's, unless
                                          ///< something else chooses
};

/// What it takes to start mpirun here, beside what people see with --print.
struct MpirunHere {
  std::string agent = {};           ///< what mpirun is to start daemons with; empty: ssh
  bool as_root = false;             ///< this user is root
  bool within_slurm = false;        ///< mpirun is to leave Slurm alone
  bool on_chosen_networks = false;  ///< the environment says which networks mpirun is to use
};

/// Whether Open MPI's option or variable of this name says which networks to use: "btl_tcp_if_include",
/// "prte_if_include".
bool chooses_networks(std::string_view name);

/// The words of mpirun's command line.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpirunOptions& options, const MpirunHere& here,
                                        const Runtime& runtime);

/// The words as a shell reads them back.
std::string to_shell(const std::vector<std::string>& words);

}  // namespace lockstep::apps::launch
