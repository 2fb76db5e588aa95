// A group of one member: the null object, so that no caller asks how many they are.
#pragma once

#include <memory>

#include "allreduce/communicator_impl.h"

namespace lockstep::allreduce {

std::shared_ptr<Communicator::Impl> make_one_member();

}  // namespace lockstep::allreduce
