// The base class of routes between ranks: a separate communicator, waits that yield the core, and
// the comparison of calls. Derived classes reduce the values that are too large to be sent with a
// call.
#pragma once

#include <fmt/format.h>

#include <mpi.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/barrier.h"
#include "lockstep/allreduce/transport/call_exchange.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

class MpiGroup : public GroupMember {
 public:
  /// Duplicates `ranks`. Collective over it. Values of an all-reduce of up to `small_bytes` are
  /// sent with the calls.
  explicit MpiGroup(MPI_Comm ranks, std::size_t small_bytes = 0);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override;

  /// Sets the numbers of members in messages; by default the ranks.
  virtual void set_member_numbers(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  bool overlaps() const override { return true; }
  /// Counts the wait of each operation when the next one begins.
  double seconds_waited() const override { return waited_; }
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

  MPI_Comm comm() const { return comm_; }

  // Derived classes implement the operations of the same names; they are complete on return. Small
  // all-reduces do not call them.
  virtual void run_all_reduce(const Values& values, ReduceOp op) = 0;
  virtual void run_reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual void run_gather_slices(const Values& values) = 0;

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

  /// Calls `advance() -> Progress` until it is done. Throws if another member has failed.
  template <typename Advance>
  void wait_until_done(Advance advance) {
    Backoff backoff;
    for (Progress progress = advance(); progress != Progress::done; progress = advance()) {
      if (progress == Progress::some) backoff.restart();
      if (backoff.pause()) receive_failure();
    }
  }
  /// Waits for one MPI request.
  void wait(MPI_Request& request);

  /// Runs `operation` (advance(), is_done(), status()) while the announced calls are compared. If
  /// they differ, its messages do not match, so it hangs or fails in MPI, and the comparison
  /// reports the cause.
  template <typename Operation>
  void run_checked(Operation& operation) {
    wait_until_done([&] {
      agreed();
      const bool moved = operation.advance();
      if (operation.is_done()) return Progress::done;
      return moved ? Progress::some : Progress::none;
    });
    agree();
    check(operation.status(), "a message between ranks");
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

  /// Whether collective calls are possible: the group has not failed and MPI is not finalized.
  bool is_usable() const;

  /// Throws Error (communication), here and on all other members, unless `status` is success.
  void check(int status, const char* call);

 private:
  // Only one thread of the process may call MPI at a time. If a failure is reported while another
  // thread is in MPI, for any group, that thread sends it.
  class Operation;
  class PendingFailures;

  [[noreturn]] void raise(const ErrorMessage& failure);
  void announce(const Call& call, const std::byte* values);
  void count_waiting();
  void reduce_with_calls(const Values& values, ReduceOp op);

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm failures_ = MPI_COMM_NULL;  // used only for failures, so any message on it is one
  int rank_ = 0;
  int size_ = 1;
  std::size_t small_bytes_;
  std::vector<int> numbers_;
  CallExchange exchange_;
  bool is_comparing_ = false;
  std::optional<ErrorMessage> failure_;
  std::chrono::steady_clock::time_point announced_;
  double last_seconds_ = 0;  // duration of the last exchange
  double waited_ = 0;
};

}  // namespace lockstep::inline v0::allreduce
