// Members have a GPU each, and NCCL moves the bytes between these. Where NCCL is absent, no_nccl.cpp answers instead of
// nccl.cpp, nccl_communicators.cpp and nccl_hierarchical.cpp: it refuses, and says what to install.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// The NCCL version that this program was compiled with: "2.28.9", or "absent".
std::string nccl_built_version();
/// The version of the library that it loads when it needs it, and now for this answer: "2.28.9", or "absent".
std::string nccl_loaded_version();

struct NcclOptions {
  std::chrono::milliseconds join_limit = std::chrono::seconds(120);  ///< for all members to join
  std::size_t segment_bytes = std::size_t{8} << 20;                  ///< of a reduction between nodes; a multiple of 64
};

/// The local members: element i stands on hosts[i] and is for gpus[i], of which no two are the same on any rank of a
/// node. Collective over `ranks`, which is MPI_COMM_NULL where all members are threads of this process. Throws Error,
/// the same on all ranks: (device) where one lacks the library, (communication) where they cannot form a group.
std::vector<std::shared_ptr<GroupMember>> make_nccl(const std::vector<std::shared_ptr<GroupMember>>& hosts,
                                                    const std::vector<device::Device>& gpus, MPI_Comm ranks,
                                                    const NcclOptions& options = {});

/// One member a rank, on several nodes: NCCL within a node, the ring of the CPU between nodes.
///
/// Of each node the first L members have a lane, L being the smallest number of members of a node (hierarchical.h).
/// NCCL's reduce-scatter leaves each lane its slice, which is copied to page-locked host memory, reduced with the same
/// lane of the other nodes by a ring, and copied back; NCCL's all-gather brings it to all. This goes segment by
/// segment: while one is on the wire the GPU completes the one before and prepares the one after. The host does the
/// ring, so operations are under way only while the caller is inside.
///
/// Collective over `ranks`; `node` has those of them that are on this rank's node, in the order of `ranks`, and is used
/// during the call alone. Throws as make_nccl does.
std::shared_ptr<GroupMember> make_nccl_hierarchical(const std::shared_ptr<MpiGroup>& host, device::Device gpu,
                                                    MPI_Comm ranks, MPI_Comm node, const NcclOptions& options = {});

}  // namespace lockstep::allreduce
