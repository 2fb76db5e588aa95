// What ranks tell each other in words while they form a group.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/base/error.h"

namespace lockstep::allreduce {

/// Every rank's text in rank order. Collective over `ranks`; MPI_COMM_NULL stands for this process alone.
std::vector<std::string> gather_texts(MPI_Comm ranks, const std::string& mine);

/// Throws the problem of the lowest rank that has one, as Error of `category`, on all ranks. Collective like
/// gather_texts.
void raise_first(MPI_Comm ranks, const std::optional<Failure>& problem,
                 ErrorCategory category = ErrorCategory::communication);

}  // namespace lockstep::allreduce
