// Who computes what.
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
  /// How gradients travel: `in_process` only within one process, `shared_memory`, `ring`, `hierarchical` and `mpi` only
  /// between ranks; between GPUs `nccl`, `hierarchical` or `staged`.
  allreduce::Route route = allreduce::Route::automatic;
  /// What an earlier run of the same training took; `automatic` takes it again where it is possible.
  std::optional<allreduce::Route> remembered_route = {};
  /// Seconds without progress after which the job ends with exit status 4 and the name of the culprit (Watchdog); 0 for
  /// never.
  double stall_timeout = 120;
  /// Whether ranks may have the same GPU. Unless it is meant they are refused: by accident all ranks compute on the
  /// first.
  bool share_gpus = false;
};

/// The replicas of a job: how many, where, and who reduces with whom. Made once, by all ranks together; see
/// OneDeviceStrategy, MirroredStrategy and MultiWorkerMirroredStrategy.
///
/// The replicas of this process are numbered 0 .. local_replicas()-1 here ("local"); their numbers in the job begin at
/// first_replica().
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// "one-device", "mirrored", "multi-worker-mirrored".
  virtual std::string name() const = 0;

  job::Session& session() const { return session_; }                        ///< of this process
  int num_replicas_in_sync() const { return groups_.front().size(); }       ///< replicas of the job
  int local_replicas() const { return static_cast<int>(devices_.size()); }  ///< replicas of this process
  /// The number in the job of this process's first replica.
  int first_replica() const { return groups_.front().rank(); }
  /// Whether this process writes checkpoints, summaries and logs.
  bool is_chief() const { return session_.is_chief(); }
  /// Of the replica number `local` of this process.
  device::Device device(int local) const { return devices_[static_cast<std::size_t>(local)]; }
  /// Whether a local replica is on a GPU.
  bool has_gpu() const;
  /// The group of all replicas, as local replica `local` belongs to it. To be used on that replica's thread alone,
  /// inside run().
  const allreduce::Communicator& group(int local) const { return groups_[static_cast<std::size_t>(local)]; }
  /// What local replica `local` is doing, for those who watch. Replica 0 stands for its process as well.
  allreduce::Activity& activity(int local) const { return *activities_[static_cast<std::size_t>(local)]; }
  /// The processes of the job, one member each, for decisions and files; its rank() is session().rank(). To be used on
  /// the thread that made this object, while no replica is at work.
  const allreduce::Communicator& ranks() const { return ranks_; }
  /// What moves the bytes of gradients: "in-process", "ring", …
  std::string route() const { return groups_.front().route(); }
  /// The route between ranks and why it was taken; `automatic` and nothing where there is one rank.
  virtual allreduce::Selection selection() const { return {}; }
  /// All replicas of the job in the order of their numbers; the same on every rank.
  const std::vector<job::Placement>& placements() const { return placements_; }
  /// The placements as a table for people, a line per replica.
  std::string table() const { return job::placement_table(placements_); }

  /// body(local) on every local replica's thread; returns when all are done. The first error is thrown here, after it
  /// has made the collectives of the other replicas fail; the strategy is of no use afterwards.
  void run(const std::function<void(int local)>& body) { threads_.run(body); }

  /// Runs `body` on the calling thread. What it throws makes the collectives of all other replicas and ranks fail, with
  /// its text, and is reported (Session::report) before the exception goes on: what it then destroys may take long. The
  /// strategy is of no use afterwards.
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
  std::vector<std::shared_ptr<allreduce::Activity>> activities_;  // one a local replica
  std::vector<allreduce::Communicator> groups_;
  allreduce::Communicator ranks_;
  int cores_per_replica_;
  std::vector<job::Placement> placements_;
  ReplicaThreads threads_;
};

}  // namespace lockstep::strategy
