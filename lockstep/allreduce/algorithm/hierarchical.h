// All-reduce between nodes of several ranks: what crosses the wire is summed in the node first.
//
// Reduce-scatter in the node, in shared memory: of the first L ranks of each node, each completes one slice, a "lane".
// Then L rings across the nodes, each of one rank a node with its slice, all at the same time. Then all-gather in the
// node. A node's link carries 2 (m - 1) / m of the buffer for m nodes, whatever the number of ranks. L is the smallest
// number of ranks of a node; further ranks of larger nodes have no lane and only bring their values and take the
// result.
#pragma once

#include <mpi.h>

#include <memory>

#include "lockstep/allreduce/algorithm/ring.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// Collective over `ranks`; `node` has those of them that are on this rank's node, in the order of `ranks`, and is used
/// during the call alone. Throws Error (communication), the same on the ranks of a node, where they cannot see each
/// other's memory.
std::shared_ptr<MpiGroup> make_hierarchical(MPI_Comm ranks, MPI_Comm node, const RingOptions& options = {});

}  // namespace lockstep::allreduce
