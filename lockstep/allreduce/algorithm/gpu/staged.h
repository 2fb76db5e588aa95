// Members on GPUs whose values are reduced by the host: they are copied to page-locked memory,
// reduced by the host group, and copied back. For replicas of several ranks that share a GPU, which
// NCCL does not allow, and for builds without NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

struct StagedOptions {
  /// The host reduces one segment while the next ones are copied.
  std::size_t segment_bytes = std::size_t{4} << 20;
};

/// The local members: element i uses hosts[i] and gpus[i]; GPUs may be equal. The host reduces, so
/// operations make progress only during calls. A member keeps page-locked memory as large as its
/// largest values. Throws Error (device) if a GPU is not available.
std::vector<std::shared_ptr<GroupMember>> make_staged(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, const std::vector<device::Device>& gpus,
    const StagedOptions& options = {});

}  // namespace lockstep::inline v0::allreduce
