// Tasks of a job that were started without MPI, detected from the environment; and Slurm's compact
// lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/job/launch/launcher.h"

namespace lockstep::inline v0::job {

/// "node[01-03,7],gpu1" -> node01, node02, node03, node7, gpu1. Throws Error (input) for a
/// malformed list, and for more than 65,536 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// "2(x3),1" -> 2, 2, 2, 1. Throws Error (input) for a malformed list, and for more than 65,536
/// numbers.
std::vector<int> expand_slurm_counts(std::string_view list);

/// The rendezvous address of the tasks of a job.
struct Endpoint {
  std::string host = {};   ///< name or address; empty if unknown
  std::uint16_t port = 0;  ///< 0 if unknown
};

/// One task of a job that was started without MPI: by torchrun, by a Kubernetes controller that
/// sets TF_CONFIG or RANK, or by an srun without PMIx.
struct Task {
  std::string source = {};  ///< human-readable source of the information: "TF_CONFIG"
  int rank = 0;
  int ranks = 1;
  int local_ranks = 0;       ///< tasks on this host; 0 if unknown
  Endpoint rendezvous = {};  ///< on the host of rank 0
  /// A socket of rank 0 that listens there, which connect_job() closes; -1: it opens one itself
  int listener = -1;
  std::string job = {};                 ///< identifies the job: equal for all its tasks
  std::vector<std::string> hosts = {};  ///< host of each rank; empty if unknown
  /// Name of each rank, as in the source: "worker:1"; may be empty.
  std::vector<std::string> names = {};
};

/// The task that the environment describes, from the first of these sources that is present:
///   1. RANK (or JOB_COMPLETION_INDEX) and WORLD_SIZE, with LOCAL_RANK, LOCAL_WORLD_SIZE,
///   MASTER_ADDR and MASTER_PORT, as
///      torchrun and the PyTorchJob of Kubeflow set them;
///   2. TF_CONFIG with a chief or workers: the rendezvous is at the address of the first; an
///      evaluator is a separate job;
///   3. SLURM_PROCID and SLURM_STEP_NUM_TASKS of a step of srun, with SLURM_STEP_NODELIST; the
///      port is derived from the job ID.
/// nullopt if none is present. Throws Error (input) if a source is inconsistent, and for a
/// parameter server.
std::optional<Task> find_task(const Environment& environment);

/// Throws Error (input) if this process is one of several tasks that are not connected into one
/// job: each of them would train alone. For processes that MPI does not connect with others.
void require_no_task(const Environment& environment);

/// Parses "host:port", "host" or "[::1]:port". Throws Error (input) `[where] …` for anything else.
Endpoint parse_address(const std::string& where, const std::string& address);

}  // namespace lockstep::inline v0::job
