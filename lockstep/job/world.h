// The replicas of a job: their devices, their communicators and the route between them, watched by
// the watchdog. Strategies hold a world with their devices; Workers hold one with one device per
// rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/device/device.h"

namespace lockstep::inline v0::job {

class Session;

/// If TF_CONFIG is set on any rank, it must match the launcher: the number of workers and the
/// task's rank are those of MPI. Throws the same Error (input) on all ranks otherwise, because the
/// workers would train separately. Collective.
void check_tf_config(const Session& session);

/// How the replicas of a job work together.
struct WorldOptions {
  /// The route of the gradient all-reduce. `automatic` is select_route() between replicas on CPUs;
  /// between GPUs it follows from their placement and, between nodes, from whether NCCL reaches
  /// all.
  allreduce::Route route = allreduce::Route::automatic;
  /// The route of an earlier run of the same training, which `automatic` reuses if possible.
  std::optional<allreduce::Route> remembered_route = {};
  bool share_gpus = false;  ///< whether ranks may share a GPU
};

/// Created collectively, by all ranks. The index of a local replica is 0 .. local_replicas() - 1.
class World {
 public:
  /// One replica for each of `devices` on this rank; ranks may have different numbers. `session`
  /// must outlive this object. Throws like allreduce::make_device_group, the same on all ranks.
  World(Session& session, std::vector<device::Device> devices, const WorldOptions& options);
  /// Wraps existing groups: `groups[i]` and `devices[i]` belong to local replica i, `ranks` has one
  /// member per process. `activity` records the collectives of local replica 0; null: a new one.
  World(Session& session, std::vector<device::Device> devices,
        std::vector<allreduce::Communicator> groups, allreduce::Communicator ranks,
        std::shared_ptr<allreduce::Activity> activity = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// From now on the watchdog observes these replicas. The last collective of the setup, because
  /// all replicas count their collectives from here. `stall_timeout`: seconds without progress
  /// after which it ends the job with exit status 4; 0: never. `advice`: the end of its message.
  void watch(double stall_timeout, std::string advice);

  Session& session() const { return session_; }                             ///< this rank's session
  const std::vector<device::Device>& devices() const { return devices_; }   ///< by local replica
  int local_replicas() const { return static_cast<int>(devices_.size()); }  ///< on this rank
  int replicas() const { return groups_.front().size(); }                   ///< in the job
  int first_replica() const { return groups_.front().rank(); }  ///< index in the job of local 0
  /// The communicator of all replicas, for local replica `local`. Use only on its thread.
  const allreduce::Communicator& group(int local) const {
    return groups_[static_cast<std::size_t>(local)];
  }
  /// The communicator of the ranks, one member each. Use only on the thread that created this
  /// object.
  const allreduce::Communicator& ranks() const { return ranks_; }
  /// The activity of local replica `local`, for the watchdog. Replica 0 also represents its
  /// process.
  allreduce::Activity& activity(int local) const {
    return *activities_[static_cast<std::size_t>(local)];
  }

  /// The route between ranks and the reason for its choice; empty for a single rank.
  const allreduce::Selection& selection() const { return selection_; }

  /// Makes the collectives of all replicas and ranks throw Error (communication) with `reason`.
  void abort(const std::string& reason) const;

 private:
  void record_in(std::vector<std::shared_ptr<allreduce::Activity>> activities);

  Session& session_;
  std::vector<device::Device> devices_;
  allreduce::Selection selection_;
  std::vector<std::shared_ptr<allreduce::Activity>> activities_;  // one per local replica
  std::vector<allreduce::Communicator> groups_;
  allreduce::Communicator ranks_;
  std::optional<std::uint64_t> watch_;  // Session::watch()
};

}  // namespace lockstep::inline v0::job
