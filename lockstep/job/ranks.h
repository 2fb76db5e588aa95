// The communicator of a session, for code that calls MPI.
#pragma once

#include <mpi.h>

#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

/// The communicator of all ranks; MPI_COMM_NULL without a launcher.
inline MPI_Comm ranks_of(const Session& session) {
  return session.communicator() ? MPI_Comm_f2c(*session.communicator()) : MPI_COMM_NULL;
}

}  // namespace lockstep::inline v0::job
