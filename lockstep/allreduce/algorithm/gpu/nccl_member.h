// The base class of members that use NCCL: their communicator, whose failures become failures of
// the group.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/allreduce/transport/gpu_member.h"
#include "lockstep/allreduce/transport/nccl_communicators.h"

namespace lockstep::allreduce {

ncclDataType_t nccl_type(ElementType type);
ncclRedOp_t nccl_operation(ReduceOp op);

/// Calls `each(index)` for 0 .. count - 1 as one NCCL group operation; stops at the first failure.
ncclResult_t as_one_nccl_operation(int count, const std::function<ncclResult_t(int)>& each);

class NcclMember : public GpuMember {
 public:
  NcclMember(std::shared_ptr<GroupMember> host, device::Device gpu,
             std::shared_ptr<NcclCommunicators> communicators, std::size_t participant)
      : GpuMember(std::move(host), gpu),
        communicators_(std::move(communicators)),
        participant_(participant) {}

  bool overlaps() const override { return true; }
  bool moves_on_host() const override { return false; }

 protected:
  void check_progress() override { raise(communicators_->check(participant_)); }
  void stop(const ErrorMessage& /*failure*/) noexcept override { communicators_->abort(); }

  /// Returns when NCCL has enqueued the work of `call` on its stream.
  void run_nccl(std::string_view what, const NcclCommunicators::Call& call) {
    raise(communicators_->run(participant_, what, call, [this] { poll_group(); }));
  }

  NcclCommunicators& communicators() const { return *communicators_; }
  std::size_t participant() const { return participant_; }

 private:
  // If the communicator was aborted, the group has the original failure.
  void raise(const std::optional<ErrorMessage>& failure) {
    if (!failure) return;
    host().fail(*failure);
    host().throw_if_failed();
    throw Error(ErrorCategory::communication, *failure);
  }

  std::shared_ptr<NcclCommunicators> communicators_;
  std::size_t participant_;
};

}  // namespace lockstep::allreduce
