// The replicas of a job: their devices, threads and communicators.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups.h"
#include "lockstep/allreduce/selection.h"
#include "lockstep/device/device.h"
#include "lockstep/job/placement.h"
#include "lockstep/job/session.h"
#include "lockstep/strategy/replica_threads.h"

namespace lockstep::strategy {

/// How the replicas of a job work together.
struct StrategyOptions {
  /// Route of the gradient all-reduce: `in_process` only within one process; `shared_memory`, `ring`, `hierarchical`
  /// and `mpi` only between ranks; between GPUs `nccl`, `hierarchical` or `staged`.
  allreduce::Route route = allreduce::Route::automatic;
  /// The route of an earlier run of the same training, which `automatic` reuses if possible.
  std::optional<allreduce::Route> remembered_route = {};
  /// Seconds without progress after which the watchdog reports the missing rank and ends the job with exit status 4; 0
  /// disables it.
  double stall_timeout = 120;
  /// Whether ranks may share a GPU. An error by default, because ranks often share the first GPU by mistake.
  bool share_gpus = false;
};

/// The replicas of a job: their number, devices and communicators. Created once, collectively; see OneDeviceStrategy,
/// MirroredStrategy and MultiWorkerMirroredStrategy.
///
/// The local index of a replica is in 0 .. local_replicas()-1; its index in the job is first_replica() + local index.
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// "one-device", "mirrored", "multi-worker-mirrored".
  virtual std::string name() const = 0;

  job::Session& session() const { return session_; }                        ///< the session of this process
  int num_replicas_in_sync() const { return groups_.front().size(); }       ///< number of replicas of the job
  int local_replicas() const { return static_cast<int>(devices_.size()); }  ///< number of replicas of this process
  /// The index in the job of this process's first replica.
  int first_replica() const { return groups_.front().rank(); }
  /// Whether this process writes checkpoints, summaries and logs.
  bool is_chief() const { return session_.is_chief(); }
  /// The device of local replica `local`.
  device::Device device(int local) const { return devices_[static_cast<std::size_t>(local)]; }
  /// Whether a local replica is on a GPU.
  bool has_gpu() const;
  /// The communicator of all replicas, for local replica `local`. Use only on that replica's thread, inside run().
  const allreduce::Communicator& group(int local) const { return groups_[static_cast<std::size_t>(local)]; }
  /// The activity of local replica `local`, for the watchdog. Replica 0 also represents its process.
  allreduce::Activity& activity(int local) const { return *activities_[static_cast<std::size_t>(local)]; }
  /// The communicator of the processes, one member each; its rank() is session().rank(). Use only on the thread that
  /// created this object, and not during run().
  const allreduce::Communicator& ranks() const { return ranks_; }
  /// The route of the gradient all-reduce: "in-process", "ring", …
  std::string route() const { return groups_.front().route(); }
  /// The route between ranks and the reason for its choice; `automatic` and empty for a single rank.
  virtual allreduce::Selection selection() const { return {}; }
  /// All replicas of the job, by index; the same on every rank.
  const std::vector<job::Placement>& placements() const { return placements_; }
  /// The placements as a human-readable table, one line per replica.
  std::string table() const { return job::placement_table(placements_); }

  /// Calls body(local) on every local replica's thread, and returns when all have finished. The first error aborts the
  /// collectives of the other replicas, and is rethrown here; the strategy cannot be used afterwards.
  void run(const std::function<void(int local)>& body) { threads_.run(body); }

  /// Runs `body` on the calling thread. An exception aborts the collectives of all other replicas and ranks with its
  /// text, and is reported (Session::report) before it is rethrown, because stack unwinding may take long. The strategy
  /// cannot be used afterwards.
  void fail_together(const std::function<void()>& body);

 protected:
  /// Collective. `groups[i]` and `devices[i]` belong to local replica i.
  Strategy(job::Session& session, std::vector<device::Device> devices, std::vector<allreduce::Communicator> groups,
           allreduce::Communicator ranks, const StrategyOptions& options);

 private:
  void gather_placements(int cores);
  void watch(const StrategyOptions& options);

  job::Session& session_;
  std::vector<device::Device> devices_;
  std::vector<std::shared_ptr<allreduce::Activity>> activities_;  // one per local replica
  std::vector<allreduce::Communicator> groups_;
  allreduce::Communicator ranks_;
  int cores_per_replica_;
  std::vector<job::Placement> placements_;
  ReplicaThreads threads_;
};

}  // namespace lockstep::strategy
