// What a route supplies: one object for each member of a group.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allreduce/call.h"
#include "allreduce/communicator.h"
#include "allreduce/reduce.h"

namespace lockstep::allreduce {

/// An operation under way. A route whose operations are complete when they return needs none: a Request without one is
/// complete.
class Request::Impl {
 public:
  virtual ~Impl() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Orders what comes later on `stream` after the operation.
  virtual void wait(device::Stream& stream) = 0;
};

/// The operations of Communicator, on elements of a type known at run time.
class Communicator::Impl {
 public:
  virtual ~Impl() = default;

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
  virtual std::unique_ptr<Request::Impl> all_reduce(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<Request::Impl> reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual std::unique_ptr<Request::Impl> gather_slices(const Values& values) = 0;
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
