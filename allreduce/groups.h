// How groups come to be: threads of one process, ranks of an MPI job, and both together.
#pragma once

#include <mpi.h>

#include <vector>

#include "allreduce/communicator.h"
#include "allreduce/route.h"

namespace lockstep::allreduce {

/// `size` members (1 or more) that are threads of this process; element i is for replica i.
std::vector<Communicator> make_in_process_group(int size);

/// The calling rank as a member of `ranks`, one replica a rank. `route` is any but in_process and nccl;
/// automatic takes the first of Topology::candidates.
/// Collective over `ranks`, which the group duplicates; MPI must live longer than the group. Throws Error (input) for a
/// route that does not connect these ranks.
Communicator make_mpi_group(MPI_Comm ranks, Route route);

/// Replicas of all ranks of `ranks`: element i is local replica i, its rank() is the global replica number (replicas of
/// rank 0 first, then of rank 1, …). Ranks may drive different numbers of replicas. Reduces in the process in replica
/// order, then between ranks by `route`, then hands the result back. The thread of a rank's first replica is the only
/// one that calls MPI (MPI_THREAD_SERIALIZED is enough). Collective over `ranks`; for one rank it is
/// make_in_process_group, whatever the route. Throws Error (input) for a route that does not connect these ranks.
std::vector<Communicator> make_multi_worker_group(MPI_Comm ranks, int local_replicas, Route route);

}  // namespace lockstep::allreduce
