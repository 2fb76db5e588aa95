// A group of members that exchange messages: runs the operations of a Collective to their ends,
// with waits that yield the core, in the thread that has the turn of the transport. Routes that
// reduce in another way than in a ring derive from it.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/collective.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/barrier.h"
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
  virtual void set_member_numbers(std::vector<int> numbers) {
    collective_.set_member_numbers(std::move(numbers));
  }

  int rank() const final { return transport_->rank(); }
  int size() const final { return transport_->size(); }
  std::string route() const override { return "ring"; }
  bool overlaps() const override { return true; }
  Transport* transport() final { return transport_.get(); }
  double seconds_waited() const override { return collective_.seconds_waited(); }
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

  const std::optional<ErrorMessage>& failure() const { return collective_.failure(); }

 protected:
  // The operations of the same names, which are complete on return: in a ring, unless a derived
  // class does something else. Small all-reduces do not call them.
  virtual void run_all_reduce(const Values& values, ReduceOp op);
  virtual void run_reduce_scatter(const Values& values, ReduceOp op);
  virtual void run_gather_slices(const Values& values);

  /// Waits until every member has arrived with its call, and returns all calls in member order.
  /// Throws Error (communication), the same on all, if they differ. Overridden by routes with a
  /// faster barrier.
  virtual const std::vector<Call>& compare(const Call& call);
  /// Makes members throw that wait in the derived class, for example at its barrier. May be called
  /// again for the same failure.
  virtual void publish_failure(const ErrorMessage& /*failure*/) {}

  /// Starts a part of an operation by `start`, and waits until it is complete.
  template <typename Start>
  void run(Start start) {
    try {
      start();
      wait();
    } catch (const Error&) {
      if (failure()) publish_failure(*failure());
      throw;
    }
  }
  /// Throws if another member, or another thread of this member, has failed. Call it during long
  /// waits.
  void receive_failure();
  /// Sends a failure to all other members, and throws it.
  [[noreturn]] void raise(const ErrorMessage& failure);
  Collective& collective() { return collective_; }

  /// Runs `operation` and makes its failure known to all members of `barrier`.
  template <typename Operation>
  void at_barrier(const Barrier& barrier, Operation operation) {
    try {
      operation();
    } catch (const std::exception& error) {
      if (failure()) throw;
      if (const auto known = barrier.failure()) {
        collective_.record_failure(*known);
        throw;
      }
      tell_others({"all_reduce",
                   fmt::format("expected all ranks to continue, but rank {} failed", rank()),
                   error.what()});
      throw;
    }
  }

 private:
  class Use;
  class Operation;

  void wait();
  void tell_others(const ErrorMessage& failure);

  std::shared_ptr<Transport> transport_;
  bool shares_cores_;
  Collective collective_;
};

/// The route ring. Collective over the members of `transport`, which the group uses alone.
std::shared_ptr<MessageGroup> make_ring(std::shared_ptr<Transport> transport,
                                        const RingOptions& options = {});

}  // namespace lockstep::inline v0::allreduce
