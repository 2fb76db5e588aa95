// Ranks with several replicas each: reduce between the threads of a rank, then between ranks, then
// distribute the result. Only the thread of a rank's first replica, the leader, calls MPI.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

/// Element i is for local replica i. `between` has one member per rank; `replicas_of_rank` is the
/// number of replicas of each rank.
std::vector<std::shared_ptr<GroupMember>> make_multi_worker(
    std::shared_ptr<MessageGroup> between, const std::vector<int>& replicas_of_rank);

}  // namespace lockstep::inline v0::allreduce
