// The NCCL communicators of this process's members of one group. They are non-blocking, so that an
// abort works at any time.
#pragma once

#include <mpi.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce {

/// Loads NCCL. Collective over `ranks`, so that no rank waits for a rank without NCCL. Throws Error
/// (device), the same on all ranks.
void load_nccl(MPI_Comm ranks);

class NcclCommunicators : public std::enable_shared_from_this<NcclCommunicators> {
 public:
  struct Participant {
    int rank = 0;  ///< rank in the NCCL communicator
    device::Device gpu;
    int member = 0;  ///< number in messages
  };
  using Call = std::function<ncclResult_t(ncclComm_t)>;

  /// Creates the communicators of the local members `participants` of a group of `size`. Waits
  /// until all members have joined. Collective over `ranks`, which is MPI_COMM_NULL if all members
  /// are in this process. Throws Error (communication), the same on all ranks, if one of them
  /// cannot join.
  static std::shared_ptr<NcclCommunicators> create(MPI_Comm ranks, int size,
                                                   const std::vector<Participant>& participants,
                                                   std::chrono::milliseconds join_limit);

  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  /// Waits for a limited time for the other members to arrive here.
  ~NcclCommunicators();

  /// Calls `call` for a participant on its GPU, and waits until NCCL has enqueued the work on its
  /// stream. Calls `poll_group` during a long wait; an exception ends the wait. Returns the
  /// failure, if any; `what` names the call in its message.
  std::optional<ErrorMessage> run(std::size_t participant, std::string_view what, const Call& call,
                                  const std::function<void()>& poll_group);
  /// The asynchronous failure of the communicator, if any.
  std::optional<ErrorMessage> check(std::size_t participant);
  /// Whether no process has more than one of the members.
  bool serves_one_each() const { return serves_one_each_; }
  /// Aborts all current and later operations. Thread-safe; does not wait.
  void abort() noexcept;

  /// Zeroed memory of the participant's GPU, registered so that NCCL reduces it without a copy;
  /// unregistered memory if NCCL does not support that. `poll_group` as for run().
  device::Buffer allocate(std::size_t participant, std::size_t bytes, device::Stream& stream,
                          const std::function<void()>& poll_group);
  /// The offset of `data` in memory of allocate(), from 1; 0 for other memory. Members reduce
  /// without a copy only if this is the same for all, and must not mix both kinds of memory in one
  /// call.
  std::uint64_t place_of(std::size_t participant, const std::byte* data);

 private:
  struct Own {
    Participant participant;
    std::mutex inside;  // held during each NCCL call, so that no abort runs at the same time
    ncclComm_t comm = nullptr;                           // null: not joined, or aborted
    std::map<const std::byte*, std::size_t> registered;  // sizes in bytes by address
    std::mutex registered_mutex;
  };

  explicit NcclCommunicators(const std::vector<Participant>& participants);
  std::optional<ErrorMessage> join(const ncclUniqueId& id, int size,
                                   std::chrono::milliseconds limit);
  std::optional<ErrorMessage> init(const ncclUniqueId& id, int size);
  ncclResult_t call_inside(Own& own, const Call& call);
  ncclResult_t state_of(Own& own);
  ErrorMessage failure_of(const Own& own, std::string_view what, ncclResult_t result) const;
  void deregister(std::size_t participant, void* data, void* handle) noexcept;
  void finish() noexcept;

  std::vector<std::unique_ptr<Own>> own_;
  bool serves_one_each_ = false;
  std::atomic<bool> aborted_{false};
  std::mutex aborts_mutex_;
  std::vector<std::thread> aborts_;
};

}  // namespace lockstep::allreduce
