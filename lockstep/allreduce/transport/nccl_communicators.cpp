#include "lockstep/allreduce/transport/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/gpu.h"

namespace lockstep::allreduce {
namespace {

using Clock = std::chrono::steady_clock;
using device::cuda::DeviceScope;

constexpr std::chrono::seconds kFinishLimit{10};

std::string text_of(ncclResult_t result) {
  const char* details =
      ncclGetLastError(nullptr);  // the last error of this process; NCCL has none per communicator
  std::string text = fmt::format("NCCL returned \"{}\"", ncclGetErrorString(result));
  if (details != nullptr && *details != '\0') text += fmt::format(" ({})", details);
  return text + "; set NCCL_DEBUG=WARN for details";
}

struct Invitation {
  ncclUniqueId id{};
  std::array<char, 512> problem{};  // empty if there is an id
};

// Created on rank 0 and sent to all ranks.
Invitation invite(MPI_Comm ranks) {
  Invitation invitation;
  if (ranks == MPI_COMM_NULL || rank_in(ranks) == 0) {
    const ncclResult_t result = ncclGetUniqueId(&invitation.id);
    if (result != ncclSuccess) {
      const std::string text = text_of(result);
      std::copy_n(text.data(), std::min(text.size(), invitation.problem.size() - 1),
                  invitation.problem.data());
    }
  }
  if (ranks != MPI_COMM_NULL) MPI_Bcast(&invitation, sizeof(invitation), MPI_BYTE, 0, ranks);
  return invitation;
}

}  // namespace

void load_nccl(MPI_Comm ranks) {
  std::optional<ErrorMessage> problem;
  try {
    int version = 0;
    ncclGetVersion(&version);
  } catch (const Error& error) {
    problem = ErrorMessage{"nccl", fmt::format("expected NCCL on {}", host_name()), error.what()};
  }
  raise_first(ranks, problem, ErrorCategory::device);
}

std::shared_ptr<NcclCommunicators> NcclCommunicators::create(
    MPI_Comm ranks, int size, const std::vector<Participant>& participants,
    std::chrono::milliseconds join_limit) {
  const Invitation invitation = invite(ranks);
  if (invitation.problem[0] != '\0')
    throw Error(ErrorCategory::communication, "nccl",
                fmt::format("expected a rendezvous for {} members on {}", size, host_name()),
                invitation.problem.data());
  std::shared_ptr<NcclCommunicators> made(new NcclCommunicators(participants));
  made->serves_one_each_ = size == (ranks == MPI_COMM_NULL ? 1 : size_of(ranks));
  const std::optional<ErrorMessage> problem = made->join(invitation.id, size, join_limit);
  if (problem) made->abort();
  raise_first(ranks, problem);
  return made;
}

NcclCommunicators::NcclCommunicators(const std::vector<Participant>& participants) {
  for (const Participant& participant : participants) {
    own_.push_back(std::make_unique<Own>());
    own_.back()->participant = participant;
  }
}

NcclCommunicators::~NcclCommunicators() {
  if (!aborted_) finish();
  for (std::thread& thread : aborts_) thread.join();
}

std::optional<ErrorMessage> NcclCommunicators::init(const ncclUniqueId& id, int size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclGroupStart();
  const Own* last = own_.front().get();
  for (const auto& own : own_) {
    if (result != ncclSuccess && result != ncclInProgress) break;
    last = own.get();
    const DeviceScope scope(own->participant.gpu.index);
    result = ncclCommInitRankConfig(&own->comm, size, id, own->participant.rank, &config);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (result == ncclSuccess || result == ncclInProgress) result = end;
  if (result == ncclSuccess || result == ncclInProgress) return std::nullopt;
  return failure_of(*last, fmt::format("{} members to join", size), result);
}

std::optional<ErrorMessage> NcclCommunicators::join(const ncclUniqueId& id, int size,
                                                    std::chrono::milliseconds limit) {
  if (auto problem = init(id, size)) return problem;
  const Clock::time_point deadline = Clock::now() + limit;
  for (const auto& own : own_) {
    const std::string what = fmt::format("{} members to join", size);
    Backoff backoff;
    for (ncclResult_t state = state_of(*own); state != ncclSuccess; state = state_of(*own)) {
      if (state != ncclInProgress) return failure_of(*own, what, state);
      if (Clock::now() >= deadline)
        return ErrorMessage{
            "nccl",
            fmt::format("expected {} within {} s", what, static_cast<double>(limit.count()) / 1000),
            fmt::format("member {} on {} ({}) is still waiting for others", own->participant.member,
                        host_name(), device::to_string(own->participant.gpu))};
      backoff.pause();
    }
  }
  return std::nullopt;
}

ErrorMessage NcclCommunicators::failure_of(const Own& own, std::string_view what,
                                           ncclResult_t result) const {
  return {"nccl",
          fmt::format("expected {} on member {} ({} of {})", what, own.participant.member,
                      device::to_string(own.participant.gpu), host_name()),
          aborted_ ? "the group has ended" : text_of(result)};
}

ncclResult_t NcclCommunicators::call_inside(Own& own, const Call& call) {
  if (aborted_) return ncclInvalidUsage;  // does not wait for the abort, which may take long
  const std::lock_guard lock(own.inside);
  return own.comm == nullptr ? ncclInvalidUsage : call(own.comm);
}

ncclResult_t NcclCommunicators::state_of(Own& own) {
  return call_inside(own, [](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
    return result == ncclSuccess ? state : result;
  });
}

std::optional<ErrorMessage> NcclCommunicators::run(std::size_t participant, std::string_view what,
                                                   const Call& call,
                                                   const std::function<void()>& poll_group) {
  Own& own = *own_[participant];
  const DeviceScope scope(own.participant.gpu.index);
  ncclResult_t result = call_inside(own, call);
  Backoff backoff;
  while (result == ncclInProgress) {
    if (backoff.pause()) poll_group();
    result = state_of(own);
  }
  if (result == ncclSuccess) return std::nullopt;
  return failure_of(own, what, result);
}

std::optional<ErrorMessage> NcclCommunicators::check(std::size_t participant) {
  Own& own = *own_[participant];
  const ncclResult_t state = state_of(own);
  if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
  return failure_of(own, "NCCL operations to continue", state);
}

// An abort may wait for aborts of other members of this process, so all start at once on separate
// threads.
void NcclCommunicators::abort() noexcept {
  if (aborted_.exchange(true)) return;
  const std::lock_guard lock(aborts_mutex_);
  for (const auto& own : own_) {
    const auto abort_one = [&own = *own] {
      const std::lock_guard inside(own.inside);
      if (own.comm != nullptr) ncclCommAbort(own.comm);
      own.comm = nullptr;
    };
    try {
      aborts_.emplace_back(abort_one);
    } catch (const std::exception&) {
      abort_one();  // no thread available; if this hangs, the watchdog ends the job
    }
  }
}

// NCCL waits for the finalization of all communicators, so all are finalized before any is
// destroyed.
void NcclCommunicators::finish() noexcept {
  for (const auto& own : own_)
    if (own->comm != nullptr) ncclCommFinalize(own->comm);
  const Clock::time_point deadline = Clock::now() + kFinishLimit;
  for (const auto& own : own_) {
    if (own->comm == nullptr) continue;
    Backoff backoff;
    while (state_of(*own) == ncclInProgress && Clock::now() < deadline) backoff.pause();
  }
  const bool all_are_done = std::ranges::all_of(
      own_, [&](const auto& own) { return own->comm == nullptr || state_of(*own) == ncclSuccess; });
  if (!all_are_done) return abort();
  for (const auto& own : own_)
    if (own->comm != nullptr) ncclCommDestroy(own->comm);
}

device::Buffer NcclCommunicators::allocate(std::size_t participant, std::size_t bytes,
                                           device::Stream& stream,
                                           const std::function<void()>& poll_group) {
  Own& own = *own_[participant];
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const DeviceScope scope(own.participant.gpu.index);
  void* data = nullptr;
  if (ncclMemAlloc(&data, size) != ncclSuccess)
    return device::make_gpu_allocator(own.participant.gpu.index)->allocate(bytes);
  const auto handle = std::make_shared<void*>(nullptr);
  device::Buffer buffer(data, bytes, own.participant.gpu,
                        [weak = weak_from_this(), participant, handle](void* memory) {
                          // Destroying the communicator also removes its registrations.
                          if (const auto self = weak.lock())
                            self->deregister(participant, memory, *handle);
                          ncclMemFree(memory);
                        });
  gpu::fill_with_zeros(data, size, stream);
  stream.synchronize();
  const auto problem = run(
      participant, "memory to be registered",
      [&](ncclComm_t comm) { return ncclCommRegister(comm, data, size, handle.get()); },
      poll_group);
  if (!problem && *handle != nullptr) {
    const std::lock_guard lock(own.registered_mutex);
    own.registered[static_cast<const std::byte*>(data)] = size;
  }
  return buffer;
}

void NcclCommunicators::deregister(std::size_t participant, void* data, void* handle) noexcept {
  if (handle == nullptr) return;
  Own& own = *own_[participant];
  call_inside(own, [&](ncclComm_t comm) { return ncclCommDeregister(comm, handle); });
  const std::lock_guard lock(own.registered_mutex);
  own.registered.erase(static_cast<const std::byte*>(data));
}

std::uint64_t NcclCommunicators::place_of(std::size_t participant, const std::byte* data) {
  Own& own = *own_[participant];
  const std::lock_guard lock(own.registered_mutex);
  auto next = own.registered.upper_bound(data);
  if (next == own.registered.begin()) return 0;
  const auto& [begin, size] = *--next;
  const auto offset = static_cast<std::uint64_t>(data - begin);
  return offset < size ? offset + 1 : 0;
}

}  // namespace lockstep::allreduce
