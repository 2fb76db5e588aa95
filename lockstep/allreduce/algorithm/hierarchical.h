// All-reduce between nodes with several ranks: values are summed within the node before they are
// sent.
//
// First a reduce-scatter within the node, in shared memory: each of the first L ranks of a node
// completes one slice, a "lane". Then L rings between the nodes run at the same time, each with one
// rank per node and its slice. Then an all-gather within the node. A node's link carries 2 (m - 1)
// / m of the buffer for m nodes, independent of the number of ranks. L is the smallest number of
// ranks of a node. Other ranks of larger nodes have no lane: they only contribute their values and
// receive the result.
#pragma once

#include <memory>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

/// Collective over the members of `transport`, which the group uses alone. `node` has the ranks of
/// this rank's node, in the same order, and is used only during the call. Throws Error
/// (communication), the same on the ranks of a node, if they cannot share memory.
std::shared_ptr<MessageGroup> make_hierarchical(std::shared_ptr<Transport> transport,
                                                const Communicator& node,
                                                const RingOptions& options = kRingBetweenNodes);

}  // namespace lockstep::inline v0::allreduce
