// What an MPI communicator knows of itself, as values.
#pragma once

#include <mpi.h>

namespace lockstep::allreduce {

inline int size_of(MPI_Comm ranks) {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  return size;
}

/// The calling rank's number in `ranks`.
inline int rank_in(MPI_Comm ranks) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  return rank;
}

}  // namespace lockstep::allreduce
