#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

using ::testing::HasSubstr;

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(MultiWorkerGroup, NumbersReplicasOfRankAfterRank) {
  // Rank r drives r + 1 replicas: the first of rank r is number r (r + 1) / 2.
  const int rank = world_rank();
  const std::vector<Communicator> group = make_multi_worker_group(MPI_COMM_WORLD, rank + 1, Route::automatic);
  ASSERT_EQ(group.size(), static_cast<std::size_t>(rank + 1));
  for (int local = 0; local <= rank; ++local) {
    EXPECT_EQ(group[static_cast<std::size_t>(local)].rank(), rank * (rank + 1) / 2 + local);
    EXPECT_EQ(group[static_cast<std::size_t>(local)].size(), world_size() * (world_size() + 1) / 2);
  }
}

TEST(MultiWorkerGroup, NamesItsRoute) {
  const bool alone = world_size() == 1;
  EXPECT_EQ(make_multi_worker_group(MPI_COMM_WORLD, 2, Route::automatic)[0].route(),
            alone ? "in-process" : "in-process + shared-memory");
  EXPECT_EQ(make_multi_worker_group(MPI_COMM_WORLD, 2, Route::mpi)[1].route(),
            alone ? "in-process" : "in-process + mpi");
  EXPECT_EQ(make_multi_worker_group(MPI_COMM_WORLD, 1, Route::ring)[0].route(), alone ? "none" : "ring");
}

TEST(MultiWorkerGroup, TellsReplicasOfOneRankApartInItsErrors) {
  if (world_size() == 1) GTEST_SKIP() << "needs two ranks";
  // Replicas 0 and 1 are on rank 0, 2 and 3 on rank 1; replica 3 differs, within its rank.
  run_members(make_multi_worker_group(MPI_COMM_WORLD, 2, Route::ring), [](const Communicator& group) {
    std::vector<float> values(group.rank() == 3 ? 8 : 9);
    EXPECT_THAT(error_of([&] { sum_and_wait(group, values); }),
                HasSubstr("member 2 called all_reduce(9 float32, sum) and member 3 called all_reduce(8 float32, sum)"))
        << "on member " << group.rank();
  });
}

}  // namespace
}  // namespace lockstep::allreduce
