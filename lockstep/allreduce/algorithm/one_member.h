// A group of one member: the null object, so that no caller asks how many they are.
#pragma once

#include <memory>

#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

std::shared_ptr<GroupMember> make_one_member();

}  // namespace lockstep::allreduce
