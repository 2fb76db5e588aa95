// Wraps an existing training loop, for each route between ranks; run under mpirun on 1 to 4 ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "tests/interop/distributed_loop.h"
#include "tests/support/mpi_session.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::interop {
namespace {

using ::testing::HasSubstr;

struct OverRoute {
  std::string name;
  allreduce::Route route;
  DistributedOptions options;
  double tolerance = 1e-6;
};

class WrapperOverRoute : public ::testing::TestWithParam<OverRoute> {};

TEST_P(WrapperOverRoute, TrainsLikeOneProcess) {
  job::Workers workers(job::mpi_session(), {.route = GetParam().route});
  const std::vector<float> alone = own::train_alone();
  const auto ours = own::train_as_rank(workers, GetParam().options,
                                       static_cast<unsigned>(1 + workers.rank()), true);
  EXPECT_LT(own::relative_difference(alone, ours), GetParam().tolerance);
  EXPECT_EQ(workers.all_gather(std::span(std::as_const(ours))).front(), ours);  // bitwise equal
}

INSTANTIATE_TEST_SUITE_P(
    Routes, WrapperOverRoute,
    ::testing::Values(
        OverRoute{"automatic", allreduce::Route::automatic, {}},
        OverRoute{
            "automatic_7_passes", allreduce::Route::automatic, {.backward_passes_per_step = 7}},
        // Over the network, reductions overlap with the backward pass.
        OverRoute{"ring", allreduce::Route::ring, {.first_bucket_bytes = 1, .bucket_bytes = 1}},
        OverRoute{"ring_4_passes",
                  allreduce::Route::ring,
                  {.backward_passes_per_step = 4, .first_bucket_bytes = 1, .bucket_bytes = 1}},
        OverRoute{"ring_float16",
                  allreduce::Route::ring,
                  {.compression = allreduce::WireType::float16,
                   .first_bucket_bytes = 1,
                   .bucket_bytes = 1},
                  3e-3}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(WrapperMpi, OtherReductionsWaitForBuckets) {
  job::Workers workers(job::mpi_session(), {.route = allreduce::Route::ring});
  own::Network network;
  own::Momentum momentum(network);
  DistributedOptimizer optimizer(workers, momentum, {.first_bucket_bytes = 1, .bucket_bytes = 1});
  for (int step = 0; step < 20; ++step) {
    for (own::Array& array : network.arrays) array.gradient.assign(array.values.size(), 1);
    optimizer.backward_done();  // buckets are in flight
    float loss = 1;
    workers.all_reduce(std::span(&loss, 1));
    EXPECT_EQ(loss, static_cast<float>(workers.size()));
    optimizer.step();
    EXPECT_EQ(network.arrays[0].gradient[0], 1.0F);
  }
}

// Like a generator and its critic: while buckets of one are in flight, the only bucket of the other
// is reduced.
TEST(WrapperMpi, TwoOptimizersTakeTurns) {
  job::Workers workers(job::mpi_session(), {.route = allreduce::Route::ring});
  own::Network large;
  own::Network small;
  own::Momentum large_momentum(large);
  own::Momentum small_momentum(small);
  DistributedOptimizer first(workers, large_momentum, {.first_bucket_bytes = 1, .bucket_bytes = 1});
  DistributedOptimizer second(workers, small_momentum);
  for (int step = 0; step < 50; ++step) {
    for (own::Array& array : large.arrays) array.gradient.assign(array.values.size(), 1);
    for (own::Array& array : small.arrays) array.gradient.assign(array.values.size(), 5);
    first.backward_done();
    second.backward_done();
    second.step();
    first.step();
    ASSERT_EQ(large.arrays[0].gradient[0], 1.0F);
    ASSERT_EQ(small.arrays[2].gradient[0], 5.0F);
  }
}

TEST(WrapperMpi, ADifferentModelOnOneRankFailsOnAll) {
  if (job::mpi_session().size() == 1) return;
  job::Workers workers(job::mpi_session());
  own::Network network;
  if (workers.rank() == workers.size() - 1) network.arrays.pop_back();
  own::Momentum momentum(network);
  EXPECT_THAT(allreduce::error_of([&] { DistributedOptimizer(workers, momentum); }),
              HasSubstr("output/weights [7] is on replica 0 and not on replica"));
}

// Each group trains as all ranks would, beside the others and beside collectives of all ranks.
TEST(WrapperMpi, TrainsInGroupsOfRanks) {
  job::Workers& all = job::mpi_session().workers();
  std::vector<int> even;
  std::vector<int> odd;
  for (int rank = all.size() - 1; rank >= 0; --rank) (rank % 2 == 0 ? even : odd).push_back(rank);
  const auto first = all.make_group(even);
  const auto second = odd.empty() ? nullptr : all.make_group(odd);
  job::Workers& mine = all.rank() % 2 == 0 ? *first : *second;
  EXPECT_EQ(mine.size(), static_cast<int>((all.rank() % 2 == 0 ? even : odd).size()));
  const std::vector<float> alone = own::train_alone();
  EXPECT_LT(own::relative_difference(alone, own::train_as_rank(mine, {})), 1e-6);
  EXPECT_TRUE(all.any(all.rank() == all.size() - 1));
  EXPECT_LT(own::relative_difference(alone, own::train_as_rank(all, {})), 1e-6);
  // A group of some ranks of a group.
  const auto inner = mine.make_group(std::vector{mine.size() - 1});
  EXPECT_EQ(inner != nullptr, mine.rank() == mine.size() - 1);
  if (inner) {
    EXPECT_TRUE(inner->any(true));
  }
}

TEST(WrapperMpi, RequiresTheSameMembersOnAllRanks) {
  job::Workers& all = job::mpi_session().workers();
  if (all.size() == 1) return;
  EXPECT_THAT(allreduce::error_of([&] { all.make_group(std::vector{all.rank()}); }),
              HasSubstr("[make_group] expected the same members on all ranks; rank 0 has"));
  EXPECT_THAT(allreduce::error_of([&] {
                all.make_group(std::vector{0, all.size()});
              }),
              HasSubstr("[make_group] expected different ranks from 0 to"));
}

TEST(WrapperMpi, SubmitsCollectivesInOrder) {
  job::Workers& all = job::mpi_session().workers();
  std::vector<double> values(1000, 1);
  std::vector<std::vector<std::byte>> gathered;
  auto sum = all.submit(
      [&](const allreduce::Communicator& group) { group.all_reduce(std::span(values)).wait(); });
  auto gather = all.submit([&](const allreduce::Communicator& group) {
    gathered = group.all_gather(std::as_bytes(std::span(values).first(1)));
  });
  gather.wait();
  EXPECT_TRUE(sum.test());
  EXPECT_EQ(values[999], all.size());
  ASSERT_EQ(gathered.size(), static_cast<std::size_t>(all.size()));
  std::vector<float> mine(3, static_cast<float>(all.rank()));
  all.average(std::span(mine));
  EXPECT_FLOAT_EQ(mine[2], static_cast<float>(all.size() - 1) / 2);
}

TEST(WrapperMpi, TheSessionCreatesItsWorkersOnce) {
  job::Workers& workers = job::mpi_session().workers();
  EXPECT_EQ(&workers, &job::mpi_session().workers());
  EXPECT_EQ(workers.size(), job::mpi_session().world_size());
  EXPECT_EQ(workers.rank(), job::mpi_session().rank());
}

}  // namespace
}  // namespace lockstep::inline v0::interop
