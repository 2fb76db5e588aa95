// Members are threads of one process and access each other's buffers.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

/// Element i is for replica i. `members` is at least 2.
std::vector<std::shared_ptr<GroupMember>> make_in_process(int members);

}  // namespace lockstep::inline v0::allreduce
