// What the routes between ranks share: a communicator of their own, waits that leave the core to others, and the
// comparison of calls. A route adds how it reduces.
#pragma once

#include <mpi.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/allreduce/transport/barrier.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"

namespace lockstep::allreduce {

class RingReduction;

class MpiGroup : public GroupMember {
 public:
  /// Duplicates `ranks`. Collective over it.
  explicit MpiGroup(MPI_Comm ranks);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override;

  /// What messages call the members; ranks are called by their rank unless told.
  virtual void number_members(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  bool overlaps() const override { return true; }
  double seconds_waited() const override { return waited_.count(); }
  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) final;
  void broadcast(std::span<std::byte> values, int root) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) final;
  void barrier() final;
  bool any(bool mine) final;
  void fail(const Failure& failure) final;
  void throw_if_failed() final;

  const std::optional<Failure>& failure() const { return failure_; }

  /// Carries `reduction`, which may be between some of the ranks alone, to its end: for a route that stands on this
  /// one. Throws Error (communication) when it fails or any rank of the group does.
  void carry(RingReduction& reduction);

 protected:
  enum class Progress { none, some, done };

  MPI_Comm comm() const { return comm_; }

  // What a route supplies: the operations of the same names, complete on return.
  virtual void run_all_reduce(const Values& values, ReduceOp op) = 0;
  virtual void run_reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual void run_gather_slices(const Values& values) = 0;

  /// Waits until every member has come to its call, and returns all calls in member order. Throws Error
  /// (communication), the same on all, if they differ. A route whose members have a faster way to meet has its own.
  virtual const std::vector<Call>& compare(const Call& call);
  /// For a route whose members wait for each other in other ways than these: makes them throw.
  virtual void tell_failure(const Failure& /*failure*/) {}

  /// Tells the others what this member calls. Their calls are under way until agree() returns.
  void announce(const Call& call);
  /// Whether all members have announced their calls. Throws Error (communication), the same on all, if these differ.
  bool agreed();
  /// Waits for agreed(), and returns all calls in member order.
  const std::vector<Call>& agree();
  /// Throws when another member has failed, or another thread of this one; to be called during long waits.
  void receive_failure();
  /// Notes a failure that all members know of, and throws it.
  [[noreturn]] void raise_known(Failure failure);
  /// Tells a failure to all other members; the first one stays.
  void spread(const Failure& failure);

  /// Calls `advance() -> Progress` until it is done. Throws when another member has failed.
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

  /// Carries `operation` (advance(), is_done(), status()) out while the announced calls are compared: where they differ
  /// its messages do not match, which ends in a halt or in an error of MPI, and the comparison says why.
  template <typename Operation>
  void carry_out(Operation& operation) {
    wait_until_done([&] {
      agreed();
      const bool moved = operation.advance();
      if (operation.is_done()) return Progress::done;
      return moved ? Progress::some : Progress::none;
    });
    agree();
    check(operation.status(), "a message between ranks");
  }

  /// Runs `operation`, whose failure is one that all members of `meeting` know, or becomes it.
  template <typename Operation>
  void at_meeting(const Meeting& meeting, Operation operation) {
    try {
      operation();
    } catch (const std::exception& error) {
      if (failure_) throw;
      if (const auto known = meeting.failure()) raise_known(*known);
      spread({"all_reduce", fmt::format("needed all ranks to go on, but rank {} failed", rank()), error.what()});
      throw;
    }
  }

  /// Whether the members still agree, so that what all do together can be done.
  bool is_usable() const;

  /// Throws Error (communication), here and on all other members, unless `status` is success.
  void check(int status, const char* call);

 private:
  // MPI serves one thread of the process at a time. A failure that is reported while another thread is inside, in
  // whatever group, is left to that one.
  class Operation;
  class LeftOver;

  [[noreturn]] void raise(const Failure& failure);

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm failures_ = MPI_COMM_NULL;  // carries nothing but failures, so that any message there is one
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> numbers_;
  // MPI may write to it until the exchange is complete, which a failed group never awaits: then it is left to MPI for
  // good.
  std::unique_ptr<std::vector<Call>> calls_;
  MPI_Request exchange_ = MPI_REQUEST_NULL;
  std::optional<Failure> failure_;
  std::chrono::steady_clock::time_point announced_;
  std::chrono::duration<double> waited_{0};
};

}  // namespace lockstep::allreduce
