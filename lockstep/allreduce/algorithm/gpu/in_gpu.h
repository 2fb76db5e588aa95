// Members are threads of one process that share one GPU: logical replicas. NCCL does not allow two
// members on one device. Here each member reduces its own slice of all buffers on that GPU, in
// member order, like threads on the CPU (in_process.h).
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

/// Element i uses hosts[i]. The hosts are threads of this process, at most gpu::kMaxMembers
/// (cuda/gpu_work.h). Throws Error (device) if `gpu` is not available.
std::vector<std::shared_ptr<GroupMember>> make_in_gpu(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, device::Device gpu);

}  // namespace lockstep::inline v0::allreduce
