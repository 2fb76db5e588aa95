// MPI of level MPI_THREAD_SERIALIZED serves one thread of a process at a time.
#pragma once

#include <mutex>

namespace lockstep::allreduce {

/// Held by whoever calls MPI while another thread of this process may: one for the process, as MPI is. An operation of
/// an MpiGroup holds it to its end, which is soon after its group has failed.
std::timed_mutex& mpi_turn();

}  // namespace lockstep::allreduce
