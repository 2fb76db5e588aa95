// The MPI library's own all-reduce: the oracle of the tests and the comparison of the benchmarks. What bits it gives,
// and whether they are the same in every run, is the library's affair; a member that leaves cannot call the others back
// from inside it.
#pragma once

#include <mpi.h>

#include <memory>

#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

/// Collective over `ranks`.
std::shared_ptr<MpiGroup> make_mpi_library(MPI_Comm ranks);

}  // namespace lockstep::allreduce
