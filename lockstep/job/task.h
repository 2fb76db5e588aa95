// The short forms in which Slurm writes lists of hosts and of numbers into variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/job/launcher.h"

namespace lockstep::job {

/// "node[01-03,7],gpu1" -> node01, node02, node03, node7, gpu1. Throws Error (input) for what is no such list, and for
/// more than 100,000 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// "2(x3),1" -> 2, 2, 2, 1. Throws Error (input) for what is no such list, and for more than 100,000 numbers.
std::vector<int> expand_slurm_counts(std::string_view list);

// A process that is one of several of a job but was started without MPI: by torchrun, by a controller of Kubernetes
// that sets TF_CONFIG or RANK, or by an srun that does not speak PMIx. Read from its environment.

/// Where the tasks of a job may meet.
struct MeetingPoint {
  std::string host = {};   ///< name or address; empty where the environment does not tell
  std::uint16_t port = 0;  ///< 0 where it does not tell
};

/// One task of a job.
struct Task {
  std::string source = {};  ///< what told of it, for people: "TF_CONFIG"
  int rank = 0;
  int ranks = 1;
  int local_ranks = 0;                  ///< tasks on this host; 0 where it does not tell
  MeetingPoint meeting = {};            ///< on the host of rank 0
  std::string job = {};                 ///< the same text for all tasks of the job
  std::vector<std::string> hosts = {};  ///< of each rank; empty where it does not tell
  std::vector<std::string> names = {};  ///< of each rank, as the source calls it: "worker:1"; empty where it does not
};

/// What the environment says, from the first of these that is there:
///   1. RANK and WORLD_SIZE, with LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and the
///      PyTorchJob of Kubeflow set them;
///   2. TF_CONFIG with a chief or workers: they meet at the address of the first; an evaluator is a job of its own;
///   3. SLURM_PROCID and SLURM_STEP_NUM_TASKS of a step of srun, with SLURM_STEP_NODELIST; the port follows from the
///      job's number.
/// nullopt where none is. Throws Error (input) where one contradicts itself, and for a parameter server.
std::optional<Task> find_task(const Environment& environment);

/// Throws Error (input) where this process is one of several tasks that nobody has made one job of: it would train
/// alone, and so would each of the others. For processes that no MPI launcher started.
void require_no_task(const Environment& environment);

/// "host:port", "host", "[::1]:port". Throws Error (input) `[where] …` for what is none of them.
MeetingPoint parse_address(const std::string& where, const std::string& address);

}  // namespace lockstep::job
