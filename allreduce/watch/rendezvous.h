// What ranks tell each other over MPI before they have a watch of their own.
#pragma once

#include <mpi.h>

#include <string>

namespace lockstep::allreduce {

/// Rank 0's `text`, on every rank. Collective.
std::string share_of_rank_zero(MPI_Comm ranks, std::string text);

/// `message`: what() of the Error that this rank met, empty where it met none. Returns where nobody met any; otherwise
/// all ranks throw that of the lowest rank as Error (communication). Collective.
void throw_first_error(MPI_Comm ranks, const std::string& message);

}  // namespace lockstep::allreduce
