#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <span>

#include "lockstep/allreduce/selection.h"
#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

TEST(MpiGroup, NamesItsRoute) {
  const std::string none = "none";
  const bool alone = world_size() == 1;
  EXPECT_EQ(make_mpi_group(MPI_COMM_WORLD, Route::automatic).route(), alone ? none : "shared-memory");
  EXPECT_EQ(make_mpi_group(MPI_COMM_WORLD, Route::shared_memory).route(), alone ? none : "shared-memory");
  EXPECT_EQ(make_mpi_group(MPI_COMM_WORLD, Route::hierarchical).route(), alone ? none : "hierarchical");
  EXPECT_EQ(make_mpi_group(MPI_COMM_WORLD, Route::ring).route(), alone ? none : "ring");
  EXPECT_EQ(make_mpi_group(MPI_COMM_WORLD, Route::mpi).route(), alone ? none : "mpi");
}

TEST(MpiGroup, RefusesARouteOfThreads) {
  if (world_size() == 1) GTEST_SKIP() << "one rank needs no route";
  try {
    make_mpi_group(MPI_COMM_WORLD, Route::in_process);
    FAIL() << "in-process was accepted between ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_EQ(error.what(),
              fmt::format(
                  "[--allreduce] expected auto, shared-memory, ring, hierarchical or mpi between ranks, got in-process "
                  "for {} ranks",
                  world_size()));
  }
}

TEST(SelectRoute, TakesSharedMemoryWithinANodeWithoutMeasuring) {
  if (world_size() == 1) GTEST_SKIP() << "one rank needs no route";
  const Selection selection = select_route(MPI_COMM_WORLD);
  EXPECT_EQ(selection.route, Route::shared_memory);
  EXPECT_EQ(selection.reason, fmt::format("{} ranks on one node", world_size()));
}

TEST(SelectRoute, TakesWhatItRememberedWhereThatIsPossible) {
  if (world_size() == 1) GTEST_SKIP() << "one rank needs no route";
  EXPECT_EQ(select_route(MPI_COMM_WORLD, Route::ring).route, Route::ring);
  // A training that began on several nodes and goes on, on one.
  EXPECT_EQ(select_route(MPI_COMM_WORLD, Route::hierarchical).route, Route::shared_memory);
}

TEST(MpiGroup, LeavesTheCallersCommunicatorAlone) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  run_ranks(world_size(), Route::ring, [&](const Communicator& group) {
    const int right = (rank + 1) % world_size();
    const int left = (rank + world_size() - 1) % world_size();
    int mine = rank;
    int from_left = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&from_left, 1, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    std::vector<float> values(100'000, 1.0f);
    sum_and_wait(group, values);
    MPI_Send(&mine, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_EQ(from_left, left);
    EXPECT_EQ(values.back(), static_cast<float>(world_size()));
  });
}

TEST(MpiGroup, ServesAPartOfTheRanks) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  {
    const Communicator group = make_mpi_group(half, Route::ring);
    MPI_Comm_free(&half);  // the group has its own
    run_member(group, [&](const Communicator& member) {
      std::vector<std::int64_t> ranks = {rank};
      sum_and_wait(member, ranks);
      std::int64_t expected = 0;
      for (int other = rank % 2; other < world_size(); other += 2) expected += other;
      EXPECT_EQ(ranks[0], expected);
    });
  }
}

// The counts of MPI have 32 bits. The memory is reserved only: the sizes are compared before it is read.
TEST(MpiGroup, RefusesToGatherMoreThanMpiCanCount) {
  if (world_size() == 1) GTEST_SKIP() << "one rank sends no message";
  constexpr std::size_t kBytes = std::size_t{3} << 29;
  void* const memory = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  run_ranks(world_size(), Route::ring, [&](const Communicator& group) {
    EXPECT_EQ(error_of([&] { group.all_gather(std::span(static_cast<const std::byte*>(memory), kBytes)); }),
              fmt::format("[all-gather] expected at most 2147483647 bytes over all ranks together; gather in pieces, "
                          "got {}",
                          kBytes * static_cast<std::size_t>(world_size())));
    const std::byte small{static_cast<unsigned char>(group.rank())};
    EXPECT_EQ(group.all_gather(std::span(&small, 1)).size(), static_cast<std::size_t>(world_size()));
  });
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace lockstep::allreduce
