// Members have one GPU each, and NCCL transfers the data. In builds without NCCL, no_nccl.cpp
// replaces nccl.cpp, nccl_communicators.cpp and nccl_hierarchical.cpp, and throws an error that
// states what to install.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// The NCCL version of the headers at compile time: "2.28.9", or "absent".
std::string nccl_built_version();
/// The version of the NCCL library, which this call loads if needed: "2.28.9", or "absent".
std::string nccl_loaded_version();

struct NcclOptions {
  /// Time limit for all members to join.
  std::chrono::milliseconds join_limit = std::chrono::seconds(120);
  std::size_t segment_bytes = std::size_t{8}
                              << 20;  ///< segment size between nodes; a multiple of 64
};

/// The local members: element i uses hosts[i] and gpus[i]. All GPUs of a node are different.
/// Collective over `ranks`, which is MPI_COMM_NULL if all members are threads of this process.
/// Throws, the same on all ranks, Error (device) if a rank does not have the library, and Error
/// (communication) if the ranks cannot form a group.
std::vector<std::shared_ptr<GroupMember>> make_nccl(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, const std::vector<device::Device>& gpus,
    MPI_Comm ranks, const NcclOptions& options = {});

/// One member per rank, on several nodes: NCCL within a node, the CPU ring between nodes.
///
/// The first L members of each node have a lane, where L is the smallest number of members of a
/// node (hierarchical.h). NCCL's reduce-scatter computes the slice of each lane. The slice is
/// copied to page-locked host memory, reduced with the same lane of the other nodes by a ring, and
/// copied back. NCCL's all-gather distributes it. This is pipelined in segments: while one is sent
/// over the network, the GPU completes the previous one and prepares the next one. The host runs
/// the ring, so operations make progress only during calls.
///
/// Collective over `ranks`. `node` has the ranks of this rank's node, in the order of `ranks`, and
/// is used only during the call. Throws like make_nccl.
std::shared_ptr<GroupMember> make_nccl_hierarchical(const std::shared_ptr<MpiGroup>& host,
                                                    device::Device gpu, MPI_Comm ranks,
                                                    MPI_Comm node, const NcclOptions& options = {});

}  // namespace lockstep::allreduce
