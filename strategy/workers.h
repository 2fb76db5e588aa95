// The ranks of a job as one group, a replica each: what code with a training loop of its own reduces with.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allreduce/activity.h"
#include "allreduce/communication_thread.h"
#include "allreduce/communicator.h"
#include "allreduce/route.h"
#include "device/device.h"

namespace lockstep::strategy {

class Session;

/// How ranks reduce with each other.
struct WorkersOptions {
  device::Device device = {};                            ///< where this rank's gradients lie
  allreduce::Route route = allreduce::Route::automatic;  ///< how gradients travel; automatic: by where the ranks are
  /// Seconds without progress after which the job ends with exit status 4 and the name of the culprit (Watchdog); 0 for
  /// never.
  double stall_timeout = 120;
  bool share_gpus = false;  ///< whether ranks may have the same GPU
};

/// One member a rank, used on the thread that made this object. Every rank calls the same functions in the same order
/// with the same counts; where they differ, all ranks throw the same Error (communication).
class Workers {
 public:
  /// Collective over the ranks of `session`, which outlives this object. Throws Error (input) for a route that does not
  /// connect these ranks and for a TF_CONFIG that disagrees with the launcher.
  explicit Workers(Session& session, const WorkersOptions& options = {});
  /// Over a group that exists, one member a rank of it, which no watchdog watches.
  Workers(Session& session, const allreduce::Communicator& group, device::Device device = {});
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int rank() const { return group_.rank(); }         ///< of this process among all, from 0
  int size() const { return group_.size(); }         ///< ranks of the job
  Session& session() const { return session_; }      ///< whose ranks these are
  device::Device device() const { return device_; }  ///< where this rank's gradients lie
  /// What moves the bytes, and why: "shared-memory (2 ranks on one node)".
  std::string route() const;

  /// values[i] becomes the sum (or maximum, minimum) over all ranks of their values[i]: the same bits on each. In
  /// place; `values.size()` in elements, may be 0. Throws Error (communication).
  template <allreduce::Reducible T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op = allreduce::ReduceOp::sum) {
    settle();
    group_.all_reduce(values, op).wait();
  }

  /// Every rank's `values` become those of rank `root`. Same size everywhere. Throws Error (communication), and Error
  /// (input) for a root that is no rank.
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }

  /// Every rank's `values`, in rank order, on every rank; sizes may differ. 2 GiB in all at most. Throws Error
  /// (communication).
  template <typename T>
  std::vector<std::vector<T>> all_gather(std::span<const T> values) {
    std::vector<std::vector<T>> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(std::as_bytes(values))) {
      const auto* begin = reinterpret_cast<const T*>(bytes.data());
      all.emplace_back(begin, begin + bytes.size() / sizeof(T));
    }
    return all;
  }

  /// Returns once every rank has called it. Throws Error (communication).
  void barrier();
  /// True on every rank if `mine` is true on any: the one way to stop, skip, save or leave. Throws Error
  /// (communication).
  bool any(bool mine);

  /// The group itself, shown to the watchdog. Before it is used beside a GradientReducer, call settle().
  const allreduce::Communicator& group() const { return group_; }
  /// Where gradients are reduced beside the computation. Of all threads of this process one at a time is in the group.
  const std::shared_ptr<allreduce::CommunicationThread>& lane() const { return lane_; }
  /// Waits for the reductions that were begun beside the computation. Throws what they threw.
  void settle() { lane_->wait(); }
  /// What this rank is doing, for the watchdog.
  allreduce::Activity& activity() { return *activity_; }

 private:
  void broadcast_bytes(std::span<std::byte> values, int root);
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> values);

  Session& session_;
  device::Device device_;
  std::string reason_;
  std::shared_ptr<allreduce::Activity> activity_;
  allreduce::Communicator group_;
  std::shared_ptr<allreduce::CommunicationThread> lane_ = std::make_shared<allreduce::CommunicationThread>();
  bool is_watched_ = false;
};

}  // namespace lockstep::strategy
