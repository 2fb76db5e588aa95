// What one member calls. Members compare their calls before they trust each other's bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce {

/// An operation and everything about it that members must agree on. Trivially copyable: ranks exchange it as bytes.
struct Call {
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, gather_slices, broadcast, all_gather, barrier, any };

  Kind kind = Kind::barrier;
  ElementType type = ElementType::float32;  ///< of what moves elements: the first three
  ReduceOp op = ReduceOp::sum;              ///< of what reduces: the first two
  std::int32_t root = 0;                    ///< of broadcast
  std::uint64_t count = 0;                  ///< elements, or bytes of broadcast and all_gather (where they may differ)
  std::uint64_t flag = 0;                   ///< of any; may differ

  static Call all_reduce(const Values& values, ReduceOp op);
  static Call reduce_scatter(const Values& values, ReduceOp op);
  static Call gather_slices(const Values& values);
  static Call broadcast(std::size_t bytes, int root);
  static Call all_gather(std::size_t bytes);
  static Call barrier();
  static Call any(bool mine);
};

/// Why a group cannot go on: the three parts of the Error that each member throws.
struct Failure {
  std::string where;
  std::string needed;
  std::string given;

  [[noreturn]] void raise() const;  ///< throws it as Error (communication)
};

/// Whether two members call the same.
bool is_same(const Call& a, const Call& b);

/// A failure that names the first member whose call differs from the first one's; nothing where all agree. calls[i] is
/// that of member numbers[i].
std::optional<Failure> find_difference(std::span<const Call> calls, std::span<const int> numbers);

// What a route supplies: one object for each member of a group.

/// An operation under way. A route whose operations are complete when they return needs none: a Request without one is
/// complete.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Orders what comes later on `stream` after the operation.
  virtual void wait(device::Stream& stream) = 0;
};

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
  /// Copies a caller's values before an operation on `to`.
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes);
  /// The next operation of this member starts after the work on `stream`. A route of the host awaits that, and throws
  /// Error (input) for the stream of a GPU.
  virtual void start_after(device::Stream& stream);
  virtual std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<PendingOperation> gather_slices(const Values& values) = 0;
  virtual void broadcast(std::span<std::byte> values, int root) = 0;
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;
  virtual bool any(bool mine) = 0;

  /// Makes the current and later operations of all members throw `failure`. The first failure stays. Any thread.
  virtual void fail(const Failure& failure) = 0;
  /// Throws the failure of the group, if any; for a member that waits for something else than the others.
  virtual void throw_if_failed() = 0;
};

}  // namespace lockstep::allreduce
