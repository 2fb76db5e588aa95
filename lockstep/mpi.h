/* Communicators as the integers that options of Lockstep take, in C and in C++. */
#pragma once

#include <mpi.h>

/** The integer of `communicator`, for lockstep_session_options. */
static inline int lockstep_communicator(MPI_Comm communicator) {
  return MPI_Comm_c2f(communicator);
}

#ifdef __cplusplus
namespace lockstep {

/// The integer of `communicator`, for SessionOptions::communicator.
inline int communicator_handle(MPI_Comm communicator) {
  return lockstep_communicator(communicator);
}

}  // namespace lockstep
#endif
