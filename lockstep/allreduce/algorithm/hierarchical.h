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

#include <mpi.h>

#include <memory>

#include "lockstep/allreduce/algorithm/ring.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::inline v0::allreduce {

/// Collective over `ranks`. `node` has the ranks of this rank's node, in the order of `ranks`, and
/// is used only during the call. Throws Error (communication), the same on the ranks of a node, if
/// they cannot share memory.
std::shared_ptr<MpiGroup> make_hierarchical(MPI_Comm ranks, MPI_Comm node,
                                            const RingOptions& options = kRingBetweenNodes);

}  // namespace lockstep::inline v0::allreduce
