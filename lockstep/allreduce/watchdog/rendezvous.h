// What ranks tell each other over MPI before they have a watch of their own.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace lockstep::allreduce {

/// Rank 0's `text`, on every rank. Collective.
std::string share_of_rank_zero(MPI_Comm ranks, std::string text);

/// The addresses of rank 0's host where the other ranks reach it: loopback alone where all ranks share its network,
/// else those of the interfaces that lead to the other hosts; empty where the system knows no way there. On the other
/// ranks always empty. Collective.
std::vector<std::string> addresses_for_ranks(MPI_Comm ranks);

/// `message`: what() of the Error that this rank met, empty where it met none. Returns where nobody met any; otherwise
/// all ranks throw that of the lowest rank as Error (communication). Collective.
void throw_first_error(MPI_Comm ranks, const std::string& message);

}  // namespace lockstep::allreduce
