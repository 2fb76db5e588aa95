// What an MPI communicator knows of itself, as values.
#pragma once

#include <mpi.h>

#include <chrono>
#include <mutex>

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

// MPI of level MPI_THREAD_SERIALIZED serves one thread of a process at a time.

/// Held by whoever calls MPI while another thread of this process may: one for the process, as MPI is. An operation of
/// an MpiGroup holds it to its end, which is soon after its group has failed.
std::timed_mutex& mpi_turn();

// How a thread waits for something that only asking reveals, such as an MPI request.

/// At first returns at once, then leaves the core to whoever wants it, then sleeps: ranks may outnumber cores.
class Backoff {
 public:
  /// True where the wait has become long and there is time to look at other things.
  bool pause();
  /// For when something happened.
  void restart() { looks_ = 0; }

 private:
  int looks_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::allreduce
