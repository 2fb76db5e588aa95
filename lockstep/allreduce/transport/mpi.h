// Helpers for MPI communicators, MPI threading and waiting.
#pragma once

#include <mpi.h>

#include <chrono>
#include <mutex>

namespace lockstep::inline v0::allreduce {

inline int size_of(MPI_Comm ranks) {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  return size;
}

/// The rank of the caller in `ranks`.
inline int rank_in(MPI_Comm ranks) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  return rank;
}

// At the level MPI_THREAD_SERIALIZED only one thread of a process may call MPI at a time.

/// The process-wide mutex for calls of MPI while several threads may call it. An operation of an
/// MpiGroup holds it until it ends, which is soon after a failure of the group.
std::timed_mutex& mpi_turn();

// Waiting by polling, for example for an MPI request.

/// Spins at first, then yields the core, then sleeps, because there may be more ranks than cores.
class Backoff {
 public:
  /// Pauses once. Returns true if the wait is long, so that the caller can check for other events.
  bool pause();
  /// Restarts after progress.
  void restart() { polls_ = 0; }

 private:
  int polls_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::inline v0::allreduce
