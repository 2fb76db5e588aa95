// A group of members that exchange messages: the comparison of calls, waits that yield the core,
// and failures that all members learn. It reduces in a ring (algorithm/ring_reduction.h); routes
// with another way derive from it.
//
// The ring is reduce-scatter, then all-gather. The buffer is split into one chunk per rank. In each
// of n - 1 steps every rank sends one chunk to its right neighbor and adds its own values to the
// chunk that it receives from the left. Then each rank has one complete chunk, and in n - 1 more
// steps the complete chunks circulate. Every rank sends and receives 2 (n - 1) / n of the buffer
// for any number n of ranks. Chunks are sent in segments, so that one segment is reduced while
// others are in flight. (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations", 2009.)
//
// Each element is completed by one rank, in an order that depends only on its position, so results
// are bitwise equal on all ranks and in every run. Small buffers, for which 2 (n - 1) messages cost
// too much, are sent with the calls that ranks compare (CallExchange).
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/call_exchange.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/backoff.h"
#include "lockstep/allreduce/transport/barrier.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

class MessageGroup : public GroupMember {
 public:
  /// `transport` is used by this group alone. Collective over its members.
  explicit MessageGroup(std::shared_ptr<Transport> transport, const RingOptions& options = {});
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;
  ~MessageGroup() override;

  /// Sets the numbers of members in messages; by default the ranks.
  virtual void set_member_numbers(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  int rank() const final { return transport_->rank(); }
  int size() const final { return transport_->size(); }
  std::string route() const override { return "ring"; }
  bool overlaps() const override { return true; }
  Transport* transport() final { return transport_.get(); }
  /// Counts the wait of each operation when the next one begins.
  double seconds_waited() const override { return waited_; }
  device::Buffer allocate(std::size_t bytes) override;
  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) final;
  void broadcast(std::span<std::byte> values, int root) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) final;
  std::vector<std::vector<std::byte>> all_to_all(
      std::span<const std::span<const std::byte>> parts) final;
  void barrier() final;
  bool any(bool mine) final;
  void fail(const ErrorMessage& failure) final;
  void throw_if_failed() final;

  const std::optional<ErrorMessage>& failure() const { return failure_; }

 protected:
  enum class Progress { none, some, done };

  // The operations of the same names, which are complete on return: in a ring, unless a derived
  // class does something else. Small all-reduces do not call them.
  virtual void run_all_reduce(const Values& values, ReduceOp op);
  virtual void run_reduce_scatter(const Values& values, ReduceOp op);
  virtual void run_gather_slices(const Values& values);

  /// Runs a part of the ring, over `transport`, while the calls are compared.
  void run_ring(Transport& transport, const Values& values, ReduceOp op, RingReduction::Part part);
  MessageBuffers& buffers() { return buffers_; }

  /// Waits until every member has arrived with its call, and returns all calls in member order.
  /// Throws Error (communication), the same on all, if they differ. Overridden by routes with a
  /// faster barrier.
  virtual const std::vector<Call>& compare(const Call& call);
  /// Makes members throw that wait in the derived class, for example at its barrier.
  virtual void publish_failure(const ErrorMessage& /*failure*/) {}

  /// Starts the exchange of calls with the other members; it is in progress until agree() returns.
  void announce(const Call& call) { announce(call, nullptr); }
  /// Whether all members have announced their calls. Throws Error (communication), the same on all,
  /// if these differ.
  bool agreed();
  /// Waits for agreed(), and returns all calls in member order.
  const std::vector<Call>& agree();
  /// Throws if another member, or another thread of this member, has failed. Call it during long
  /// waits.
  void receive_failure();
  /// Records and throws a failure that all members know.
  [[noreturn]] void raise_known(ErrorMessage failure);
  /// Sends a failure to all other members; the first one stays.
  void broadcast_failure(const ErrorMessage& failure);

  /// Calls `advance() -> Progress` until it is done. Throws if another member has failed. An error
  /// of the transport fails the group.
  template <typename Advance>
  void wait_until_done(Advance advance) {
    try {
      Backoff backoff;
      for (Progress progress = advance(); progress != Progress::done; progress = advance()) {
        if (progress == Progress::some) backoff.restart();
        if (backoff.pause()) receive_failure();
      }
    } catch (const Error& error) {
      if (failure_) throw;
      raise(error.message());
    }
  }

  /// Runs `operation` (advance(), is_done()) while the announced calls are compared. If they
  /// differ, its messages do not match, so it waits for ever or fails, and the comparison reports
  /// the cause.
  template <typename Operation>
  void run_checked(Operation& operation) {
    std::optional<ErrorMessage> problem;
    wait_until_done([&] {
      agreed();
      try {
        const bool moved = operation.advance();
        if (!operation.is_done()) return moved ? Progress::some : Progress::none;
      } catch (const Error& error) {
        problem = error.message();
      }
      return Progress::done;
    });
    agree();
    if (problem) raise(*problem);
  }

  /// Runs `operation` and makes its failure known to all members of `barrier`.
  template <typename Operation>
  void at_barrier(const Barrier& barrier, Operation operation) {
    try {
      operation();
    } catch (const std::exception& error) {
      if (failure_) throw;
      if (const auto known = barrier.failure()) raise_known(*known);
      broadcast_failure({"all_reduce",
                         fmt::format("expected all ranks to continue, but rank {} failed", rank()),
                         error.what()});
      throw;
    }
  }

  /// Throws Error (communication) with `failure`, here and on all other members.
  [[noreturn]] void raise(const ErrorMessage& failure);

 private:
  class Operation;

  void announce(const Call& call, const std::byte* values);
  void count_waiting();
  void gather_chunks(std::span<std::byte> all, std::vector<Slice> chunks);
  void reduce_with_calls(const Values& values, ReduceOp op);

  std::shared_ptr<Transport> transport_;
  RingOptions options_;
  std::vector<int> numbers_;
  CallExchange exchange_;
  MessageBuffers buffers_;  // for operations; the exchange of calls has its own
  MessageBuffers notices_;  // notices of failure
  bool is_comparing_ = false;
  std::optional<ErrorMessage> failure_;
  std::chrono::steady_clock::time_point announced_;
  double last_seconds_ = 0;  // duration of the last exchange
  double waited_ = 0;
};

/// The route ring. Collective over the members of `transport`, which the group uses alone.
std::shared_ptr<MessageGroup> make_ring(std::shared_ptr<Transport> transport,
                                        const RingOptions& options = {});

}  // namespace lockstep::inline v0::allreduce
