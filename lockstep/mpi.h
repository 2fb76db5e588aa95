/* Converts MPI communicators to the integers in options of Lockstep, in C and in C++. */
#pragma once

#include <mpi.h>

/** Returns the Fortran handle of `communicator`, for lockstep_session_options. */
static inline int lockstep_communicator(MPI_Comm communicator) {
  return MPI_Comm_c2f(communicator);
}

#ifdef __cplusplus
namespace lockstep::inline v0 {

/// Returns the Fortran handle of `communicator`, for SessionOptions::communicator.
inline int communicator_handle(MPI_Comm communicator) {
  return lockstep_communicator(communicator);
}

}  // namespace lockstep::inline v0
#endif
