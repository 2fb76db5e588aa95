// Texts that ranks exchange while they form a group.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

/// Every rank's text in rank order. Collective over `ranks`; MPI_COMM_NULL stands for this process
/// only.
std::vector<std::string> gather_texts(MPI_Comm ranks, const std::string& mine);

/// Throws, on all ranks, an Error of `category` with the problem of the lowest rank that has one.
/// Collective like gather_texts.
void raise_first(MPI_Comm ranks, const std::optional<ErrorMessage>& problem,
                 ErrorCategory category = ErrorCategory::communication);

}  // namespace lockstep::inline v0::allreduce
