// Runs the tests on every rank at once. Only rank 0 reports success; each rank reports its
// failures, and any of them fails the job.
#include <gtest/gtest.h>
#include <mpi.h>

#include <iostream>

#include "tests/support/mpi_listener.h"

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  if (level < MPI_THREAD_SERIALIZED) {
    std::cerr << "this MPI library supports one thread only\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  ::testing::InitGoogleTest(&argc, argv);
  lockstep::listen_as_rank(rank);
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
