#include "lockstep/allreduce/transport/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

using device::cuda::DeviceScope;

// Whether `condition` became true before the deadline.
template <typename Condition>
bool poll_until(std::chrono::steady_clock::time_point deadline, Condition condition) {
  Backoff backoff;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    backoff.pause();
  }
  return true;
}

std::string text_of(ncclResult_t result) {
  const char* details =
      ncclGetLastError(nullptr);  // the last error of this process; NCCL has none per communicator
  std::string text = fmt::format("NCCL returned \"{}\"", ncclGetErrorString(result));
  if (details != nullptr && *details != '\0') text += fmt::format(" ({})", details);
  return text + "; set NCCL_DEBUG=WARN for details";
}

std::string name_of(const NcclCommunicators::Participant& member) {
  return fmt::format("member {} ({} of {})", member.rank, device::to_string(member.gpu),
                     host_name());
}

struct NcclInvitation {
  ncclUniqueId id{};
  std::array<char, 512> problem{};  // empty if there is an id
};

// Created on rank 0 and sent to all ranks.
NcclInvitation invite(const Communicator& ranks) {
  NcclInvitation invitation;
  if (ranks.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&invitation.id);
    if (result != ncclSuccess) {
      const std::string text = text_of(result);
      std::copy_n(text.data(), std::min(text.size(), invitation.problem.size() - 1),
                  invitation.problem.data());
    }
  }
  ranks.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), 0);
  return invitation;
}

}  // namespace

void load_nccl(const Communicator& ranks) {
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
    const Communicator& ranks, int size, const std::vector<Participant>& participants,
    std::chrono::milliseconds join_limit, std::chrono::milliseconds end_limit) {
  const NcclInvitation invitation = invite(ranks);
  if (invitation.problem[0] != '\0')
    throw Error(ErrorCategory::communication, "nccl",
                fmt::format("expected a rendezvous for {} members on {}", size, host_name()),
                invitation.problem.data());
  std::shared_ptr<NcclCommunicators> made(new NcclCommunicators(participants, size, end_limit));
  made->has_one_member_per_process_ = size == ranks.size();
  std::optional<ErrorMessage> problem;
  try {
    problem = made->join(invitation.id, {.limit = join_limit});
  } catch (const Error& error) {  // a GPU failed
    problem = error.message();
  }
  if (problem) made->abort();
  raise_first(ranks, problem);
  return made;
}

NcclCommunicators::NcclCommunicators(const std::vector<Participant>& participants, int size,
                                     std::chrono::milliseconds end_limit)
    : size_(size), end_limit_(end_limit) {
  for (const Participant& participant : participants) {
    members_.push_back(std::make_shared<LocalMember>());
    members_.back()->participant = participant;
  }
}

NcclCommunicators::~NcclCommunicators() {
  if (!aborted_) finish();
  const Clock::time_point deadline = Clock::now() + end_limit_;
  for (const auto& member : members_) {
    if (!member->abort.joinable()) continue;
    if (poll_until(deadline, [&] { return member->has_aborted.load(); }))
      member->abort.join();
    else
      member->abort.detach();  // the GPU may have failed
  }
}

std::optional<ErrorMessage> NcclCommunicators::join(const ncclUniqueId& id,
                                                    const Deadline& deadline) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto problem =
      run_together(fmt::format("{} members to join", size_), deadline, [&](LocalMember& member) {
        return ncclCommInitRankConfig(&member.comm, size_, id, member.participant.rank, &config);
      });
  return problem ? problem : sum_once(deadline);
}

// NCCL connects members when they first reduce, and CUDA loads a kernel at its first launch, which
// must not happen while another member of this process waits on its GPU.
std::optional<ErrorMessage> NcclCommunicators::sum_once(const Deadline& deadline) {
  const std::string what = fmt::format("a first sum of {} members", size_);
  constexpr float kOne = 1;
  for (const auto& member : members_) {
    const device::Device gpu = member->participant.gpu;
    member->first_sum =
        FirstSum{device::Stream(gpu), device::make_gpu_allocator(gpu.index)->allocate(sizeof(kOne)),
                 std::nullopt};
    FirstSum& sum = *member->first_sum;
    gpu::copy(&kOne, sum.value.data(), sizeof(kOne), sum.stream);
  }
  if (auto problem = run_together(what, deadline, [](LocalMember& member) {
        FirstSum& sum = *member.first_sum;
        return ncclAllReduce(sum.value.data(), sum.value.data(), 1, ncclFloat32, ncclSum,
                             member.comm, device::cuda::native(sum.stream));
      }))
    return problem;
  for (const auto& member : members_) member->first_sum->end = member->first_sum->stream.record();
  if (auto problem = wait_for_all(what, deadline, [this](LocalMember& member) {
        const ncclResult_t state = state_of(member);
        return state == ncclSuccess && !member.first_sum->end->is_complete() ? ncclInProgress
                                                                             : state;
      }))
    return problem;
  for (const auto& member : members_) {
    float value = 0;
    gpu::copy(member->first_sum->value.data(), &value, sizeof(value), member->first_sum->stream);
    member->first_sum->stream.synchronize();
    if (value != static_cast<float>(size_))
      return ErrorMessage{"nccl",
                          fmt::format("expected {} on {}", what, name_of(member->participant)),
                          fmt::format("got {}", value)};
  }
  for (const auto& member : members_) member->first_sum.reset();
  return std::nullopt;
}

