// What members that NCCL serves share: their seat at it, and its failures as those of the group.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/transport/gpu_member.h"
#include "lockstep/allreduce/transport/nccl_communicators.h"

namespace lockstep::allreduce {

ncclDataType_t nccl_type(ElementType type);
ncclRedOp_t nccl_operation(ReduceOp op);

/// Calls `each(index)` for 0 .. count - 1 as one operation of NCCL; the first failure ends it.
ncclResult_t as_one_nccl_operation(int count, const std::function<ncclResult_t(int)>& each);

class NcclMember : public GpuMember {
 public:
  NcclMember(std::shared_ptr<GroupMember> host, device::Device gpu, std::shared_ptr<NcclCommunicators> communicators,
             std::size_t seat)
      : GpuMember(std::move(host), gpu), communicators_(std::move(communicators)), seat_(seat) {}

  bool overlaps() const override { return true; }
  bool moves_on_host() const override { return false; }

 protected:
  void check_progress() override { raise(communicators_->check(seat_)); }
  void stop(const Failure& /*failure*/) noexcept override { communicators_->abort(); }

  /// Returns when NCCL has put the work of `call` on its stream.
  void run_nccl(std::string_view what, const NcclCommunicators::Call& call) {
    raise(communicators_->run(seat_, what, call, [this] { look_around(); }));
  }

  NcclCommunicators& communicators() const { return *communicators_; }
  std::size_t seat() const { return seat_; }

 private:
  // Where the communicator has been aborted the group knows why.
  void raise(const std::optional<Failure>& failure) {
    if (!failure) return;
    host().fail(*failure);
    host().throw_if_failed();
    failure->raise();
  }

  std::shared_ptr<NcclCommunicators> communicators_;
  std::size_t seat_;
};

}  // namespace lockstep::allreduce
