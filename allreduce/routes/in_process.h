// Members are threads of one process and see each other's buffers: each reduces its own slice of all buffers, in member
// order, and writes the result into all of them. Two waits an operation, every byte read once and written once on every
// member.
#pragma once

#include <memory>
#include <vector>

#include "allreduce/communicator_impl.h"

namespace lockstep::allreduce {

/// Element i is for replica i. `members` is 2 or more.
std::vector<std::shared_ptr<Communicator::Impl>> make_in_process(int members);

}  // namespace lockstep::allreduce
