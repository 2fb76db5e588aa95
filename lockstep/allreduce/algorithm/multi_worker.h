// Ranks that drive several replicas each: reduce among the threads of a rank, then between ranks, then hand the result
// back. The thread of a rank's first replica, its leader, is the only one that calls MPI.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// Element i is for local replica i. `replicas_of_rank` tells for each rank of `between`, which has a member for each
/// rank.
std::vector<std::shared_ptr<GroupMember>> make_multi_worker(std::shared_ptr<MpiGroup> between,
                                                            const std::vector<int>& replicas_of_rank);

}  // namespace lockstep::allreduce
