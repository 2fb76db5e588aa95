// A group of replicas that reduce together.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/buffer.h"

namespace lockstep::allreduce {

enum class ReduceOp { sum, max, min };

template <typename T>
concept Reducible =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

/// An operation under way. Move-only and owned by the caller; its destructor waits, so that a buffer cannot die under
/// it.
class [[nodiscard]] Request {
 public:
  class Impl;
  explicit Request(std::unique_ptr<Impl> impl);
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// Blocks until the operation is complete. Throws Error (communication) if it failed or a member was lost.
  void wait();
  /// Whether the operation is complete. Throws like wait().
  bool test();

 private:
  std::unique_ptr<Impl> impl_;
};

/// A group of replicas that reduce together. A cheap handle; copies name the same member of the same group.
///
/// Every member calls the same operations in the same order with the same counts, types and reductions. Where calls
/// differ, every member throws the same Error (communication), which names two members and what they called:
/// "[all_reduce] needed the same call on all members; member 0 called all_reduce(10 float32, sum) and member 2 called
/// all_reduce(11 float32, sum)". After an error every later operation throws it again. One thread per member. A group
/// of one member does nothing and is never a special case for the caller.
class Communicator {
 public:
  class Impl;
  explicit Communicator(std::shared_ptr<Impl> impl);

  int rank() const;  ///< 0 .. size() - 1; the replica's number
  int size() const;
  /// What moves the bytes, for people: "in-process", "ring", "mpi", "in-process + ring", "none" for one member.
  std::string route() const;

  /// Memory that this group reduces without a copy, zeroed.
  device::Buffer allocate(std::size_t bytes) const;

  /// values[i] becomes op over all members of their values[i]: the same bits on every member and in every run. In
  /// place. `values.size()` is in elements and may be 0. Integers wrap around, and a NaN on any member is the result,
  /// of max and min too. On route mpi the library decides about bits and NaNs. The values must stay where they are
  /// until the request is complete. Throws Error (communication), here or from the request.
  template <Reducible T>
  Request all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) const;

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
  /// the first stays. For a member that must leave: called from its own thread, between its operations. Between ranks
  /// the others notice within milliseconds, but not from inside the MPI library's own reduction (route mpi); a replica
  /// that is not its rank's first reaches the other ranks when its rank's first replica comes to its next operation.
  void abort(const std::string& reason) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::allreduce
