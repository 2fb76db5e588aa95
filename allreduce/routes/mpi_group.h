// What the routes between ranks share: a communicator of their own, waits that leave the core to others, and the
// comparison of calls. A route adds how it reduces.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allreduce/communicator_impl.h"
#include "allreduce/routes/backoff.h"

namespace lockstep::allreduce {

class MpiGroup : public Communicator::Impl {
 public:
  /// Duplicates `ranks`. Collective over it.
  explicit MpiGroup(MPI_Comm ranks);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override;

  /// What messages call the members; ranks are called by their rank unless told.
  void number_members(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void broadcast(std::span<std::byte> values, int root) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) final;
  void barrier() final;
  bool any(bool mine) final;
  void fail(const Failure& failure) final;

  const std::optional<Failure>& failure() const { return failure_; }

 protected:
  enum class Progress { none, some, done };

  MPI_Comm comm() const { return comm_; }

  /// Tells the others what this member calls. Their calls are under way until agree() returns.
  void announce(const Call& call);
  /// Whether all members have announced their calls. Throws Error (communication), the same on all, if these differ.
  bool agreed();
  /// Waits for agreed(), and returns all calls in member order.
  const std::vector<Call>& agree();

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

  /// Throws Error (communication), here and on all other members, unless `status` is success.
  void check(int status, const char* call);

 private:
  void receive_failure();
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
  std::string notice_;  // the failure as sent; MPI may still read it
};

/// Non-blocking operations on buffers of the caller. The destructor cancels what is not complete: only after a failure
/// is there any.
class PendingRequests {
 public:
  explicit PendingRequests(std::size_t count) : requests_(count, MPI_REQUEST_NULL) {}
  PendingRequests(const PendingRequests&) = delete;
  PendingRequests& operator=(const PendingRequests&) = delete;
  ~PendingRequests();

  MPI_Request& operator[](std::size_t index) { return requests_[index % requests_.size()]; }
  std::size_t size() const { return requests_.size(); }

 private:
  std::vector<MPI_Request> requests_;
};

}  // namespace lockstep::allreduce
