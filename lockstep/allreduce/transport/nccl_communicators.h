// The NCCL communicators of this process's members of one group. They are non-blocking, so that an
// abort works at any time.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::allreduce {

/// Loads NCCL. Collective over `ranks`, so that no rank waits for a rank without NCCL. Throws Error
/// (device), the same on all ranks.
void load_nccl(const Communicator& ranks);

inline bool is_fine(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

class NcclCommunicators {
 public:
  struct Participant {
    int rank = 0;  ///< the member's rank in the group
    device::Device gpu;
  };
  using Call = std::function<ncclResult_t(ncclComm_t)>;

  /// Creates the communicators of the local members `participants` of a group of `size`. Waits
  /// until all members have joined, and have computed a first sum, for at most `join_limit`.
  /// Collective over `ranks`, the processes of the members. Throws
  /// Error (communication), the same on all ranks, if a member is not reached.
  static std::shared_ptr<NcclCommunicators> create(const Communicator& ranks, int size,
                                                   const std::vector<Participant>& participants,
                                                   std::chrono::milliseconds join_limit,
                                                   std::chrono::milliseconds end_limit);

  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  /// Waits for the other members to arrive here, or for aborts, for at most the `end_limit` each.
  ~NcclCommunicators();

  /// Calls `call` for a participant on its GPU, and waits until NCCL has enqueued the work on its
  /// stream. Calls `poll_group` during a long wait; an exception ends the wait. Returns the
  /// failure, if any; `what` names the call in its message.
  std::optional<ErrorMessage> run(std::size_t participant, std::string_view what, const Call& call,
                                  const std::function<void()>& poll_group);
  /// The asynchronous failure of the communicator, if any.
  std::optional<ErrorMessage> check(std::size_t participant);
  /// Whether each process has one member.
  bool has_one_member_per_process() const { return has_one_member_per_process_; }
  /// Aborts all current and later operations. Thread-safe; does not wait.
  void abort() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  struct Deadline {
    std::chrono::milliseconds limit;
    Clock::time_point end = Clock::now() + limit;
  };

  struct FirstSum {
    device::Stream stream;
    device::Buffer value;
    std::optional<device::Event> end;
  };

  // A member of this process. Its abort keeps it alive.
  struct LocalMember {
    Participant participant;
    std::mutex inside;  // held during each NCCL call, so that no abort runs at the same time
    ncclComm_t comm = nullptr;          // null: not joined, or aborted
    std::optional<FirstSum> first_sum;  // until all members have joined
    std::thread abort;
    std::atomic<bool> has_aborted{false};
  };

  NcclCommunicators(const std::vector<Participant>& participants, int size,
                    std::chrono::milliseconds end_limit);
  std::optional<ErrorMessage> join(const ncclUniqueId& id, const Deadline& deadline);
  std::optional<ErrorMessage> sum_once(const Deadline& deadline);
  std::optional<ErrorMessage> run_together(std::string_view what, const Deadline& deadline,
                                           const std::function<ncclResult_t(LocalMember&)>& call);
  std::optional<ErrorMessage> wait_for_all(std::string_view what, const Deadline& deadline,
                                           const std::function<ncclResult_t(LocalMember&)>& state);
  ncclResult_t call_inside(LocalMember& member, const Call& call);
  ncclResult_t state_of(LocalMember& member);
  ErrorMessage failure_of(const LocalMember& member, std::string_view what,
                          ncclResult_t result) const;
  static void abort_one(LocalMember& member) noexcept;
  void finish() noexcept;

  std::vector<std::shared_ptr<LocalMember>> members_;
  int size_;
  std::chrono::milliseconds end_limit_;
  bool has_one_member_per_process_ = false;
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::inline v0::allreduce
