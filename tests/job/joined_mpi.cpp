// A program that initializes and finalizes MPI itself, around a session.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"
#include "lockstep/mpi.h"

namespace {

bool fails(const std::string& what) {
  fmt::print(stderr, "joined_mpi: {}\n", what);
  return false;
}

/// The session has all ranks, and does not finalize MPI.
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

/// Whether a session with `options` throws an error whose text contains `reason`.
bool throws(const lockstep::job::SessionOptions& options, const std::string& reason) {
  try {
    const lockstep::job::Session session(options);
  } catch (const lockstep::Error& error) {
    return std::string(error.what()).find(reason) != std::string::npos || fails(error.what());
  }
  return fails("there was a session without: " + reason);
}

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Rank 0 has no session; the others create two in turn.
bool joins_subset() {
  const int rank = rank_in_world();
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, -rank, &part);
  if (rank == 0) return true;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int round = 0; round < 2; ++round) {
    lockstep::job::Session session({.communicator = lockstep::communicator_handle(part)});
    auto value = static_cast<float>(rank);
    session.workers().all_reduce(std::span(&value, 1));
    const auto sum = static_cast<float>(ranks * (ranks - 1) / 2);
    if (session.size() != ranks - 1 || session.rank() != ranks - 1 - rank || value != sum)
      return fails("the session has other ranks");
  }
  MPI_Comm_free(&part);
  return true;
}

/// An intercommunicator between two groups of one rank, and MPI_COMM_NULL.
bool rejects_invalid_communicators() {
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank_in_world(), 0, &between);
  const auto rejects = [](MPI_Comm communicator, const char* reason) {
    return throws({.communicator = lockstep::communicator_handle(communicator)}, reason);
  };
  const bool passed = rejects(between, "got an intercommunicator") &&
                      rejects(MPI_COMM_NULL, "got MPI_COMM_NULL: a rank that is not in");
  MPI_Comm_free(&between);
  const lockstep::job::Session session(
      {.communicator = lockstep::communicator_handle(MPI_COMM_SELF)});
  return passed && (session.size() == 1 || fails("a session of MPI_COMM_SELF has other ranks"));
}

/// According to its environment, this one rank is one of several tasks.
bool rejects_tasks() {
  bool passed = true;
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"TF_CONFIG",
            R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})"},
           {"SLURM_STEP_NUM_TASKS", "2"},
           {"WORLD_SIZE", "4"}}) {
    ::setenv("SLURM_PROCID", "0", 1);
    ::setenv("RANK", "0", 1);
    ::setenv(name, value, 1);
    passed = throws({}, "and would train alone") && passed;
    ::unsetenv(name);
  }
  return passed;
}

/// In a batch script with several tasks that starts only one.
bool joins_in_a_script() {
  ::setenv("SLURM_PROCID", "0", 1);
  ::setenv("SLURM_NTASKS", "16", 1);
  return joins();
}

/// Rank 0 has no session, and the others wait for it.
bool waits_for_a_missing_rank(const lockstep::job::SessionOptions& options) {
  if (rank_in_world() != 0) const lockstep::job::Session session(options);
  MPI_Barrier(MPI_COMM_WORLD);
  return fails("the barrier was reached");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  int provided = 0;
  MPI_Init_thread(&argc, &argv, mode == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED,
                  &provided);
  const bool passed = mode == "serialized"      ? joins()
                      : mode == "single"        ? throws({}, "call MPI_Init_thread with that level")
                      : mode == "part"          ? joins_subset()
                      : mode == "communicators" ? rejects_invalid_communicators()
                      : mode == "tasks"         ? rejects_tasks()
                      : mode == "script"        ? joins_in_a_script()
                      : mode == "late"          ? waits_for_a_missing_rank({})
                                                : waits_for_a_missing_rank({.start_timeout = 1});
  MPI_Finalize();
  return passed ? 0 : 1;
}