// Calls `call` for all members of this process as one NCCL operation, and waits until NCCL has
// enqueued or done it.
std::optional<ErrorMessage> NcclCommunicators::run_together(
    std::string_view what, const Deadline& deadline,
    const std::function<ncclResult_t(LocalMember&)>& call) {
  ncclResult_t result = ncclGroupStart();
  const LocalMember* last = members_.front().get();
  for (const auto& member : members_) {
    if (!is_fine(result)) break;
    last = member.get();
    const DeviceScope scope(member->participant.gpu.index);
    result = call(*member);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (is_fine(result)) result = end;
  if (!is_fine(result)) return failure_of(*last, what, result);
  return wait_for_all(what, deadline, [this](LocalMember& member) { return state_of(member); });
}

std::optional<ErrorMessage> NcclCommunicators::wait_for_all(
    std::string_view what, const Deadline& deadline,
    const std::function<ncclResult_t(LocalMember&)>& state) {
  for (const auto& member : members_) {
    ncclResult_t result = ncclInProgress;
    if (!poll_until(deadline.end, [&] { return (result = state(*member)) != ncclInProgress; }))
      return ErrorMessage{
          "nccl",
          fmt::format("expected {} within {} s", what,
                      static_cast<double>(deadline.limit.count()) / 1000),
          fmt::format("member {} on {} ({}) is still waiting for others", member->participant.rank,
                      host_name(), device::to_string(member->participant.gpu))};
    if (result != ncclSuccess) return failure_of(*member, what, result);
  }
  return std::nullopt;
}

ErrorMessage NcclCommunicators::failure_of(const LocalMember& member, std::string_view what,
                                           ncclResult_t result) const {
  return {"nccl", fmt::format("expected {} on {}", what, name_of(member.participant)),
          aborted_ ? "the group has ended" : text_of(result)};
}

ncclResult_t NcclCommunicators::call_inside(LocalMember& member, const Call& call) {
  if (aborted_) return ncclInvalidUsage;  // does not wait for the abort, which may take long
  const std::lock_guard lock(member.inside);
  return member.comm == nullptr ? ncclInvalidUsage : call(member.comm);
}

ncclResult_t NcclCommunicators::state_of(LocalMember& member) {
  return call_inside(member, [](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
    return result == ncclSuccess ? state : result;
  });
}

std::optional<ErrorMessage> NcclCommunicators::run(std::size_t participant, std::string_view what,
                                                   const Call& call,
                                                   const std::function<void()>& poll_group) {
  LocalMember& member = *members_[participant];
  const DeviceScope scope(member.participant.gpu.index);
  ncclResult_t result = call_inside(member, call);
  Backoff backoff;
  while (result == ncclInProgress) {
    if (backoff.pause()) poll_group();
    result = state_of(member);
  }
  if (result == ncclSuccess) return std::nullopt;
  return failure_of(member, what, result);
}

std::optional<ErrorMessage> NcclCommunicators::check(std::size_t participant) {
  LocalMember& member = *members_[participant];
  const ncclResult_t state = state_of(member);
  if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
  return failure_of(member, "NCCL operations to continue", state);
}

// An abort may wait for aborts of other members of this process, so all start at once on separate
// threads.
void NcclCommunicators::abort() noexcept {
  if (aborted_.exchange(true)) return;
  for (const auto& member : members_) {
    try {
      member->abort = std::thread([member] { abort_one(*member); });
    } catch (const std::exception&) {
      abort_one(*member);  // no thread available; if this hangs, the watchdog ends the job
    }
  }
}

void NcclCommunicators::abort_one(LocalMember& member) noexcept {
  try {
    const std::lock_guard inside(member.inside);
    if (member.comm != nullptr) ncclCommAbort(member.comm);
    member.comm = nullptr;
    if (member.first_sum) member.first_sum->stream.synchronize();  // before its memory is freed
  } catch (const Error&) {
    // The GPU has failed: no work is running.
  }
  member.first_sum.reset();
  member.has_aborted = true;
}

// NCCL waits for the finalization of all communicators, so all are finalized before any is
// destroyed.
void NcclCommunicators::finish() noexcept {
  for (const auto& member : members_)
    if (member->comm != nullptr) ncclCommFinalize(member->comm);
  const Clock::time_point deadline = Clock::now() + end_limit_;
  const auto is_finished = [&](const std::shared_ptr<LocalMember>& member) {
    ncclResult_t state = ncclSuccess;
    return member->comm == nullptr ||
           (poll_until(deadline, [&] { return (state = state_of(*member)) != ncclInProgress; }) &&
            state == ncclSuccess);
  };
  if (!std::ranges::all_of(members_, is_finished)) return abort();
  for (const auto& member : members_)
    if (member->comm != nullptr) ncclCommDestroy(member->comm);
}

}  // namespace lockstep::inline v0::allreduce
