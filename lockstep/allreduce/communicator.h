// A group of replicas that reduce together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/reduction.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce {

class GroupMember;
class PendingOperation;

/// An operation under way. Move-only and owned by the caller; its destructor waits, so that a buffer cannot die under
/// it.
class [[nodiscard]] Request {
 public:
  explicit Request(std::unique_ptr<PendingOperation> impl);  ///< what a route hands out
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// Blocks until the operation is complete. Throws Error (communication) if it failed or a member was lost.
  void wait();
  /// Orders everything later on `stream` after this operation and leaves it to the stream; the values must stay where
  /// they are until that has come there. The host does not block, but for an operation that the host does itself.
  /// Throws like wait() for what is known; a failure after this shows in the next operation, or the watchdog finds it.
  void wait(device::Stream& stream);
  /// Whether the operation is complete. Throws like wait().
  bool test();

 private:
  std::unique_ptr<PendingOperation> impl_;
};

/// A group of replicas that reduce together. A cheap handle; copies name the same member of the same group.
///
/// Every member calls the same operations in the same order with the same counts, types and reductions. Where calls
/// differ, every member throws the same Error (communication), which names two members and what they called:
/// "[all_reduce] needed the same call on all members; member 0 called all_reduce(10 float32, sum) and member 2 called
/// all_reduce(11 float32, sum)". After an error every later operation throws it again. One thread at a time per
/// member. A group of one member does nothing and is never a special case for the caller.
class Communicator {
 public:
  /// A member of the group that `impl` knows; what make_…_group functions hand out.
  explicit Communicator(std::shared_ptr<GroupMember> impl);

  int rank() const;  ///< 0 .. size() - 1; the replica's number
  int size() const;  ///< members of the group
  /// The same member, whose operations `activity` shows to those who watch. It is kept alive.
  Communicator watched_by(std::shared_ptr<Activity> activity) const;
  /// What watches this handle; null for nothing.
  Activity* activity() const { return activity_.get(); }
  /// The same member, whose operations show that they are of gradient bucket `bucket`.
  Communicator for_bucket(int bucket) const;

  /// What moves the bytes, for people: "in-process", "shared-memory", "ring", "mpi", "nccl", "in-gpu",
  /// "in-process + ring", "none" for one member.
  std::string route() const;

  /// Whether an operation waits for a wire rather than for memory, so that it is worth doing beside the computation.
  bool overlaps() const;
  /// Whether the thread that calls an operation moves the bytes itself and returns when they have come, rather than
  /// leave them to the streams of GPUs.
  bool moves_on_host() const;
  /// Whether operations that wait for streams only may be part of a device::Recording: their members then meet on GPUs
  /// alone. The same for all members.
  bool can_be_recorded() const;
  /// While it is on, this member's operations are put on streams without any meeting of the hosts: for the time of a
  /// recording. All members record at once, the same operations on memory that they have reduced before.
  void set_recording(bool on) const;
  /// Seconds that this member's operations have waited for other members to come to them, all in all.
  double seconds_waited() const;

  /// Memory that this group reduces without a copy, zeroed; on this member's GPU where it has one.
  device::Buffer allocate(std::size_t bytes) const;

  /// values[i] becomes op over all members of their values[i]: the same bits on every member and in every run. In
  /// place. `values.size()` is in elements and may be 0. Integers wrap around, and a NaN on any member is the result,
  /// of max and min too; 16-bit floats are added in float32 and rounded once where members share memory, once a member
  /// on a ring. On the routes mpi and nccl the library decides about bits and NaNs. The values must stay where they are
  /// until the request is complete; in a group of GPU replicas they lie on the member's GPU, or in host memory on all
  /// members. Throws Error (communication), here or from the request.
  template <Reducible T>
  Request all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) const;
  /// The same out of place: `results`, of the same size, receives what all_reduce would make of `values`. They do not
  /// overlap.
  template <Reducible T>
  Request all_reduce(std::span<const T> values, std::span<T> results, ReduceOp op = ReduceOp::sum) const;
  /// The same in place, after the work already on `stream`, which the host does not await where the values are on a
  /// GPU. Throws Error (input) for the stream of a GPU in a group that is not of GPU replicas.
  template <Reducible T>
  Request all_reduce(std::span<T> values, ReduceOp op, device::Stream& stream) const;

  /// The range that reduce_scatter completes on member `rank` of `count` elements of T: whole cache lines, in rank
  /// order, sizes equal to within one line.
  template <Reducible T>
  Slice slice(std::size_t count, int rank) const;
  /// The first half of an all_reduce: this member's slice of `values` becomes op over all members; the rest of them is
  /// spoiled. Throws Error (communication).
  template <Reducible T>
  Request reduce_scatter(std::span<T> values, ReduceOp op = ReduceOp::sum) const;
  template <Reducible T>
  Request reduce_scatter(std::span<T> values, ReduceOp op, device::Stream& stream) const;  ///< after its work
  /// The second half: every member's own slice of `values` is brought to all. Throws Error (communication).
  template <Reducible T>
  Request all_gather(std::span<T> values) const;
  template <Reducible T>
  Request all_gather(std::span<T> values, device::Stream& stream) const;  ///< after its work

  /// Every member's `values` become those of member `root`. Same size everywhere. Throws Error (communication).
  void broadcast(std::span<std::byte> values, int root) const;

  /// All members' bytes in member order, on every member; sizes may differ. For small control data, 2 GiB in all at
  /// most. Throws Error (communication).
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) const;

  /// Returns once every member has called it. Throws Error (communication).
  void barrier() const;

  /// True on every member if `mine` is true on any: the one way to stop, skip, save or leave. Throws Error
  /// (communication).
  bool any(bool mine) const;

  /// Makes every member's current and later operations throw Error (communication) with `reason`; of several reasons
  /// the first stays. Any thread, also while another is inside an operation of this member. Between ranks the others
  /// notice within milliseconds, but not from inside the MPI library's own reduction (route mpi); a replica that is not
  /// its rank's first reaches the other ranks when its rank's first replica comes to its next operation.
  void abort(const std::string& reason) const;

  /// Throws what current and later operations throw, once the group has failed.
  void throw_if_failed() const;

  const std::shared_ptr<GroupMember>& impl() const { return impl_; }  ///< for routes that stand on another one

 private:
  std::shared_ptr<GroupMember> impl_;
  std::shared_ptr<Activity> activity_;
  int bucket_ = -1;
};

}  // namespace lockstep::allreduce
