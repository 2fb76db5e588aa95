// Members are threads of one process that share one GPU: logical replicas. NCCL refuses two members on one device; here
// each reduces its own slice of all buffers on that GPU, in member order, as threads on the CPU do (in_process.h).
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

/// Element i stands on hosts[i]; the hosts are threads of this process, kMostMembers of cuda/gpu_work.h at most. Throws
/// Error (device) where `gpu` is not available.
std::vector<std::shared_ptr<GroupMember>> make_in_gpu(const std::vector<std::shared_ptr<GroupMember>>& hosts,
                                                      device::Device gpu);

}  // namespace lockstep::allreduce
