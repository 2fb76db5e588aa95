// Members have one GPU each, and NCCL transfers the data, within a node and between nodes. In
// builds without NCCL, no_nccl.cpp replaces nccl.cpp and nccl_communicators.cpp, and throws an
// error that states what to install.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/device/device.h"

namespace lockstep::inline v0::allreduce {

/// The NCCL version of the headers at compile time: "2.28.9", or "absent".
std::string nccl_built_version();
/// The version of the NCCL library, which this call loads if needed: "2.28.9", or "absent".
std::string nccl_loaded_version();

struct NcclOptions {
  /// Time limit for all members to join and to compute a first sum.
  std::chrono::milliseconds join_limit = std::chrono::seconds(60);
  /// Time limit for all members to arrive at the end, or for an abort.
  std::chrono::milliseconds end_limit = std::chrono::seconds(10);
};

/// The local members: element i uses hosts[i] and gpus[i]. All GPUs of a node are different.
/// Collective over `ranks`, the processes of the members. A first sum, of one value, shows that
/// NCCL reaches all members, and connects them. Throws, the same on all ranks, Error (device) if a
/// rank does not have the library, and Error (communication) if the members cannot form a group.
std::vector<std::shared_ptr<GroupMember>> make_nccl(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, const std::vector<device::Device>& gpus,
    const Communicator& ranks, const NcclOptions& options = {});

}  // namespace lockstep::inline v0::allreduce
