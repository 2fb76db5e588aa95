// Members are ranks of one node that reduce in shared memory. Buffers of allocate() are reduced in
// place; other buffers are copied through shared memory in pieces.
#pragma once

#include <memory>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

/// Collective over `ranks`, which are on one node. Throws Error (communication), the same on all,
/// if they cannot share memory.
std::shared_ptr<MessageGroup> make_shared_memory(std::shared_ptr<Transport> transport,
                                                 const Communicator& ranks);

}  // namespace lockstep::inline v0::allreduce
