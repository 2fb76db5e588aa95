// Members on GPUs whose values are reduced by the host: they go down to page-locked memory, through the group of the
// host, and up again. For replicas of several ranks that share a GPU, which NCCL refuses, and for builds without NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

struct StagedOptions {
  std::size_t segment_bytes = std::size_t{4} << 20;  ///< that the host reduces while the next ones come down
};

/// The local members: element i stands on hosts[i] and is for gpus[i], which may be the same. The host does the
/// reduction, so operations are under way only while the caller is inside; a member keeps page-locked memory as large
/// as its largest values. Throws Error (device) where a GPU is not available.
std::vector<std::shared_ptr<GroupMember>> make_staged(const std::vector<std::shared_ptr<GroupMember>>& hosts,
                                                      const std::vector<device::Device>& gpus,
                                                      const StagedOptions& options = {});

}  // namespace lockstep::allreduce
