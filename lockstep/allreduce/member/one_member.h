// A group of one member: a null object, so that callers need no special case.
#pragma once

#include <memory>

#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

std::shared_ptr<GroupMember> make_one_member();

}  // namespace lockstep::inline v0::allreduce
