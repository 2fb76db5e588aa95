// The NCCL communicators of this process's members of one group, as handles that never block the host, so that an abort
// works at any time.
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

/// Loads NCCL. Collective over `ranks`, so that all hear of a rank that lacks it before any waits for it. Throws Error
/// (device), the same on all ranks.
void load_nccl(MPI_Comm ranks);

class NcclCommunicators : public std::enable_shared_from_this<NcclCommunicators> {
 public:
  struct Seat {
    int rank = 0;  ///< among those whom NCCL connects
    device::Device gpu;
    int member = 0;  ///< what messages call it
  };
  using Call = std::function<ncclResult_t(ncclComm_t)>;

  /// The communicators of local members, `seats`, of a group of `size`. Waits until all members have joined. Collective
  /// over `ranks`, which is MPI_COMM_NULL where all members are of this process. Throws Error (communication), the same
  /// on all ranks, where one of them cannot join.
  static std::shared_ptr<NcclCommunicators> create(MPI_Comm ranks, int size, const std::vector<Seat>& seats,
                                                   std::chrono::milliseconds join_limit);

  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  /// Waits a while for the other members to come here too.
  ~NcclCommunicators();

  /// Calls `call` for a seat, on its GPU, and waits until NCCL has put the work on its stream; `look_around` is called
  /// while that is long, and ends it by throwing. What failed, if anything; `what` says what was tried.
  std::optional<Failure> run(std::size_t seat, std::string_view what, const Call& call,
                             const std::function<void()>& look_around);
  /// What has failed since, if anything.
  std::optional<Failure> check(std::size_t seat);
  /// Whether no process has more than one of the members.
  bool serves_one_each() const { return serves_one_each_; }
  /// Ends all that is under way and all that will come. Any thread; does not wait.
  void abort() noexcept;

  /// Zeroed memory of the seat's GPU that NCCL can reduce without a copy of its own; plain memory where NCCL has none.
  /// `look_around` as for run().
  device::Buffer allocate(std::size_t seat, std::size_t bytes, device::Stream& stream,
                          const std::function<void()>& look_around);
  /// Where `data` is in memory of allocate(), from 1 on; 0 for other memory. Members reduce without a copy only where
  /// this is the same for all, and must not mix both kinds of memory in one call.
  std::uint64_t place_of(std::size_t seat, const std::byte* data);

 private:
  struct Own {
    Seat seat;
    std::mutex inside;          // held during each call of NCCL: an abort must not come into the middle of one
    ncclComm_t comm = nullptr;  // null: not joined, or aborted
    std::map<const std::byte*, std::size_t> registered;  // bytes by address
    std::mutex registered_mutex;
  };

  explicit NcclCommunicators(const std::vector<Seat>& seats);
  std::optional<Failure> join(const ncclUniqueId& id, int size, std::chrono::milliseconds limit);
  std::optional<Failure> init(const ncclUniqueId& id, int size);
  ncclResult_t call_inside(Own& own, const Call& call);
  ncclResult_t state_of(Own& own);
  Failure failure_of(const Own& own, std::string_view what, ncclResult_t result) const;
  void deregister(std::size_t seat, void* data, void* handle) noexcept;
  void finish() noexcept;

  std::vector<std::unique_ptr<Own>> own_;
  bool serves_one_each_ = false;
  std::atomic<bool> aborted_{false};
  std::mutex aborts_mutex_;
  std::vector<std::thread> aborts_;
};

}  // namespace lockstep::allreduce
