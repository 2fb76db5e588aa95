// The ranks that mpirun started, as a communicator to make groups from.
#pragma once

#include <mpi.h>

#include <optional>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/ranks.h"
#include "lockstep/allreduce/transport/mpi/mpi_loader.h"
#include "lockstep/allreduce/transport/mpi/mpi_transport.h"

namespace lockstep::inline v0::allreduce {

/// A transport between `ranks`, which mpi.h of this test describes.
inline std::shared_ptr<Transport> transport_of(MPI_Comm ranks = MPI_COMM_WORLD,
                                               std::optional<int> node = {}) {
  const MpiFunctions& mpi = loaded_mpi();
  return make_mpi_transport(mpi, mpi.from_fortran(MPI_Comm_c2f(ranks)), node);
}

/// Collective over `ranks`. Destroy it, and groups made from it, before MPI_Finalize.
inline Communicator ranks_of(MPI_Comm ranks = MPI_COMM_WORLD) {
  return make_ranks(transport_of(ranks));
}

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

}  // namespace lockstep::inline v0::allreduce
