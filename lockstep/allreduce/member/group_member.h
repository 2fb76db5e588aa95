// The call of one member. Members compare their calls before they use each other's data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::allreduce {

/// An operation and everything about it that members must agree on. Trivially copyable: ranks
/// exchange it as bytes.
struct Call {
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    gather_slices,
    broadcast,
    all_gather,
    all_to_all,
    barrier,
    any
  };

  Kind kind = Kind::barrier;
  ElementType type = ElementType::float32;  ///< all_reduce, reduce_scatter, gather_slices
  ReduceOp op = ReduceOp::sum;              ///< all_reduce and reduce_scatter
  bool flag = false;                        ///< the argument of any; may differ
  std::int32_t root = 0;                    ///< source of a broadcast
  /// Number of elements; of bytes for broadcast, and for all_gather and all_to_all, where it may
  /// differ.
  std::uint64_t count = 0;
  /// Duration of this member's last exchange of calls between ranks; may differ.
  double last_seconds = 0;

  static Call all_reduce(const Values& values, ReduceOp op);
  static Call reduce_scatter(const Values& values, ReduceOp op);
  static Call gather_slices(const Values& values);
  static Call broadcast(std::size_t bytes, int root);
  static Call all_gather(std::size_t bytes);
  static Call all_to_all(std::size_t bytes);
  static Call barrier();
  static Call any(bool mine);
};

/// Whether two calls match.
bool is_same(const Call& a, const Call& b);

/// An error that names the first member whose call differs from calls[0]; nullopt if all match.
/// calls[i] is the call of member numbers[i].
std::optional<ErrorMessage> find_difference(std::span<const Call> calls,
                                            std::span<const int> numbers);

// The interface of a route: one object per member of a group.

/// A pending operation. Routes whose operations are complete on return use null: a Request without
/// one is complete.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Makes later work on `stream` wait for the operation.
  virtual void wait(device::Stream& stream) = 0;
};

class Transport;

/// The operations of Communicator, on elements of a type known at run time.
class GroupMember {
 public:
  virtual ~GroupMember() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string route() const = 0;
  virtual bool overlaps() const = 0;
  virtual double seconds_waited() const = 0;
  virtual bool moves_on_host() const { return true; }
  virtual bool can_be_recorded() const { return false; }
  virtual void set_recording(bool /*on*/) {}

  virtual device::Buffer allocate(std::size_t bytes);
  /// Makes the next operation of this member start after the work on `stream`. A route on the host
  /// waits for that work, and throws Error (input) for a GPU stream.
  virtual void start_after(device::Stream& stream);
  virtual std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<PendingOperation> gather_slices(const Values& values) = 0;
  virtual void broadcast(std::span<std::byte> values, int root) = 0;
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  /// By default over all_gather(), for members that share memory.
  virtual std::vector<std::vector<std::byte>> all_to_all(
      std::span<const std::span<const std::byte>> parts);
  virtual void barrier() = 0;
  virtual bool any(bool mine) = 0;

  /// How members that are ranks exchange messages; null between threads. For groups of the same
  /// ranks, or of some of them.
  virtual Transport* transport() { return nullptr; }

  /// Makes the current and later operations of all members throw `failure`. The first failure
  /// stays. Thread-safe.
  virtual void fail(const ErrorMessage& failure) = 0;
  /// Throws the failure of the group, if any. For a member that waits for something other than the
  /// other members.
  virtual void throw_if_failed() = 0;
};

}  // namespace lockstep::inline v0::allreduce
