// A group of replicas that reduce together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::device {
class Buffer;
class Stream;
}  // namespace lockstep::inline v0::device

namespace lockstep::inline v0::allreduce {

class GroupMember;
class PendingOperation;

/// A pending operation. Move-only and owned by the caller. The destructor waits, so that the buffer
/// outlives the operation.
class [[nodiscard]] Request {
 public:
  explicit Request(std::unique_ptr<PendingOperation> impl);  ///< created by a route
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// Blocks until the operation is complete. Throws Error (communication) if it failed or a member
  /// was lost.
  void wait();
  /// Makes later work on `stream` wait for this operation. The values must stay valid until then.
  /// The host does not block unless it executes the operation itself. Throws like wait() for
  /// failures known so far; a later failure is reported by the next operation or by the watchdog.
  void wait(device::Stream& stream);
  /// Whether the operation is complete. Throws like wait().
  bool test();

 private:
  std::unique_ptr<PendingOperation> impl_;
};

/// A group of replicas that reduce together. A cheap handle; copies refer to the same member of the
/// same group.
///
/// Every member calls the same operations in the same order with the same counts, types and
/// reductions. If calls differ, every member throws the same Error (communication), which names two
/// members and their calls:
/// "[all_reduce] expected the same call on all members; member 0 called all_reduce(10 float32, sum)
/// and member 2 called all_reduce(11 float32, sum)". After an error every later operation throws it
/// again. A member is used by one thread at a time. Operations of a group of one member do nothing,
/// so callers need no special case.
class Communicator {
 public:
  /// Wraps a member; used by the make_…_group functions.
  explicit Communicator(std::shared_ptr<GroupMember> impl);

  int rank() const;  ///< 0 .. size() - 1; the index of the replica
  int size() const;  ///< number of members
  /// A handle that records its operations in `activity`, and in `others`, further replicas of this
  /// process, if members are processes. Keeps them alive.
  Communicator watched_by(std::shared_ptr<Activity> activity,
                          std::vector<std::shared_ptr<Activity>> others = {}) const;
  /// The activity that this handle records in, or null.
  Activity* activity() const { return activity_.get(); }
  /// A handle whose operations are recorded as those of gradient bucket `bucket`.
  Communicator for_bucket(int bucket) const;

  /// The human-readable name of the route: "in-process", "shared-memory", "ring", "mpi", "nccl",
  /// "in-gpu", "in-process + ring", or "none" for one member.
  std::string route() const;

  /// Whether operations wait for a network or a GPU link rather than for memory, so that it pays to
  /// overlap them with the computation.
  bool overlaps() const;
  /// Whether the calling thread moves the bytes itself and returns when they have arrived, rather
  /// than enqueue the work on GPU streams.
  bool moves_on_host() const;
  /// Whether operations that wait only for streams can be part of a device::Recording: members then
  /// synchronize only on the GPUs. The same for all members.
  bool can_be_recorded() const;
  /// While on, this member's operations are enqueued on streams without a host barrier; for use
  /// during a recording. All members record at the same time, with the same operations on memory
  /// that they have reduced before.
  void set_recording(bool on) const;
  /// Total time in seconds that this member's operations have waited for other members.
  double seconds_waited() const;

  /// Zeroed memory that this group reduces without a copy; on this member's GPU if it has one.
  device::Buffer allocate(std::size_t bytes) const;

  /// Reduces values[i] over all members, in place. The result is bitwise equal on every member and
  /// in every run. `values.size()` is in elements and may be 0. Integers wrap around. A NaN on any
  /// member makes the result NaN, also for max and min. 16-bit floats are added in float32 and
  /// rounded once if members share memory, once per member on a ring. On the routes mpi and nccl
  /// the library determines rounding and NaNs. The values must stay valid until the request is
  /// complete. In a group of GPU replicas they are on the member's GPU, or in host memory on all
  /// members. Throws Error (communication), here or from the request.
  template <Reducible T>
  Request all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) const;
  /// Starts all_reduce() after the work already enqueued on `stream`. The host does not wait for
  /// that work if the values are on a GPU. Throws Error (input) for a GPU stream in a group without
  /// GPU replicas.
  template <Reducible T>
  Request all_reduce(std::span<T> values, ReduceOp op, device::Stream& stream) const;

  /// The range of `count` elements of T that reduce_scatter completes on member `rank`: whole cache
  /// lines, in rank order, with sizes that differ by at most one line.
  template <Reducible T>
  Slice slice(std::size_t count, int rank) const;
  /// The first half of an all_reduce: reduces this member's slice of `values` over all members. The
  /// rest of `values` is undefined afterwards. Throws Error (communication).
  template <Reducible T>
  Request reduce_scatter(std::span<T> values, ReduceOp op = ReduceOp::sum) const;
  /// Starts after the work on `stream`.
  template <Reducible T>
  Request reduce_scatter(std::span<T> values, ReduceOp op, device::Stream& stream) const;
  /// The second half: copies every member's slice of `values` to all members. Throws Error
  /// (communication).
  template <Reducible T>
  Request all_gather(std::span<T> values) const;
  /// Starts after the work on `stream`.
  template <Reducible T>
  Request all_gather(std::span<T> values, device::Stream& stream) const;

  /// Copies `values` of member `root` to all members. The size is the same on all. Throws Error
  /// (communication).
  void broadcast(std::span<std::byte> values, int root) const;

  /// Returns all members' bytes in member order, on every member; sizes may differ. Throws Error
  /// (communication).
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) const;

  /// Sends parts[i] to member i, and returns what each member sent to this one, in member order;
  /// sizes may differ. `parts` has one for each member. Throws Error (communication).
  std::vector<std::vector<std::byte>> all_to_all(
      std::span<const std::span<const std::byte>> parts) const;

  /// Returns once every member has called it. Throws Error (communication).
  void barrier() const;

  /// True on every member if `mine` is true on any. Use it for common decisions to stop, skip, save
  /// or leave. Throws Error (communication).
  bool any(bool mine) const;

  /// Makes every member's current and later operations throw Error (communication) with `reason`;
  /// the first reason stays. Thread-safe, also while another thread is in an operation of this
  /// member. Other ranks notice within milliseconds, but not inside the MPI library's own reduction
  /// (route mpi). If this is not the first replica of its rank, other ranks notice when the rank's
  /// first replica reaches its next operation.
  void abort(const std::string& reason) const;

  /// Throws the error of the group if it has failed.
  void throw_if_failed() const;

  /// The member behind this handle, for routes built on another route.
  const std::shared_ptr<GroupMember>& impl() const { return impl_; }

 private:
  std::shared_ptr<GroupMember> impl_;
  std::shared_ptr<Activity> activity_;
  std::vector<std::shared_ptr<Activity>> others_;  ///< see watched_by()
  int bucket_ = -1;
};

}  // namespace lockstep::inline v0::allreduce
