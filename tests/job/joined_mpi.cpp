// A program that initializes and finalizes MPI itself, around a session.
#include <fmt/format.h>
#include <mpi.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"

namespace {

bool fails(const std::string& what) {
  fmt::print(stderr, "joined_mpi: {}\n", what);
  return false;
}

/// The session includes all ranks, and does not finalize MPI.
bool joins() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    lockstep::job::Session session;
    float value = 1;
    session.workers().all_reduce(std::span(&value, 1));
    if (session.size() != ranks || value != static_cast<float>(ranks))
      return fails("the session has other ranks");
  }
  int value = 1;
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return value == ranks || fails("MPI does not work after the session");
}

bool refuses() {
  try {
    const lockstep::job::Session session;
  } catch (const lockstep::Error& error) {
    return std::string(error.what()).find("call MPI_Init_thread with that level") !=
               std::string::npos ||
           fails(error.what());
  }
  return fails("an MPI of one thread was joined");
}

}  // namespace

int main(int argc, char** argv) {
  const bool serialized = argc > 1 && std::string(argv[1]) == "serialized";
  int provided = 0;
  MPI_Init_thread(&argc, &argv, serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE, &provided);
  const bool passed = serialized ? joins() : refuses();
  MPI_Finalize();
  return passed ? 0 : 1;
}
