// Members are ranks of one node that reduce in memory all of them see: what allocate() returns is reduced where it
// lies, other buffers in pieces by way of such memory.
#pragma once

#include <mpi.h>

#include <memory>

#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// Collective over `ranks`, which are on one node. Throws Error (communication), the same on all, where they cannot see
/// each other's memory.
std::shared_ptr<MpiGroup> make_shared_memory(MPI_Comm ranks);

}  // namespace lockstep::allreduce
