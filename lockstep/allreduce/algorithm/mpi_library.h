// The MPI library's own all-reduce: the reference of the tests and the baseline of the benchmarks.
// The library determines rounding and whether results are equal in every run. A failing member
// cannot interrupt members inside MPI_Allreduce.
#pragma once

#include <memory>

#include "lockstep/allreduce/algorithm/message_group.h"

namespace lockstep::inline v0::allreduce {

/// Collective over `ranks`.
std::shared_ptr<MessageGroup> make_mpi_library(std::shared_ptr<Transport> transport);

}  // namespace lockstep::inline v0::allreduce
