// Messages over MPI.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/allreduce/transport/mpi/mpi_functions.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// The ranks of `ranks`, over a duplicate of it. Collective over `ranks`. `node` is a number of
/// this rank's node; without it, MPI knows which ranks are on one (MPI_COMM_TYPE_SHARED). Destroy
/// the transport before MPI_Finalize. Only one thread of a process may be in MPI at a time
/// (MPI_THREAD_SERIALIZED), so all of them have one turn. Throws Error (communication).
std::shared_ptr<Transport> make_mpi_transport(const MpiFunctions& mpi, MpiHandle ranks,
                                              std::optional<int> node = {});

/// The communicator of a transport that make_mpi_transport() made, or of a subset of one; 0 for
/// others.
MpiHandle mpi_communicator(const Transport& transport);

}  // namespace lockstep::inline v0::allreduce
