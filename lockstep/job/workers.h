// The ranks of a job as one group with one member per rank, for collectives in custom training
// loops.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/job/session.h"
#include "lockstep/job/world.h"

namespace lockstep::allreduce {
class CommunicationThread;
}

namespace lockstep::job {

/// Used on the thread that created it. Every rank must call the same functions in the same order
/// with the same counts; otherwise all ranks throw the same Error (communication).
class Workers final : public SessionGroup {
 public:
  /// Collective over the ranks of `session`, which must outlive this object. Throws Error (input)
  /// for a route that cannot connect these ranks, and for a TF_CONFIG that does not match the
  /// launcher.
  explicit Workers(Session& session, const WorkersOptions& options = {});
  /// Wraps an existing group with one member per rank. It is not watched by a watchdog.
  Workers(Session& session, const allreduce::Communicator& group, device::Device device = {});
  ~Workers() override;

  int rank() const { return group().rank(); }                    ///< 0 to size() - 1
  int size() const { return group().size(); }                    ///< ranks of the job
  Session& session() const { return world_.session(); }          ///< the session of this rank
  device::Device device() const { return world_.devices()[0]; }  ///< for its gradients
  /// The route and the reason for it: "shared-memory (2 ranks on one node)".
  std::string route() const;

  /// Replaces values[i] with the sum (or maximum, minimum) of values[i] over all ranks, bitwise
  /// identical on all ranks. In place; `values` may be empty. Throws Error (communication).
  template <allreduce::Reducible T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op = allreduce::ReduceOp::sum) {
    wait_pending();
    group().all_reduce(values, op).wait();
  }

  /// Copies `values` of rank `root` to all ranks. The size is the same on all ranks. Throws Error
  /// (communication), and Error (input) if `root` is not a rank.
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }

  /// Returns the `values` of all ranks, in rank order, on every rank; sizes may differ. At most
  /// 2 GiB in total. Throws Error (communication).
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
  /// Returns true on every rank if `mine` is true on any. Use it for every decision to stop, skip
  /// or save, so that all ranks agree. Throws Error (communication).
  bool any(bool mine);

  /// The underlying group, watched by the watchdog. Call wait_pending() before using it while a
  /// GradientReducer exists.
  const allreduce::Communicator& group() const { return world_.group(0); }
  /// The replicas of this job, one per rank.
  const World& world() const { return world_; }
  /// The thread that reduces gradients, overlapped with the backward pass. Only one thread of this
  /// process may use the group at a time.
  const std::shared_ptr<allreduce::CommunicationThread>& communication_thread() const {
    return lane_;
  }
  /// Waits for all reductions in flight. Rethrows their exceptions.
  void wait_pending() override;
  /// Makes the collectives of all ranks throw Error (communication) with `reason`.
  void abort(const std::string& reason) override { world_.abort(reason); }
  /// The current activity of this rank, for the watchdog.
  allreduce::Activity& activity() { return world_.activity(0); }

 private:
  void broadcast_bytes(std::span<std::byte> values, int root);
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> values);

  World world_;
  std::shared_ptr<allreduce::CommunicationThread> lane_;
};

}  // namespace lockstep::job
