// Members are threads of one process and see each other's buffers.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

/// Element i is for replica i. `members` is 2 or more.
std::vector<std::shared_ptr<GroupMember>> make_in_process(int members);

}  // namespace lockstep::allreduce
