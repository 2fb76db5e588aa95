// The ranks of a job as one group with one member per rank, for collectives in custom training
// loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/job/session.h"
#include "lockstep/job/world.h"

namespace lockstep::inline v0::allreduce {
class CommunicationThread;
}

namespace lockstep::inline v0::job {

class StepObserver;
class Tracing;

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

  /// The ranks `members` of this group as a group of their own, numbered in this order; null on the
  /// other ranks. Collective over this group, with the same members on all ranks. It is watched
  /// like this one, which must outlive it; a rank that is in several groups makes their calls in an
  /// order that fits for all ranks. Throws Error (input) unless `members` are different ranks.
  std::unique_ptr<Workers> make_group(std::span<const int> members);

  /// Replaces values[i] with the sum (or maximum, minimum) of values[i] over all ranks, bitwise
  /// identical on all ranks. In place; `values` may be empty. Throws Error (communication).
  template <allreduce::Reducible T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op = allreduce::ReduceOp::sum) {
    wait_pending();
    group().all_reduce(values, op).wait();
  }
  /// As above, with factors: values[i] is multiplied by `before` on each rank, reduced, and
  /// multiplied by `after`.
  template <allreduce::Fractional T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op, double before, double after) {
    allreduce::scale(values, before);
    all_reduce(values, op);
    allreduce::scale(values, after);
  }
  /// Replaces values[i] with the mean of values[i] over all ranks.
  template <allreduce::Fractional T>
  void average(std::span<T> values) {
    all_reduce(values, allreduce::ReduceOp::sum, 1, 1.0 / size());
  }

  /// Runs `operation` on the communication thread with group(), after the operations and the
  /// gradients that were submitted before; the program computes meanwhile. All ranks submit the
  /// same operations in the same order. The values must stay valid and unchanged until the request
  /// is complete. An Error (input) is thrown by the request alone, any other failure also by all
  /// later calls.
  ///
  ///     auto request = workers.submit([&](const Communicator& group) {
  ///       group.all_reduce(values).wait();
  ///     });
  allreduce::Request submit(std::function<void(const allreduce::Communicator&)> operation);

  /// Copies `values` of rank `root` to all ranks. The size is the same on all ranks. Throws Error
  /// (communication), and Error (input) if `root` is not a rank.
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }

  /// Returns the `values` of all ranks, in rank order, on every rank; sizes may differ.
  /// Throws Error (communication).
  template <typename T>
  std::vector<std::vector<T>> all_gather(std::span<const T> values) {
    return elements<T>(gather_bytes(std::as_bytes(values)));
  }

  /// Sends parts[i] to rank i, and returns what each rank sent to this one, in rank order; sizes
  /// may differ. One part for each rank. Throws Error (communication).
  template <typename T>
  std::vector<std::vector<T>> all_to_all(const std::vector<std::vector<T>>& parts) {
    std::vector<std::span<const std::byte>> bytes;
    for (const std::vector<T>& part : parts) bytes.push_back(std::as_bytes(std::span(part)));
    wait_pending();
    return elements<T>(group().all_to_all(bytes));
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
  /// Called by reducers before and after each of their steps, from 1: traces the steps if
  /// LOCKSTEP_TRACE is set (lockstep/job/operator_settings.h). Collective.
  void begin_step(std::int64_t step);
  void end_step(std::int64_t step);  ///< see begin_step()
  /// From now on, `observer` sees the steps of the reducers that are created over this group; null:
  /// none does.
  void observe(std::shared_ptr<StepObserver> observer) { observer_ = std::move(observer); }
  /// The observer, or null.
  const std::shared_ptr<StepObserver>& observer() const { return observer_; }
  /// Waits for all reductions in flight. Rethrows their exceptions.
  void wait_pending() override;
  /// Makes the collectives of all ranks throw Error (communication) with `reason`.
  void abort(const std::string& reason) override { world_.abort(reason); }
  /// The current activity of this rank, for the watchdog.
  allreduce::Activity& activity() { return world_.activity(0); }

 private:
  /// A group of some of the ranks of `parent`, over `group`.
  Workers(const Workers& parent, std::shared_ptr<allreduce::Activity> activity,
          const allreduce::Communicator& group, const allreduce::Communicator& ranks);

  template <typename T>
  static std::vector<std::vector<T>> elements(const std::vector<std::vector<std::byte>>& parts) {
    std::vector<std::vector<T>> all;
    for (const std::vector<std::byte>& bytes : parts) {
      const auto* begin = reinterpret_cast<const T*>(bytes.data());
      all.emplace_back(begin, begin + bytes.size() / sizeof(T));
    }
    return all;
  }
  void broadcast_bytes(std::span<std::byte> values, int root);
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> values);

  WorkersOptions options_;
  World world_;
  std::shared_ptr<allreduce::CommunicationThread> lane_;  // that of the group it is part of
  std::shared_ptr<allreduce::Activity> in_group_;         // null: all ranks of the session
  std::uint32_t groups_made_ = 0;
  std::shared_ptr<StepObserver> observer_;
  std::unique_ptr<Tracing> tracing_;  // null: no trace
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace lockstep::inline v0::job
